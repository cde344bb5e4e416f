"""Whether somebody else records a model call: then their span is the one, and ours stays out.

Asked when a call is made, since instrumentations come and go. What counts is what is in place, not which
spans start: a sampler may drop theirs, and ours would then take its place in the traces that it meant to
thin out.
"""

import os
import sys
from typing import Any, Final

from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import get_current_span

RECORDERS: Final = (
    "agentops.",
    "langfuse.",
    "langtrace_python_sdk.",
    "logfire.",
    "openinference.",
    "openlit.",
    "opentelemetry.instrumentation.",
    "traceloop.",
)
"""Packages whose wrappers around an SDK's methods record OpenTelemetry spans."""

_CALLBACKS: Final = frozenset(
    {
        "agentops",
        "arize",
        "arize_phoenix",
        "langfuse_otel",
        "langtrace",
        "levo",
        "logfire",
        "otel",
        "weave_otel",
    }
)
"""Callbacks of LiteLLM, by the names under which it knows them, that record OpenTelemetry spans."""

_CALLBACK_MODULE: Final = "litellm.integrations.opentelemetry"
_DEEPEST: Final = 12  # wrappers around one another; more are none, but a circle


def is_recorded(*functions: Any) -> bool:
    """Whether a wrapper of somebody else's that records spans is on any of the functions.

    Args:
        functions: Functions or methods, wrapped or not; None is none.
    """
    return any(_is_recorded(function) for function in functions if function is not None)


def is_suppressed() -> bool:
    """Whether the program asked instrumentations to record nothing here."""
    return not is_instrumentation_enabled()


def openai_is_recorded() -> bool:
    """Whether somebody records the calls of the OpenAI SDK, whoever makes them."""
    module = sys.modules.get("openai.resources.chat.completions")
    sdk = sys.modules.get("openai")
    if module is None or sdk is None:
        return False
    return is_recorded(
        getattr(module.Completions, "create", None),
        getattr(module.AsyncCompletions, "create", None),
        *(getattr(client, name, None) for client in _clients(sdk) for name in ("request", "post")),
    )


def client_is_recorded(client: Any) -> bool:
    """Whether somebody records the requests of a client of the OpenAI SDK."""
    return is_recorded(getattr(client, "request", None), getattr(client, "post", None))


def litellm_callback(litellm: Any) -> bool:
    """Whether LiteLLM has an OpenTelemetry callback."""
    for name in ("callbacks", "success_callback", "_async_success_callback"):
        callbacks = getattr(litellm, name, None)
        if isinstance(callbacks, list) and any(map(_records, callbacks)):  # pyright: ignore[reportUnknownArgumentType] # of anything
            return True
    return False


def callback_has_spans_of_its_own() -> bool:
    """Whether LiteLLM's callback makes a span for a call, and does not write on the one that is current.

    It writes on the current span, if there is one, unless told otherwise by its environment variable.
    """
    told = os.environ.get("USE_OTEL_LITELLM_REQUEST_SPAN", "").strip().lower() == "true"
    return told or not get_current_span().get_span_context().is_valid


def _clients(sdk: Any) -> list[Any]:
    names = ("OpenAI", "AsyncOpenAI")
    return [client for client in (getattr(sdk, name, None) for name in names) if client is not None]


def _records(callback: Any) -> bool:
    if isinstance(callback, str):
        return callback in _CALLBACKS
    kinds = type(callback).__mro__
    return any(kind.__module__ == _CALLBACK_MODULE and kind.__name__ == "OpenTelemetry" for kind in kinds)


def _is_recorded(function: Any) -> bool:
    for _ in range(_DEEPEST):
        # wrapt keeps what it calls apart from what it wraps, and passes itself off as the latter.
        wrapper = getattr(function, "_self_wrapper", None)
        if _module_of(function if wrapper is None else wrapper).startswith(RECORDERS):
            return True
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return False
    return False


def _module_of(function: Any) -> str:
    """The module whose code it is, whatever name ``functools.wraps`` gave it."""
    names: Any = getattr(function, "__globals__", None)
    name: Any = names.get("__name__") if isinstance(names, dict) else type(function).__module__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # of anything
    return name if isinstance(name, str) else ""
