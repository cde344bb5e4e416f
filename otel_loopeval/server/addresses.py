"""Where to listen."""

import ipaddress
import re
import socket
from typing import Final, NamedTuple

_MAX_PORT: Final = 65_535


class Address(NamedTuple):
    """Where to listen.

    Attributes:
        host: A name or an address.
        port: 0 for any that is free.
    """

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_HTTP: Final = Address("127.0.0.1", 4318)
DEFAULT_GRPC: Final = Address("127.0.0.1", 4317)


def read_address(text: str) -> Address:
    """An address such as ``127.0.0.1:4318`` or ``[::1]:4318``.

    Raises:
        ValueError: It is none.
    """
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if (
        not re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?" if bracketed else r"[0-9A-Za-z._-]+", host)
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or int(port) > _MAX_PORT
    ):
        raise ValueError(
            f"an address is HOST:PORT, such as 127.0.0.1:4318 or [::1]:4318, with a port to {_MAX_PORT}, "
            f"got {text!r}"
        )
    return Address(host, int(port))


def unresolved(address: Address) -> str:
    """Why a host has no address to listen at; empty where it has one. It may ask a name server."""
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def is_same_host(one: Address, listening: Address) -> bool:
    """Whether what is sent to one arrives at the other, as far as the names tell.

    Args:
        one: Where it is sent to.
        listening: Where a server listens.
    """
    everywhere = listening.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not listened at
    same_machine = one.is_loopback or one.host in ("0.0.0.0", "::")  # noqa: S104
    if same_machine and listening.is_loopback:
        # 127.0.0.1 and 127.0.0.2 may be two servers, but localhost is either.
        return one.host == listening.host or "localhost" in (one.host, listening.host)
    return one.host == listening.host or (everywhere and same_machine)
