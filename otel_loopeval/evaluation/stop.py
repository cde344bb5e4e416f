"""The one exception that ends a loop cleanly."""


class StopLoop(BaseException):
    """Ends the loop that is running and keeps its result so far.

    Raise it from an ``on_doom_loop`` callback, or from your own code inside the agent, the judge, the
    metric or the ``on_iteration`` callback. ``EvaluationLoop`` and ``GoalLoop`` catch it wherever it
    surfaces and return what they have, with ``metadata["stopped"]`` set to True. It derives from
    ``BaseException`` so that an agent's own ``except Exception`` does not swallow it.
    """
