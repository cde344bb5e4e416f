"""The ``otel-loopeval`` command."""
