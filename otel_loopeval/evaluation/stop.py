"""The one exception that ends a loop cleanly."""

from typing import Any


class StopLoop(BaseException):
    """Ends the loop that is running and keeps its result so far.

    Raise it from an ``on_doom_loop`` callback, or from your own code inside the agent, the judge, the
    metric or the ``on_iteration`` callback. ``EvaluationLoop`` and ``GoalLoop`` catch it wherever it
    surfaces and return what they have, with ``metadata["stopped"]`` set to True. It derives from
    ``BaseException`` so that an agent's own ``except Exception`` does not swallow it.

    A loop of a framework that ``instrument()`` follows cannot catch it: there the caller of the loop's
    ``run`` gets the exception, with the result so far on it.

    Attributes:
        partial: The result so far of the framework's loop that it ended, of the framework's own type, with
            ``metadata["stopped"]`` set to True; of the outermost one, if several were inside one another.
            None where no loop of a framework was ended or its result cannot be built.
    """

    partial: Any = None


def stops_in(error: BaseException | None) -> list[StopLoop]:
    """The ``StopLoop`` that an exception is, or those that a group of nothing else holds."""
    if isinstance(error, StopLoop):
        return [error]
    if not is_stop(error):
        return []
    members: Any = getattr(error, "exceptions", ())
    return [stop for member in members for stop in stops_in(member)]


def is_stop(error: BaseException | None) -> bool:
    """Whether it is StopLoop, or a group of nothing else, as a task group makes of it."""
    if isinstance(error, StopLoop):
        return True
    members: Any = getattr(error, "exceptions", None) if _is_group(error) else None
    return bool(members) and all(is_stop(member) for member in members)


def _is_group(error: BaseException | None) -> bool:
    # By name, since Python 3.10 has no exception groups of its own.
    return any(base.__name__ == "BaseExceptionGroup" for base in type(error).__mro__)
