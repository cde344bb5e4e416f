"""``/metrics``, made beside the event loop: many series take a second. Once for all who ask meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class Exposition:
    """Answers with the metrics, as an ASGI application.

    Args:
        registry: Where they are.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._making: asyncio.Task[bytes] | None = None

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """See the ASGI specification."""
        del scope, receive
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(asyncio.to_thread(generate_latest, self._registry))
        text = await asyncio.shield(self._making)
        headers = [
            (b"content-type", CONTENT_TYPE_LATEST.encode()),
            (b"content-length", str(len(text)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})
