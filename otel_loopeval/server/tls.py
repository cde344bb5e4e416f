"""Certificates: the server's own, and those with which it speaks to the next hop."""

import re
import ssl
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

_CERTIFICATE: Final = re.compile(rb"-----BEGIN (TRUSTED |X509 )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----")


class Tls(NamedTuple):
    """A certificate of ours, for those who connect or for those we connect to.

    Attributes:
        certificate: File with the chain, PEM.
        key: File with its key, PEM.
    """

    certificate: Path
    key: Path

    def load(self, context: ssl.SSLContext) -> None:
        """Have it shown to the other side.

        Raises:
            ValueError: It is of no use.
        """

        def passphrase() -> NoReturn:
            raise ValueError(f"the key in {str(self.key)!r} has a passphrase: give one without")

        try:
            context.load_cert_chain(self.certificate, self.key, passphrase)
        except OSError as error:  # of which those of TLS are some
            raise ValueError(self._problem(error)) from None

    def _problem(self, error: OSError) -> str:
        """Which of the files is to blame: what TLS says of them is the same for both."""
        for what, path, mark, other in (
            ("certificate", self.certificate, _CERTIFICATE, _KEY),
            ("key", self.key, _KEY, _CERTIFICATE),
        ):
            try:
                content = path.read_bytes()
            except OSError as unread:
                return f"cannot read the {what} in {str(path)!r}: {unread.strerror or unread}"
            if not mark.search(content):
                why = "are they swapped?" if other.search(content) else "it is text with -----BEGIN in it"
                return f"there is no {what} in {str(path)!r}, as PEM: {why if content else 'it is empty'}"
        what = "do not belong together" if "MISMATCH" in str(error) else f"are of no use: {error}"
        return f"the certificate in {str(self.certificate)!r} and the key in {str(self.key)!r} {what}"

    def for_clients(self) -> ssl.SSLContext:
        """What a server needs for clients to trust it.

        Raises:
            ValueError: It is of no use.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load(context)
        context.set_alpn_protocols(["http/1.1"])
        return context


class ForwardTls(NamedTuple):
    """How the next hop and we trust each other.

    Attributes:
        authorities: File with certificates of authorities that are trusted beside the system's, PEM; None for
            none.
        own: Our certificate, for a next hop that asks for one; None for none.
    """

    authorities: Path | None = None
    own: Tls | None = None

    def for_server(self) -> ssl.SSLContext:
        """What a client needs to trust the next hop, and to be trusted by it.

        Raises:
            ValueError: A file is of no use.
        """
        context = ssl.create_default_context()
        if self.authorities is not None:
            try:
                context.load_verify_locations(self.authorities)
            except OSError as error:  # as above
                raise ValueError(
                    f"{str(self.authorities)!r} has no certificates of authorities in it, as PEM: {error}"
                ) from None
        if self.own is not None:
            self.own.load(context)
        return context
