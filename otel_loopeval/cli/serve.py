"""Take OTLP from any process, judge the runs in it across processes, and send it on unchanged."""

import argparse
import logging
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopeval.cli.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandError
from otel_loopeval.cli.serve_arguments import add_arguments
from otel_loopeval.cli.serve_options import page_options, retention, serve_options

if TYPE_CHECKING:
    from otel_loopeval.server.options import ServeOptions
    from otel_loopeval.server.serving import Listening

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY: Final = "take OTLP, judge the runs in it, and send it on"

_NEEDED: Final = "pip install 'otel-loopeval[server]'"
_OTHERS: Final = 0o077

_log = logging.getLogger("otel_loopeval.serve")


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.INFO, format="otel-loopeval: %(message)s", stream=sys.stderr)
    # Read when it is imported; with a line for whatever is no gRPC, anybody could fill the disk.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import_module("otel_loopeval.server.serving")
        import_module("otel_loopeval.server.page")
    except ImportError as error:
        raise CommandError(f"serve needs {error.name}: {_NEEDED}", EXIT_USAGE) from error
    from prometheus_client import disable_created_metrics  # noqa: PLC0415 - needs the extra

    from otel_loopeval.server.page import page_app  # noqa: PLC0415
    from otel_loopeval.server.serving import serve  # noqa: PLC0415
    from otel_loopeval.server.store.schema import StoreError  # noqa: PLC0415
    from otel_loopeval.server.store.store import open_store  # noqa: PLC0415

    disable_created_metrics()  # a second series for each, which OpenTelemetry has not
    try:
        asked = serve_options(options)
        page = page_options(asked)
        kept = retention(options)
    except ValueError as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    if options.token_file is not None:
        _warn_of_readers(options.token_file[0])
    try:
        store = open_store("none" if asked.store is None else asked.store, kept)
    except StoreError as error:
        raise CommandError(f"argument --store: {error}", EXIT_FAILURE) from error
    try:
        serve(
            asked,
            on_ready=partial(_tell, options=asked),
            price=None if options.no_cost else _price(),
            store=store,
            page=page_app(store, page),
        )
    except (OSError, ValueError) as error:
        raise CommandError(str(error), EXIT_FAILURE) from error
    return EXIT_OK


def _price() -> Any:
    from otel_loopeval.pricing import prices_of_stored_calls  # noqa: PLC0415 - needs the extra

    return prices_of_stored_calls()


def _warn_of_readers(path: Path) -> None:
    """Say where a file of secrets can be read by others; there are systems that cannot do otherwise."""
    if os.name == "posix" and path.is_file() and path.stat().st_mode & _OTHERS:
        _log.warning("%s can be read by others: chmod 600", path)


def _tell(listening: "Listening", options: "ServeOptions") -> None:
    """Say where it is, and what a program needs to send to it."""
    scheme = "https" if listening.tls else "http"
    url = f"{scheme}://{listening.http}"
    lines = [f"listening at {url}" + ("" if listening.grpc is None else f", gRPC at {listening.grpc}")]
    if options.store is not None:
        lines.append(f"the runs are at {url}/ and kept in {options.store.resolve()}")
    if options.forward is not None:
        lines.append(f"all that comes in goes on to {options.forward}, with a verdict for each run")
    tell = f"to send to it: OTEL_EXPORTER_OTLP_ENDPOINT={url} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    if listening.grpc is not None:
        tell += f", or for gRPC OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://{listening.grpc}"
    lines.append(tell)
    if options.tokens:
        lines.append("each sender brings a token: OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN")
    for line in lines:
        print(f"otel-loopeval: {line}", file=sys.stderr, flush=True)  # noqa: T201 - as it should
