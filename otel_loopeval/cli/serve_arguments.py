"""The options of ``serve``, and the values they take."""

import argparse
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from otel_loopeval.cli.values import count_from, number, seconds_from, size_from

if TYPE_CHECKING:
    from otel_loopeval.server.addresses import Address

NONE: Final = "none"
DEFAULT_STORE: Final = "otel-loopeval.db"

_MAX_BODY: Final = 2**30
_EPILOG: Final = """\
Point OTEL_EXPORTER_OTLP_ENDPOINT at it. With --forward, a request is acknowledged once the next hop has it;
without, once the store has it. Where that fails, the sender is told to try again. The page is at / of the
HTTP address, metrics are at /metrics (scrape with honor_labels: true), health checks at /healthz and /readyz.
With --token-file, each sender brings a token of its tenant, and the page, which takes it as the password,
shows that tenant's runs only. The token of a line *:token shows all runs and the metrics, and sends nothing.
"""

_T = TypeVar("_T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    where = parser.add_argument_group("where from, where to")
    add = where.add_argument
    add(
        "--http",
        type=_address,
        default="127.0.0.1:4318",
        metavar="HOST:PORT",
        help="OTLP over HTTP, the page, metrics and health checks (default: %(default)s; port 0: any)",
    )
    add(
        "--grpc",
        type=_address_or_none,
        default="127.0.0.1:4317",
        metavar="HOST:PORT",
        help="OTLP over gRPC, or none (default: %(default)s)",
    )
    add("--forward", type=_forward, metavar="URL", help="the next hop: base URL of OTLP over HTTP")
    add(
        "--forward-header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header for it; may be repeated",
    )
    add(
        "--forward-ca",
        type=_authorities,
        metavar="PATH",
        help="certificates of authorities for it, PEM, beside those that the system trusts",
    )
    add("--forward-cert", type=_readable, metavar="PATH", help="our certificate, if it asks for one, PEM")
    add("--forward-key", type=_readable, metavar="PATH", help="its key, PEM, without a passphrase")
    add(
        "--store",
        type=_store,
        metavar="PATH",
        help=f"file of the store, or none (default: {DEFAULT_STORE}, with --forward none)",
    )
    add(
        "--store-max-age",
        type=seconds_from(1),
        default="7d",
        metavar="TIME",
        help="how long the store keeps runs (default: %(default)s)",
    )
    add(
        "--store-max-size",
        type=size_from(2**20),
        default="1g",
        metavar="SIZE",
        help="size of the store over which the oldest runs go (default: %(default)s)",
    )
    add(
        "--trace-url",
        action="append",
        default=[],
        metavar="URL",
        help="link of the page to a trace elsewhere, such as http://localhost:16686/trace/{trace_id}",
    )

    when = parser.add_argument_group("when a run is over")
    add = when.add_argument
    add(
        "--idle",
        type=seconds_from(0),
        default="10m",
        metavar="TIME",
        help="how long a trace may be quiet before its root ends, as in one long step (default: %(default)s)",
    )
    add(
        "--grace",
        type=seconds_from(0),
        default="10s",
        metavar="TIME",
        help="how long spans may come after the root (default: %(default)s)",
    )
    add(
        "--max-age",
        type=seconds_from(1),
        default="1h",
        metavar="TIME",
        help="how long a trace is followed at most (default: %(default)s)",
    )

    limits = parser.add_argument_group("limits, and who is let in")
    add = limits.add_argument
    add(
        "--max-memory",
        type=size_from(2**20),
        default="512m",
        metavar="SIZE",
        help="memory of the spans that are held (default: %(default)s)",
    )
    add(
        "--max-body",
        type=size_from(1_024, _MAX_BODY),
        default="16m",
        metavar="SIZE",
        help="largest request, uncompressed (default: %(default)s)",
    )
    add(
        "--request-time",
        type=seconds_from(1),
        default="30s",
        metavar="TIME",
        help="how long a request may take to come in (default: %(default)s)",
    )
    add(
        "--token-file",
        type=_tokens,
        metavar="PATH",
        help="bearer tokens that are let in, one a line, as tenant:token; the tenant * stands for all",
    )
    add("--tls-cert", type=_readable, metavar="PATH", help="the server's certificate, PEM")
    add("--tls-key", type=_readable, metavar="PATH", help="its key, PEM, without a passphrase")
    add("--insecure", action="store_true", help="listen beyond this machine without TLS")

    healthy = parser.add_argument_group("what is healthy, where a run does not say itself")
    add = healthy.add_argument
    add("--threshold", type=number, metavar="SCORE", help="the score to reach (default: 8.0)")
    add(
        "--max-wasted-iterations",
        type=count_from(0),
        metavar="N",
        help="wasted iterations allowed (default: 0 in loops with scores; turns of agents do not matter)",
    )
    add("--token-budget", type=count_from(1), metavar="N", help="tokens that a run may use")
    add("--no-cost", action="store_true", help="compute no costs of model calls")


def _told(read: Callable[[str], _T], text: str) -> _T:
    """What a reader makes of a value; its error as argparse tells it, with the option's name."""
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# Each needs the server's extra or its modules, which no other command has to wait for.


def _address(text: str) -> "Address":
    from otel_loopeval.server.addresses import read_address  # noqa: PLC0415 - as above

    return _told(read_address, text)


def _address_or_none(text: str) -> "Address | None":
    if text == NONE:
        return None
    try:
        return _address(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or {NONE}") from None


def _forward(text: str) -> str:
    from otel_loopeval.server.option_values import read_forward  # noqa: PLC0415 - as above

    return _told(read_forward, text)


def _header(text: str) -> tuple[str, str]:
    from otel_loopeval.server.option_values import read_header  # noqa: PLC0415 - as above

    return _told(read_header, text)


def _tokens(text: str) -> tuple[Path, dict[str, str]]:
    from otel_loopeval.server.option_values import read_tokens  # noqa: PLC0415 - as above

    return Path(text), _told(lambda name: read_tokens(Path(name)), text)


def _authorities(text: str) -> Path:
    from otel_loopeval.server.tls import ForwardTls  # noqa: PLC0415 - as above

    path = _readable(text)
    _told(lambda _: ForwardTls(path).for_server(), text)
    return path


def _store(text: str) -> str:
    try:
        regular = stat.S_ISREG(Path(text).stat().st_mode)
    except OSError:  # none yet, or it is told of when it is opened
        regular = True
    # Of SQLite's own names, a file of that name would be made.
    if not regular or not text or text.endswith("/") or text == ":memory:" or text.startswith("file:"):
        raise argparse.ArgumentTypeError(
            f"the store is a regular file, given by its path, or {NONE}, got {text!r}"
        )
    return text


def _readable(text: str) -> Path:
    try:
        with Path(text).open("rb"):
            return Path(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {error.strerror or error}") from None
