"""``otel-loopeval serve``: OTLP in, loop health out, forwarded unchanged. The extra ``[server]``."""
