"""Errors of judges."""


class JudgeError(RuntimeError):
    """A judge could not be asked, or gave no verdict that can be read."""


class UnreadableVerdictError(JudgeError):
    """A judge answered, but not with a verdict."""
