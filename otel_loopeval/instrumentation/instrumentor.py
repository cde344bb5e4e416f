"""The entry point of ``opentelemetry-instrument``: zero-code instrumentation."""

import logging
from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from otel_loopeval.instrumentation.setup import instrument, uninstrument

_logger = logging.getLogger("otel_loopeval")


class LoopEvalInstrumentor(BaseInstrumentor):
    """Registered as ``loopeval`` under ``opentelemetry_instrumentor``."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: whatever framework is there is instrumented."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        try:
            instrument(**kwargs)
        except (TypeError, ValueError) as error:
            # Options here come from a configuration file, and an exception would end the instrumentation
            # of everything else too.
            _logger.warning("otel-loopeval: %s; using the environment and the defaults", error)
            instrument()

    def _uninstrument(self, **_kwargs: Any) -> None:
        uninstrument()
