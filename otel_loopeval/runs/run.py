"""The state of one loop run, built up fact by fact.

A :class:`LoopRun` knows nothing of spans or of time: whoever feeds it passes the time in, so that a run
that is fed live and one that is fed from a file come to the same verdict.
"""

from dataclasses import replace
from random import getrandbits
from typing import Any

from otel_loopeval import semconv
from otel_loopeval.health.guards import GuardEvent
from otel_loopeval.health.wire import encodable
from otel_loopeval.runs.usage import Price, Spending, Spent, Usage

MAX_ITERATIONS_KEPT = 10_000
"""Iterations of one run whose scores are kept: the first and the last; those between are counted only."""
MAX_GUARD_EVENTS_KEPT = 1_000
"""Guard events of one run that are kept; later ones are counted only."""
_MAX_WRAPPERS_KEPT = 1_000
"""Open spans of one run that are known to wrap a call whose tokens were counted."""


class IterationState:
    """Facts about one iteration of a run.

    Attributes:
        number: Number of the iteration, from 1.
        score: Its score, or None while (or if) it has none.
        started_ns: When it began, in nanoseconds since the epoch.
        spending: What the model calls inside it used, its judges' not; None where there were none.
        wasted: Whether it is known to have only repeated earlier ones (turns of an agent).
    """

    __slots__ = ("number", "score", "spending", "started_ns", "wasted")

    def __init__(self, number: int, started_ns: int) -> None:
        self.number = number
        self.started_ns = started_ns
        self.score: float | None = None
        self.spending: Spending | None = None
        self.wasted = False

    @property
    def input_tokens(self) -> int:
        """Input tokens of the model calls inside it, its judges' not."""
        return 0 if self.spending is None else self.spending.input_tokens

    @property
    def output_tokens(self) -> int:
        """Output tokens of the model calls inside it, its judges' not."""
        return 0 if self.spending is None else self.spending.output_tokens


class LoopRun:
    """Everything that is known of one run so far.

    Not thread-safe by itself but for what a single list append or attribute store gives: where several
    threads may feed it, call its methods with the tracker's lock held (see
    :mod:`otel_loopeval.runs.tracker`).

    Attributes:
        id: Its identifier, unique across processes.
        agent: Name of the agent that the loop runs.
        mode: One of ``semconv.MODES``.
        framework: What runs the loop.
        threshold: The run's own threshold, or None.
        max_iterations: Iterations that the loop may run, or None.
        max_wasted_iterations: Wasted iterations tolerated, or None for the policy's.
        token_budget: Input plus output tokens that it may use, or None for the policy's.
        conversation_id: Conversation that it belongs to, or None.
        parent: The run that this one is inside of, or None.
        started_ns: When it began, in nanoseconds since the epoch.
        active_ns: When something was last heard of it.
        iterations: Its iterations, in order; of very many, not the middle.
        dropped_iterations: How many iterations are not kept.
        guard_events: Its guard events, in order; of very many, the first.
        interventions: How many guard events there were, kept or not.
        own_doom_loop: Whether a doom loop fired in it.
        child_doom_loop: Whether a doom loop fired in a run inside it.
        spending: What the model calls inside it and inside its child runs used; None where there were none.
        judge_spending: What its judges used, likewise.
        serves_judge: Whether the run is a part of a judge's work: around it, all that it uses is the judge's.
        budget_exceeded: Whether it was told that the run went over its token budget.
        success: The loop's own verdict, or None where it has none.
        completion_reason: The framework's own word for why the loop ended.
        outcome: How it ended, once it has, or what its owner declared in advance.
        closed: Whether it has ended.
        resumed: Whether it goes on from an earlier segment (see :mod:`otel_loopeval.runs.resume`).
        cut: Whether a segment before is missing, so that there is no verdict on the whole.
        carried_iterations: How many of its iterations are an earlier segment's.
        carried_guard_events: How many of its guard events, the first ones, are an earlier segment's.
        carried_spending: What of ``spending`` is the earlier segments'; None where that is nothing.
        carried_judge_spending: What of ``judge_spending`` is, likewise.
        carried_ns: How long the earlier segments took, in nanoseconds.
        evidence: The most that the detectors saw of a step, one of ``semconv.EVIDENCE_*``.
        evicted: Whether the tracker gave up following it; it may still end.
        turns: What spans tell of its turns and steps, a :class:`~otel_loopeval.runs.turns.Turns`, or None.
        owner: Whoever feeds it directly, or None for a run that is known from spans. Opaque to the core.
    """

    __slots__ = (
        "_accounted",
        "_streaks",
        "active_ns",
        "agent",
        "budget_exceeded",
        "carried_guard_events",
        "carried_iterations",
        "carried_judge_spending",
        "carried_ns",
        "carried_spending",
        "child_doom_loop",
        "closed",
        "completion_reason",
        "conversation_id",
        "cut",
        "dropped_iterations",
        "evicted",
        "evidence",
        "framework",
        "guard_events",
        "id",
        "interventions",
        "iterations",
        "judge_spending",
        "max_iterations",
        "max_wasted_iterations",
        "mode",
        "outcome",
        "own_doom_loop",
        "owner",
        "parent",
        "resumed",
        "serves_judge",
        "spending",
        "started_ns",
        "success",
        "threshold",
        "token_budget",
        "turns",
    )

    def __init__(
        self,
        agent: str,
        *,
        started_ns: int,
        mode: str = semconv.MODE_OPTIMIZE,
        framework: str = semconv.FRAMEWORK_OWN,
        threshold: float | None = None,
        max_iterations: int | None = None,
        parent: "LoopRun | None" = None,
        run_id: str | None = None,
        conversation_id: str | None = None,
        max_wasted_iterations: int | None = None,
        token_budget: int | None = None,
        serves_judge: bool = False,
    ) -> None:
        # As span ids are made: a system call would cost more.
        self.id = encodable(run_id) if run_id else f"{getrandbits(64):016x}"
        self.agent = encodable(agent)
        self.mode = mode
        self.framework = encodable(framework)
        self.threshold = threshold
        self.max_iterations = max_iterations
        self.max_wasted_iterations = max_wasted_iterations
        self.token_budget = token_budget
        self.conversation_id = None if conversation_id is None else encodable(conversation_id)
        self.parent = parent
        self.started_ns = self.active_ns = started_ns
        self.iterations: list[IterationState] = []
        self.dropped_iterations = 0
        self.guard_events: list[GuardEvent] = []
        self.interventions = 0
        self.success: bool | None = None
        self.completion_reason: str | None = None
        self.outcome: str | None = None
        self.closed = self.evicted = False
        self.evidence = semconv.EVIDENCE_NONE
        self.owner: Any = None
        self.turns: Any = None
        self.own_doom_loop = False
        self.child_doom_loop = False
        self.spending: Spending | None = None
        self.judge_spending: Spending | None = None
        self.serves_judge = serves_judge
        self.budget_exceeded = False
        self.resumed = self.cut = False
        self.carried_iterations = self.carried_guard_events = self.carried_ns = 0
        self.carried_spending: Spending | None = None
        self.carried_judge_spending: Spending | None = None
        self._streaks: dict[object, str] | None = None  # and tools, with who told of them first
        self._accounted: set[int] | None = None

    @property
    def doom_loop_fired(self) -> bool:
        """Whether a doom loop fired in this run or in a run inside it."""
        return self.own_doom_loop or self.child_doom_loop

    @property
    def input_tokens(self) -> int:
        """Input tokens of the model calls inside it and inside its child runs, its judges' not."""
        return 0 if self.spending is None else self.spending.input_tokens

    @property
    def output_tokens(self) -> int:
        """Output tokens of the model calls inside it and inside its child runs, its judges' not."""
        return 0 if self.spending is None else self.spending.output_tokens

    @property
    def iteration_count(self) -> int:
        """Iterations that have begun, kept or not."""
        return len(self.iterations) + self.dropped_iterations

    def begin_iteration(self, now_ns: int, number: int | None = None) -> IterationState:
        """Add an iteration.

        Args:
            now_ns: The time, in nanoseconds since the epoch.
            number: Its number, from 1; one more than the iterations so far if None.
        """
        iterations = self.iterations
        if number is None:
            number = len(iterations) + self.dropped_iterations + 1
        state = IterationState(number, now_ns)
        self.active_ns = now_ns
        if len(iterations) < MAX_ITERATIONS_KEPT:
            iterations.append(state)
        else:
            # The last ones matter most to a reader of the run: drop from the middle.
            del iterations[MAX_ITERATIONS_KEPT // 2]
            iterations.append(state)
            self.dropped_iterations += 1
        return state

    def add_guard_event(self, event: GuardEvent) -> bool:
        """Add a guard event.

        One doom loop fires once per run, agent and streak; what is reported of the same streak later is
        an intervention, and so is what another guard says of a tool whose loop has fired. A doom loop marks
        the runs around this one too.

        Args:
            event: The event; ``time_ns`` should be set.

        Returns:
            Whether a doom loop fired that had not fired before.
        """
        self.interventions += 1
        if len(self.guard_events) < MAX_GUARD_EVENTS_KEPT:
            self.guard_events.append(event)
        if event.time_ns is not None:
            self.active_ns = max(self.active_ns, event.time_ns)
        if not event.doom_loop:
            return False
        streak = (event.agent, event.key or (event.source, event.kind, event.tool, event.rule))
        streaks = self._streaks
        if streaks is None:
            streaks = self._streaks = {}
        elif streak in streaks or len(streaks) >= MAX_GUARD_EVENTS_KEPT:
            return False
        streaks[streak] = event.source
        if event.tool is not None and streaks.setdefault(event.tool, event.source) != event.source:
            return False  # two guards that see one tool go round are about one loop
        self.own_doom_loop = True
        ancestor = self.parent
        while ancestor is not None and not ancestor.child_doom_loop:
            ancestor.child_doom_loop = True
            ancestor = ancestor.parent
        return True

    def spend(
        self, iteration: IterationState | None, usage: Usage, cost_usd: float | None, *, judging: bool = False
    ) -> None:
        """Count one model call, here and in the runs around this one.

        Args:
            iteration: The iteration that it is in.
            usage: What it used.
            cost_usd: What it cost in USD, or None where that is unknown.
            judging: Whether a judge made it: its tokens are counted apart, and in no iteration.
        """
        if iteration is not None and not judging:
            if iteration.spending is None:
                iteration.spending = Spending()
            iteration.spending.add(usage, cost_usd)
        run: LoopRun | None = self
        while run is not None:
            if judging:
                if run.judge_spending is None:
                    run.judge_spending = Spending()
                run.judge_spending.add(usage, cost_usd)
            else:
                if run.spending is None:
                    run.spending = Spending()
                run.spending.add(usage, cost_usd)
            judging = judging or run.serves_judge
            run = run.parent

    def account_span(
        self,
        span_id: int,
        parent_id: int | None,
        usage: Usage | None,
        iteration: IterationState | None,
        *,
        ended_ns: int = 0,
        price: Price | None = None,
        judging: bool = False,
    ) -> Spent | None:
        """Count what a span inside the run reports to have used, if no span inside it reported it.

        Wrappers repeat the usage of the call they wrap, and an agent's span sums up its calls: tokens
        count where they are reported first, which is innermost, since inner spans end first.

        Args:
            span_id: The span that ended.
            parent_id: Its parent.
            usage: What it reports, or None where it reports nothing.
            iteration: The iteration that it is in.
            ended_ns: When it ended, in nanoseconds since the epoch.
            price: Tells what a call cost; None where nobody knows.
            judging: Whether a judge made the call.

        Returns:
            What was counted, or None.
        """
        accounted = self._accounted
        spent = None
        if accounted is not None and span_id in accounted:
            accounted.discard(span_id)
        elif usage is None:
            return None
        else:
            cost_usd = None if price is None else price(usage, ended_ns)
            self.spend(iteration, usage, cost_usd, judging=judging)
            spent = Spent(usage, cost_usd, judging)
            if accounted is None:
                accounted = self._accounted = set()
        if parent_id is not None and len(accounted) < _MAX_WRAPPERS_KEPT:
            accounted.add(parent_id)
        return spent

    def account_child(self, span_id: int, parent_id: int | None) -> None:
        """Note that a run inside this one counted what its root, or what is around that, may repeat."""
        if parent_id is not None:
            if self._accounted is None:
                self._accounted = set()
            self._accounted.discard(span_id)
            if len(self._accounted) < _MAX_WRAPPERS_KEPT:
                self._accounted.add(parent_id)

    def stamp(self, event: GuardEvent, now_ns: int, iteration: IterationState | None) -> GuardEvent:
        """The event with its time and iteration filled in, where it brought none."""
        if event.time_ns is not None and (event.iteration is not None or iteration is None):
            return event
        return replace(
            event,
            time_ns=now_ns if event.time_ns is None else event.time_ns,
            iteration=iteration.number
            if event.iteration is None and iteration is not None
            else event.iteration,
        )
