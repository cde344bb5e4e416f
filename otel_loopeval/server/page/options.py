"""What the page is told, checked."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

_PLACES = re.compile(r"\{([^{}]*)\}")
_KNOWN = ("trace_id", "span_id", "start_ms", "end_ms")


class TraceLink(NamedTuple):
    """A link to a run's trace in another program.

    Attributes:
        words: What it says.
        url: Where it goes.
    """

    words: str
    url: str


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What the page is told.

    Attributes:
        trace_urls: Addresses of traces in other programs, such as ``http://localhost:16686/trace/{trace_id}``;
            ``{span_id}``, ``{start_ms}`` and ``{end_ms}`` (of the run, milliseconds since the epoch) are
            filled in too.
        tokens: The tenant of each token that may be given as the password (HTTP Basic, any user name) or as a
            bearer token. It shows that tenant's runs only, the one of
            :data:`~otel_loopeval.server.tokens.ALL` those of all. Without any, nobody is asked for one, and
            everybody sees all runs.
        hosts: Names by which the page may be asked for, lower case and without the port; None for any. On a
            loopback address this keeps other pages from reading it under a name of theirs.

    Raises:
        ValueError: An address of traces is none.
    """

    trace_urls: tuple[str, ...] = ()
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: frozenset[str] | None = None

    def __post_init__(self) -> None:
        for url in self.trace_urls:
            _check(url)

    def trace_links(self, *, trace_id: str, span_id: str, start_ns: int, end_ns: int) -> list[TraceLink]:
        """The links of a run."""
        values = {
            "trace_id": trace_id,
            "span_id": span_id,
            "start_ms": str(start_ns // 1_000_000),
            "end_ms": str(-(-end_ns // 1_000_000)),
        }
        return [
            TraceLink(
                f"Open the trace at {urlsplit(url).netloc.rpartition('@')[2]}",
                _PLACES.sub(lambda place: values[place[1]], url),
            )
            for url in self.trace_urls
        ]


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names of this machine to itself."""


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    places = _PLACES.findall(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "trace_id" not in places:
        raise ValueError(
            f"an address of traces is http:// or https:// with {{trace_id}} in it, "
            f"such as http://localhost:16686/trace/{{trace_id}}, got {url!r}"
        )
    unknown = [place for place in places if place not in _KNOWN]
    if unknown:
        raise ValueError(
            f"an address of traces knows {_listed(_KNOWN)}, got {_listed(unknown)} in {url!r}: "
            "other braces are %7B and %7D"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
