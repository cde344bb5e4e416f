"""``/metrics``, made beside the event loop: many series take a second. Once for all who ask meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

_OPENMETRICS: Final = "application/openmetrics-text"
_TEXTS: Final = ("text/plain", "text/*", "*/*")


class Exposition:
    """Answers with the metrics, as an ASGI application: in OpenMetrics, with exemplars, to who takes that.

    Args:
        registry: Where they are.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._making: dict[bool, asyncio.Task[bytes]] = {}

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """See the ASGI specification."""
        del receive
        as_open = _takes_openmetrics(b",".join(v for name, v in scope["headers"] if name == b"accept"))
        making = self._making.get(as_open)
        if making is None or making.done():
            making = asyncio.create_task(asyncio.to_thread(self._generate, as_open=as_open))
            self._making[as_open] = making
        text = await asyncio.shield(making)
        kind = openmetrics.CONTENT_TYPE_LATEST if as_open else exposition.CONTENT_TYPE_LATEST
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _generate(self, *, as_open: bool) -> bytes:
        if as_open:
            return openmetrics.generate_latest(self._registry)  # type: ignore[reportUnknownMemberType,unused-ignore]  # it says no types
        return exposition.generate_latest(self._registry)


def _takes_openmetrics(accept: bytes) -> bool:
    """Whether somebody takes OpenMetrics at least as willingly as text (RFC 9110, section 12.5.1)."""
    wanted: dict[str, float] = {}
    for part in accept.decode("latin-1").lower().split(","):
        kind, *parameters = (text.strip() for text in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            wanted[kind] = max(wanted.get(kind, 0.0), float(weight))
        except ValueError:
            continue
    openly = wanted.get(_OPENMETRICS, 0.0)
    return openly > 0 and openly >= max(wanted.get(kind, 0.0) for kind in _TEXTS)
