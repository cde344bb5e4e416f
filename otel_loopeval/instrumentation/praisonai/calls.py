"""Model calls, through the OpenAI SDK and through LiteLLM.

The package calls a model from some thirty places, with clients and functions that it takes from either
library when it needs them. So their methods are patched, as other instrumentations do, and a call is ours if
the package makes it: the program's own calls are none of our business.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import wrapt

from otel_loopeval.instrumentation import genai, others
from otel_loopeval.instrumentation.model_calls import LATER, OURS, THEIRS, ModelCall, current_call
from otel_loopeval.instrumentation.patches import Patches
from otel_loopeval.instrumentation.praisonai.loops import SCOPE
from otel_loopeval.otel.errors import swallow

_PACKAGE: Final = "praisonaiagents"
_BETWEEN: Final = (*others.RECORDERS, "wrapt.", "otel_loopeval.instrumentation.", "functools", "contextlib")
"""Whose frames may be between the package and a call of its own: instrumentations that wrap it, too."""
_FARTHEST: Final = 20

_OPENAI_METHODS: Final = (
    ("openai.resources.chat.completions", ("Completions", "AsyncCompletions"), ("create", "parse")),
    ("openai.resources.beta.chat.completions", ("Completions", "AsyncCompletions"), ("parse",)),
    ("openai.resources.responses", ("Responses", "AsyncResponses"), ("create",)),
)
"""Modules of the OpenAI SDK, their classes and methods; a version has not all of them."""
_OPENAI_BASES: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_LITELLM_FUNCTIONS: Final = ("completion", "acompletion", "responses", "aresponses")


class _Recording(NamedTuple):
    """Who records a call.

    Attributes:
        recorder: One of the constants of :mod:`~otel_loopeval.instrumentation.model_calls`.
        shields: Whether somebody would write on our span.
        hears: Whether a callback hears of the call afterwards.
    """

    recorder: str
    shields: bool = False
    hears: bool = False


class _Target(NamedTuple):
    """A function or method that calls a model.

    Attributes:
        owner: The class or module that it is on.
        name: Its name there.
        original: What it was before us.
        read: Reads its arguments.
        recording: Says who records a call, given this and the arguments.
    """

    owner: Any
    name: str
    original: Callable[..., Any]
    read: Callable[["_Target", tuple[Any, ...], Mapping[str, Any]], genai.Request]
    recording: Callable[["_Target", tuple[Any, ...], Mapping[str, Any]], _Recording]


def patch_openai(_package: Any, patches: Patches) -> None:
    """Follow the calls that the package makes through the OpenAI SDK, as soon as that is imported."""
    for module, classes, methods in _OPENAI_METHODS:
        _when_imported(module, functools.partial(_patch_openai, patches, classes, methods), patches)


def patch_litellm(_package: Any, patches: Patches) -> None:
    """Follow the calls that the package makes through LiteLLM, as soon as that is imported."""
    _when_imported("litellm", functools.partial(_patch_litellm, patches), patches)


def _when_imported(name: str, patch: Callable[[Any], None], patches: Patches) -> None:
    def imported(module: Any) -> None:
        if not patches.active:  # an import hook cannot be taken back
            return
        try:
            patch(module)
        except Exception as error:  # noqa: BLE001 - the guard: an import of the program's must not fail
            kind = type(error).__name__
            warning = f"otel-loopeval: {name} is not as expected ({kind}); model calls are not followed"
            swallow(f"instrumentation.{name}", error, warning)

    wrapt.register_post_import_hook(imported, name)


def _patch_openai(patches: Patches, classes: tuple[str, ...], methods: tuple[str, ...], module: Any) -> None:
    for cls in (getattr(module, name) for name in classes):
        for name in methods:
            original = getattr(cls, name, None)
            if original is None:
                continue
            target = _Target(cls, name, original, _read_openai, _recording_of_openai)
            is_async = cls.__name__.startswith("Async")
            patches.replace(cls, name, _wrap(target, patches, is_async=is_async, inside=_note_openai))


def _patch_litellm(patches: Patches, module: Any) -> None:
    for name in _LITELLM_FUNCTIONS:
        original = getattr(module, name, None)
        if original is not None:
            target = _Target(module, name, original, _read_litellm, _recording_of_litellm)
            patches.replace(module, name, _wrap(target, patches, is_async=name.startswith("a")))


# The call --------------------------------------------------------------------------------------------------


def _wrap(
    target: _Target,
    patches: Patches,
    *,
    is_async: bool,
    inside: Callable[[_Target, tuple[Any, ...]], None] | None = None,
) -> Callable[..., Any]:
    """Follow the calls that the package makes.

    Args:
        target: What is called.
        patches: Whether to do anything.
        is_async: Whether it returns an awaitable.
        inside: Told of the calls that somebody else makes.
    """
    original = target.original

    def is_ours(args: tuple[Any, ...]) -> bool:
        try:
            if not patches.active:
                return False
            if _called_by_package():
                return True
            if inside is not None and current_call.get() is not None:
                inside(target, args)
        except Exception as error:  # noqa: BLE001 - the guard
            swallow("praisonai.is_ours", error)
        return False

    if inspect.iscoroutinefunction(original):

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            if is_ours(args):
                return await _call_async(target, args, kwargs)
            return await original(*args, **kwargs)

        wrapper: Callable[..., Any] = coroutine
    else:

        def function(*args: Any, **kwargs: Any) -> Any:
            if is_ours(args):
                return (_call_async if is_async else _call)(target, args, kwargs)
            return original(*args, **kwargs)

        wrapper = function
    return functools.wraps(original)(wrapper)


def _call(target: _Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recording, call = _begin(target, args, kwargs)
    try:
        response = target.original(*args, **kwargs)
    except BaseException as error:
        if call is not None:
            call.failed(error)
        raise
    return response if call is None else _answered(call, recording, response, kwargs)


async def _call_async(target: _Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recording, call = _begin(target, args, kwargs)
    try:
        response = await target.original(*args, **kwargs)
    except BaseException as error:
        if call is not None:
            call.failed(error)
        raise
    return response if call is None else _answered(call, recording, response, kwargs)


def _begin(
    target: _Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[_Recording, ModelCall | None]:
    recording = _Recording(THEIRS)
    try:
        request = target.read(target, args, kwargs)
        recording = target.recording(target, args, kwargs)
        return recording, ModelCall(request, SCOPE, recording.recorder, shields=recording.shields)
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("praisonai.model_call", error)
        return recording, None


def _answered(call: ModelCall, recording: _Recording, response: Any, kwargs: Mapping[str, Any]) -> Any:
    streamed = False
    try:
        streamed = bool(kwargs.get("stream"))
        if streamed and recording.hears and call.parent is not None:
            _tell_parent(response, call.parent)
    except Exception as error:  # noqa: BLE001 - the guard
        swallow("praisonai.answered", error)
    return call.answered(response, streamed=streamed)


def _called_by_package() -> bool:
    """Whether the package makes a call, perhaps through wrappers of other instrumentations."""
    frame = inspect.currentframe()
    for _ in range(_FARTHEST):
        if frame is None:
            return False
        module = str(frame.f_globals.get("__name__"))  # programs run code under any name, or none
        if not module.startswith(_BETWEEN):
            return module == _PACKAGE or module.startswith(_PACKAGE + ".")
        frame = frame.f_back
    return False


# The OpenAI SDK --------------------------------------------------------------------------------------------


def _read_openai(_target: _Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> genai.Request:
    address, port = genai.server_of(str(getattr(_client(args), "base_url", "")))
    model = kwargs.get("model")
    return genai.read_request(
        kwargs,
        model=model if isinstance(model, str) else None,
        provider=genai.provider_at(address),
        address=address,
        port=port,
    )


def _recording_of_openai(target: _Target, args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> _Recording:
    return _Recording(THEIRS if others.is_suppressed() or _openai_is_recorded(target, args) else OURS)


def _note_openai(target: _Target, args: tuple[Any, ...]) -> None:
    """LiteLLM makes a call through the SDK for the package: others may record that one."""
    call = current_call.get()
    if call is not None and not call.covered and _openai_is_recorded(target, args):
        call.covered = True


def _openai_is_recorded(target: _Target, args: tuple[Any, ...]) -> bool:
    return others.is_recorded(
        target.owner.__dict__.get(target.name), target.original
    ) or others.client_is_recorded(_client(args))


def _client(args: tuple[Any, ...]) -> Any:
    return getattr(args[0], "_client", None) if args else None


# LiteLLM ---------------------------------------------------------------------------------------------------


def _read_litellm(target: _Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> genai.Request:
    litellm = target.owner
    model = kwargs.get("model", args[0] if args else None)
    base = kwargs.get("api_base") or kwargs.get("base_url")
    provider = kwargs.get("custom_llm_provider")
    if isinstance(model, str):
        try:
            model, provider, _, base = litellm.get_llm_provider(model, provider, base)
        except Exception:  # noqa: BLE001 - it knows no provider for it: then neither do we
            provider = None
    if provider == "openai" and not base:  # it looks here when it makes the call
        base = getattr(litellm, "api_base", None) or next(
            filter(None, map(os.environ.get, _OPENAI_BASES)), None
        )
    address, port = genai.server_of(base)
    return genai.read_request(
        kwargs,
        model=model if isinstance(model, str) else None,
        provider=genai.provider_of_litellm(provider if isinstance(provider, str) else None),
        address=address,
        port=port,
    )


def _recording_of_litellm(target: _Target, _args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Recording:
    litellm = target.owner
    current = litellm.__dict__.get(target.name)
    if others.is_suppressed() or others.is_recorded(current, target.original):
        return _Recording(THEIRS)
    hears = others.litellm_callback(litellm)
    if hears and (kwargs.get("stream") or others.callback_has_spans_of_its_own()):
        return _Recording(THEIRS, hears=True)
    if others.openai_is_recorded():
        return _Recording(LATER)
    return _Recording(OURS, shields=hears)


def _tell_parent(stream: Any, parent: Any) -> None:
    """Tell LiteLLM's callback where its span of a streamed call belongs.

    It makes the span when the stream is over, in a thread without a context. What it is told is kept beside
    the request, and is sent to nobody.
    """
    details: Any = stream.logging_obj.model_call_details["litellm_params"]
    details["metadata"] = {**(details.get("metadata") or {}), "litellm_parent_otel_span": parent}
