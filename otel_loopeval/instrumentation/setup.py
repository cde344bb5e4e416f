"""``instrument()`` and ``uninstrument()``."""

import threading
from typing import TYPE_CHECKING, Any, Final

import wrapt

from otel_loopeval.health import forget_guard_events
from otel_loopeval.instrumentation import evaluation, praisonai
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.otel import errors, lifecycle
from otel_loopeval.otel.options import OnDoomLoop, Options, check_provider
from otel_loopeval.otel.pipeline import prepare, registry

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from otel_loopeval.instrumentation.seams import LoopSeams


class _State:
    """What is patched now.

    Attributes:
        lock: Protects the rest. Reentrant: patching may import, and an import may have us patch.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.active = False
        self.watching = False
        self.seams: list[LoopSeams] = []
        self.patches: list[Patches] = []
        self.modules: dict[str, Any] = {}  # framework modules that the program has imported

    def renew_lock(self) -> None:
        """In a forked child: the lock may be held by a thread that is not here."""
        self.lock = threading.RLock()


_state = _State()
lifecycle.after_fork_in_child(_state.renew_lock)


def instrument(
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    logger_provider: "LoggerProvider | None" = None,
    threshold: float | None = None,
    max_wasted_iterations: int | None = None,
    token_budget: int | None = None,
    events: str | None = None,
    iteration_metrics: bool | None = None,
    detectors: bool | None = None,
    on_doom_loop: OnDoomLoop | None = None,
    console: bool | None = None,
) -> None:
    """Make the loops of this process visible: ours and those of the supported frameworks.

    Frameworks may be imported before or after. Calling it again reconfigures. Options that are not given
    are read from ``LOOPEVAL_*`` variables (``LOOPEVAL_THRESHOLD``, and so on), where a bad value is a
    warning and the default.

    Args:
        tracer_provider: Where spans go; the global provider, even one that is set later, if None.
        meter_provider: Where metrics go; the global one if None.
        logger_provider: Where log events go; the global one if None.
        threshold: Threshold of runs that bring none, on the judge's scale (default 8.0); a run's own
            always wins.
        max_wasted_iterations: Wasted iterations tolerated before a run is unhealthy (default 0).
        token_budget: Input plus output tokens that a run may use (default: no limit).
        events: Where scores and guard events go: ``"span"`` (default), ``"log"`` or ``"both"``.
        iteration_metrics: Record two histograms per iteration too (default False).
        detectors: Let our own detectors look at what runs do (default True).
        on_doom_loop: Called as ``on_doom_loop(event, run)`` when a doom loop fires; may raise
            ``StopLoop`` to end the run at its next seam. The run is the one of ``current_run()``; of a run
            that somebody else traces it is the :class:`~otel_loopeval.runs.run.LoopRun`, which has no
            seams and no ``health``.
        console: Print a line per run on stderr; by default only where there is no SDK provider.

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: An option is out of its range.
    """
    check_provider("tracer_provider", tracer_provider, "get_tracer")
    check_provider("meter_provider", meter_provider, "get_meter")
    check_provider("logger_provider", logger_provider, "get_logger")
    options = Options.of(
        {
            "threshold": threshold,
            "max_wasted_iterations": max_wasted_iterations,
            "token_budget": token_budget,
            "events": events,
            "iteration_metrics": iteration_metrics,
            "detectors": detectors,
            "on_doom_loop": on_doom_loop,
            "console": console,
        }
    )
    if options.sigterm:
        lifecycle.handle_sigterm()
    prepare()
    with _state.lock:
        registry.configure(options, tracer_provider, meter_provider, logger_provider)
        if _state.active:
            return
        _state.active = True
        _state.seams = evaluation.seams()
        for seams in _state.seams:
            seams.patch()
        for name, module in _state.modules.items():
            _patch_module(name, module)
        _watch_imports()


def is_instrumented() -> bool:
    """Whether ``instrument()`` was called, and ``uninstrument()`` not since."""
    return _state.active


def uninstrument() -> None:
    """Make everything inert: patches are taken back, processors see nothing, new runs emit nothing.

    Runs that are open end as they would have.
    """
    with _state.lock:
        if not _state.active:
            return
        _state.active = False
        for seams in _state.seams:
            seams.restore()
        _state.seams = []
        for patches in reversed(_state.patches):
            patches.restore()
        _state.patches = []
        forget_guard_events()
        registry.deactivate()


_PATCHES: Final = praisonai.PATCHES


def _watch_imports() -> None:
    """Patch framework modules as the program imports them. Import hooks cannot be taken back: once."""
    if _state.watching:
        return
    _state.watching = True
    for name in dict.fromkeys(patch.module for patch in _PATCHES):
        wrapt.register_post_import_hook(_imported, name)


def _imported(module: Any) -> None:
    try:
        with _state.lock:
            _state.modules[module.__name__] = module
            if _state.active:
                _patch_module(module.__name__, module)
    except Exception as error:  # noqa: BLE001 - the guard: an import of the program's must not fail
        errors.swallow("instrumentation.imported", error)


def _patch_module(name: str, module: Any) -> None:
    """Patch a framework module; a version without a seam loses that part and nothing else."""
    for patch in _PATCHES:
        if patch.module != name:
            continue
        patches = Patches()
        try:
            patch.apply(module, patches)
        except Exception as error:  # noqa: BLE001 - the guard: the other parts have nothing to do with it
            _give_up(patch, patches, error)
        else:
            _state.patches.append(patches)


@errors.guarded("instrumentation.give_up")
def _give_up(patch: praisonai.Patch, patches: Patches, error: Exception) -> None:
    warning = f"otel-loopeval: this version of praisonaiagents is not followed in its {patch.name}: {error}"
    if isinstance(error, AttributeError):  # a version without that seam: no error of ours
        errors.warn_once(warning)
    else:
        errors.swallow(f"instrumentation.{patch.module}", error, warning)
    patches.restore()
