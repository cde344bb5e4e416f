"""What the SDK and its exporters complain of: they log it, and tell nobody else."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())


@contextmanager
def complaints() -> Generator[list[str], None, None]:
    """Hear what the SDK logs, and keep it from standard error, where it would be told twice.

    Yields:
        Its warnings and errors so far, in order.
    """
    logger = logging.getLogger("opentelemetry")
    heard: list[str] = []
    listener = _Listener(heard)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield heard
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagates
