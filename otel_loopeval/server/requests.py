"""A request with OTLP, from when its body is there to its answer."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopeval.server.http.replies import Reply, refused
from otel_loopeval.server.traces.intake import Batch

if TYPE_CHECKING:
    from otel_loopeval.server.core import Core

TRACES: Final = "traces"
SIGNALS: Final = (TRACES, "metrics", "logs")

NO_TOKEN: Final = refused(401, "a bearer token is needed")
ONLY_SHOWS: Final = refused(403, "the token of the tenant * shows all runs and sends none: a tenant's sends")

_log = logging.getLogger("otel_loopeval.serve")


class Otlp(NamedTuple):
    """What a request with OTLP says of its body. It was let in.

    Attributes:
        signal: One of :data:`SIGNALS`.
        content_type: :data:`PROTOBUF` or :data:`JSON`.
        encoding: How its body is compressed; empty if it is not.
        tenant: Whose it is.
    """

    signal: str
    content_type: bytes
    encoding: bytes
    tenant: str


class Work:
    """A request that is worked on. Its bytes count until it is answered."""

    __slots__ = ("_answered", "batch", "body", "core", "what")

    def __init__(self, core: "Core", what: Otlp, body: bytes, answered: Callable[[Reply], object]) -> None:
        self.core = core
        self.what = what
        self.body = body
        self.batch: Batch | None = None
        self._answered: Callable[[Reply], object] | None = answered
        core.inflight += len(body)

    def forwarded(self, answer: Reply) -> None:
        """The next hop has answered."""
        try:
            self.core.answered(self, answer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender is told
            self.fail(error)

    def answer(self, reply: Reply) -> None:
        """Tell the sender, once."""
        answered, self._answered = self._answered, None
        if answered is None:
            return
        self.core.inflight -= len(self.body)
        self.core.count(self.what.signal, reply.status, self.what.tenant)
        answered(reply)

    def fail(self, error: BaseException) -> None:
        """Tell the sender that it is our fault."""
        _log.error("this should not have happened; going on", exc_info=error)
        self.answer(refused(500, "this should not have happened"))
