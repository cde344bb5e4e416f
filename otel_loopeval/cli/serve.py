"""Take OTLP from any process, judge the runs in it across processes, and send it on unchanged."""

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopeval.cli.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from otel_loopeval.server.options import ServeOptions
    from otel_loopeval.server.page import PageOptions
    from otel_loopeval.server.serving import Listening
    from otel_loopeval.server.store_writer import Retention

SUMMARY: Final = "take OTLP, judge the runs in it, and send it on"

_NEEDED: Final = "pip install 'otel-loopeval[server]'"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZES: Final = {"k": 2**10, "m": 2**20, "g": 2**30}
_NONE: Final = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = (
        "Point OTEL_EXPORTER_OTLP_ENDPOINT at it. With --forward, a request is acknowledged once the next "
        "hop has it; without, once the store has it. Metrics are at /metrics (scrape with honor_labels: "
        "true), health checks at /healthz and /readyz."
    )
    add = parser.add_argument
    add("--http", default="127.0.0.1:4318", metavar="HOST:PORT", help="OTLP over HTTP (default: %(default)s)")
    add(
        "--grpc",
        default="127.0.0.1:4317",
        metavar="HOST:PORT",
        help="OTLP over gRPC, or none (default: %(default)s)",
    )
    add("--forward", metavar="URL", help="the next hop: base URL of OTLP over HTTP")
    add(
        "--forward-header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header for it; may be repeated",
    )
    add(
        "--store",
        default=None,
        metavar="PATH",
        help="file of the store, or none (default: otel-loopeval.db, with --forward none)",
    )
    add(
        "--store-max-age",
        type=_seconds,
        default=604_800.0,
        metavar="TIME",
        help="how long the store keeps runs (default: 7d)",
    )
    add(
        "--store-max-size",
        type=_size,
        default=2**30,
        metavar="BYTES",
        help="size of the store over which the oldest runs go (default: 1g)",
    )
    add(
        "--idle",
        type=_seconds,
        default=30.0,
        metavar="TIME",
        help="how long a trace without a root may be quiet (default: 30s)",
    )
    add(
        "--grace",
        type=_seconds,
        default=10.0,
        metavar="TIME",
        help="how long spans may come after the root (default: 10s)",
    )
    add(
        "--max-age",
        type=_seconds,
        default=3600.0,
        metavar="TIME",
        help="how long a trace is followed at most (default: 1h)",
    )
    add(
        "--max-memory",
        type=_size,
        default=512 * 2**20,
        metavar="SIZE",
        help="memory of the spans that are held (default: 512m)",
    )
    add(
        "--max-body",
        type=_size,
        default=16 * 2**20,
        metavar="SIZE",
        help="largest request, uncompressed (default: 16m)",
    )
    add(
        "--request-time",
        type=_seconds,
        default=30.0,
        metavar="TIME",
        help="how long a request may take to come in (default: 30s)",
    )
    add(
        "--token-file",
        type=Path,
        metavar="PATH",
        help="bearer tokens that are let in, one a line, as tenant:token",
    )
    add("--tls-cert", type=Path, metavar="PATH", help="the server's certificate, PEM")
    add("--tls-key", type=Path, metavar="PATH", help="its key, PEM")
    add("--insecure", action="store_true", help="listen beyond this machine without TLS")
    add("--threshold", type=float, metavar="SCORE", help="threshold of runs that bring none")
    add("--max-wasted-iterations", type=int, metavar="N", help="wasted iterations that are tolerated")
    add("--token-budget", type=int, metavar="N", help="tokens that a run may use")
    add("--no-cost", action="store_true", help="compute no costs: they take most of the time at high rates")
    add(
        "--trace-url",
        action="append",
        default=[],
        metavar="URL",
        help="link of the page to a trace elsewhere, such as http://localhost:16686/trace/{trace_id}",
    )


def _seconds(text: str) -> float:
    number = text.rstrip("dhms")
    try:
        return float(number) * _UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"a time is a number with ms, s, m, h or d, got {text!r}") from None


def _size(text: str) -> int:
    number = text.lower().rstrip("kmg")
    unit = text[len(number) :].lower()
    if not number.isdecimal() or unit not in ("", *_SIZES):
        raise argparse.ArgumentTypeError(
            f"a size is a whole number of bytes, or with k, m or g, got {text!r}"
        )
    return int(number) * _SIZES.get(unit, 1)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.INFO, format="otel-loopeval: %(message)s", stream=sys.stderr)
    try:
        from otel_loopeval.server.serving import serve  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise CommandError(f"serve needs {error.name}: {_NEEDED}", EXIT_USAGE) from error
    try:
        asked = serve_options(options)
        page_options = _page_options(asked)
        retention = _retention(options)
    except (ValueError, OSError) as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    try:
        serve(
            asked,
            on_ready=_tell,
            price=None if options.no_cost else _price(),
            **_parts(asked, page_options, retention),
        )
    except (OSError, ValueError) as error:
        raise CommandError(str(error), EXIT_FAILURE) from error
    return EXIT_OK


def serve_options(options: argparse.Namespace) -> "ServeOptions":
    """What the command line asks for.

    Raises:
        ValueError: It cannot be done.
        OSError: A file cannot be read.
    """
    from otel_loopeval.runs.verdict import Policy  # noqa: PLC0415 - as above
    from otel_loopeval.server.following import Limits  # noqa: PLC0415
    from otel_loopeval.server.options import (  # noqa: PLC0415
        ServeOptions,
        Tls,
        read_address,
        read_header,
        read_tokens,
    )

    if (options.tls_cert is None) != (options.tls_key is None):
        raise ValueError("--tls-cert and --tls-key go together")
    store = options.store
    if store is None:
        store = "otel-loopeval.db" if options.forward is None else _NONE
    if store == _NONE and options.forward is None:
        raise ValueError("with --store none it takes --forward: what comes in has to go somewhere")
    return ServeOptions(
        http=read_address(options.http),
        grpc=None if options.grpc == _NONE else read_address(options.grpc),
        forward=options.forward,
        forward_headers=dict(map(read_header, options.forward_header)),
        store=None if store == _NONE else Path(store),
        limits=Limits(
            grace_s=options.grace,
            idle_s=options.idle,
            max_age_s=options.max_age,
            max_bytes=options.max_memory,
        ),
        policy=Policy(
            threshold=options.threshold,
            max_wasted_iterations=options.max_wasted_iterations,
            token_budget=options.token_budget,
        ),
        tokens={} if options.token_file is None else read_tokens(options.token_file),
        tls=None if options.tls_cert is None else Tls(options.tls_cert, options.tls_key),
        insecure=options.insecure,
        max_body=options.max_body,
        request_s=options.request_time,
        trace_urls=tuple(options.trace_url),
    )


def _page_options(options: "ServeOptions") -> "PageOptions":
    from otel_loopeval.server.page import LOOPBACK_HOSTS, PageOptions  # noqa: PLC0415 - as above

    return PageOptions(
        trace_urls=options.trace_urls,
        tokens=frozenset(options.tokens),
        hosts=LOOPBACK_HOSTS if options.http.is_loopback else None,
    )


def _retention(options: argparse.Namespace) -> "Retention":
    """What the store keeps."""
    from otel_loopeval.server.store_writer import Retention  # noqa: PLC0415 - as above

    if not options.store_max_age > 0:
        raise ValueError("--store-max-age is above 0")
    if not options.store_max_size > 0:
        raise ValueError("--store-max-size is above 0")
    return Retention(options.store_max_age, options.store_max_size)


def _parts(options: "ServeOptions", page_options: "PageOptions", retention: "Retention") -> dict[str, Any]:
    """The store, and the page that shows it."""
    from otel_loopeval.server.page import page_app  # noqa: PLC0415 - as above
    from otel_loopeval.server.store import open_store  # noqa: PLC0415

    store = open_store("none" if options.store is None else options.store, retention)
    return {"store": store, "page": page_app(store, page_options)}


def _price() -> Any:
    from otel_loopeval.pricing import prices_of_stored_calls  # noqa: PLC0415 - as above

    return prices_of_stored_calls()


def _tell(listening: "Listening") -> None:
    where = f"{'https' if listening.tls else 'http'}://{listening.http}"
    grpc = "" if listening.grpc is None else f", gRPC at {listening.grpc}"
    print(f"otel-loopeval: listening at {where}{grpc}", file=sys.stderr, flush=True)  # noqa: T201 - as it should
