"""Certificates: the server's own, and those with which it speaks to the next hop."""

import ssl
from pathlib import Path
from typing import NamedTuple, NoReturn


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
            what = "do not belong together" if "MISMATCH" in str(error) else f"are of no use: {error}"
            raise ValueError(
                f"the certificate in {str(self.certificate)!r} and the key in {str(self.key)!r} {what}"
            ) from None

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
