"""What is wrong with a set-up, in plain words."""

from otel_loopeval.doctor.findings import BAD, GOOD, NOTE, WARNING, Finding

__all__ = ["BAD", "Finding", "GOOD", "NOTE", "WARNING"]  # noqa: RUF022 - sorted as the other packages' are
