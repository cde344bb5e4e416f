"""What is wrong with a set-up, in plain words."""

from otel_loopeval.doctor.findings import BAD, GOOD, NOTE, WARNING, Finding

__all__ = ["BAD", "GOOD", "NOTE", "WARNING", "Finding"]
