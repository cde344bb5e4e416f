"""What the options of ``serve`` ask for."""

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_loopeval.cli.serve_arguments import DEFAULT_STORE, NONE

if TYPE_CHECKING:
    from otel_loopeval.server.options import ServeOptions
    from otel_loopeval.server.page import PageOptions
    from otel_loopeval.server.store.retention import Retention
    from otel_loopeval.server.tls import Tls

_MOST_FILES: Final = 65_536
_OUR_FILES: Final = 400
"""The store's, those to the next hop, and what is open in any case."""


def serve_options(options: argparse.Namespace) -> "ServeOptions":
    """What the command line asks for.

    Raises:
        ValueError: It cannot be done, or is not safe.
    """
    from otel_loopeval.runs.verdict import Policy  # noqa: PLC0415 - no other command waits for these
    from otel_loopeval.server.options import ServeOptions  # noqa: PLC0415
    from otel_loopeval.server.tls import ForwardTls  # noqa: PLC0415
    from otel_loopeval.server.traces.limits import Limits  # noqa: PLC0415

    tls = _pair(options, "tls")
    if tls is not None:
        _useful("--tls-cert and --tls-key", tls.for_clients)
    own = _pair(options, "forward")
    forward_tls = ForwardTls(options.forward_ca, own)
    if own is not None:
        _useful("--forward-cert and --forward-key", forward_tls.for_server)
    store = options.store
    if store is None:
        store = DEFAULT_STORE if options.forward is None else NONE
    if store == NONE and options.forward is None:
        raise ValueError("with --store none it takes --forward: what comes in has to go somewhere")
    _check_patience(options)
    known = ServeOptions.__dataclass_fields__
    return ServeOptions(
        http=options.http,
        grpc=options.grpc,
        forward=options.forward,
        forward_headers=dict(options.forward_header),
        forward_tls=forward_tls,
        store=None if store == NONE else Path(store),
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
        tokens={} if options.token_file is None else options.token_file[1],
        tls=tls,
        insecure=options.insecure,
        max_body=options.max_body,
        request_s=options.request_time,
        max_inflight=max(options.max_body * 4, known["max_inflight"].default),
        max_connections=min(_room_for_connections(), known["max_connections"].default),
        trace_urls=tuple(options.trace_url),
    )


def _check_patience(options: argparse.Namespace) -> None:
    asked = {"--idle": options.idle, "--grace": options.grace}
    longer = [f"{name} {seconds:g}s" for name, seconds in asked.items() if seconds > options.max_age]
    if longer:
        raise ValueError(
            f"--max-age {options.max_age:g}s is below {' and '.join(longer)}: no trace is followed for that "
            "long: raise the one, or lower the other"
        )


def _pair(options: argparse.Namespace, name: str) -> "Tls | None":
    from otel_loopeval.server.tls import Tls  # noqa: PLC0415 - as above

    certificate, key = getattr(options, f"{name}_cert"), getattr(options, f"{name}_key")
    if (certificate is None) != (key is None):
        raise ValueError(f"--{name}-cert and --{name}-key go together")
    return None if certificate is None else Tls(certificate, key)


def _useful(names: str, load: Callable[[], object]) -> None:
    """See whether certificates are of use; if not, it is told of which options."""
    try:
        load()
    except ValueError as error:
        raise ValueError(f"arguments {names}: {error}") from None


def _room_for_connections() -> int:
    """How many connections of HTTP there may be: more than half of the files that may be open, less our own.

    Those of gRPC may be four for each five of them, so that there are files for both.
    """
    try:
        import resource  # noqa: PLC0415 - there is none for Windows
    except ImportError:
        return _MOST_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:  # as shells give it, it is a thousand
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max((soft - _OUR_FILES) * 11 // 20, 1) if soft != resource.RLIM_INFINITY else _MOST_FILES


def page_options(options: "ServeOptions") -> "PageOptions":
    """What the page is told.

    Raises:
        ValueError: A link is none.
    """
    from otel_loopeval.server.page import LOOPBACK_HOSTS, PageOptions  # noqa: PLC0415 - as above

    try:
        return PageOptions(
            trace_urls=options.trace_urls,
            tokens=options.tokens,
            hosts=LOOPBACK_HOSTS if options.http.is_loopback else None,
        )
    except ValueError as error:
        raise ValueError(f"argument --trace-url: {error}") from None


def retention(options: argparse.Namespace) -> "Retention":
    """What the store keeps."""
    from otel_loopeval.server.store.retention import Retention  # noqa: PLC0415 - as above

    return Retention(options.store_max_age, options.store_max_size)
