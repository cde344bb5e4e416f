"""The one exception that ends a loop cleanly."""

from typing import Any


class StopLoop(BaseException):
    """Ends the loop that is running and keeps its result so far.

    Raise it from an ``on_doom_loop`` callback, or from your own code inside the agent, the judge, the
    metric or the ``on_iteration`` callback. ``EvaluationLoop`` and ``GoalLoop`` catch it wherever it
    surfaces and return what they have, with ``metadata["stopped"]`` set to True. It derives from
    ``BaseException`` so that an agent's own ``except Exception`` does not swallow it.
    """


def is_stop(error: BaseException | None) -> bool:
    """Whether it is StopLoop, or a group of nothing else, as a task group makes of it."""
    if isinstance(error, StopLoop):
        return True
    members: Any = getattr(error, "exceptions", None) if _is_group(error) else None
    return bool(members) and all(is_stop(member) for member in members)


def _is_group(error: BaseException | None) -> bool:
    # By name, since Python 3.10 has no exception groups of its own.
    return any(base.__name__ == "BaseExceptionGroup" for base in type(error).__mro__)
