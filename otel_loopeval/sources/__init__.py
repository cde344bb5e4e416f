"""Where stored spans are: files in any of the usual forms, and servers that keep traces."""

from otel_loopeval.sources.errors import SourceError
from otel_loopeval.sources.opening import open_source
from otel_loopeval.sources.query import Query

__all__ = ["Query", "SourceError", "open_source"]
