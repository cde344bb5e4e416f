"""Nested attributes → dotted names, as the conventions have them."""

from typing import Any, cast

from otel_loopeval.otlp.misfit import Misfit
from otel_loopeval.otlp.values import MAX_NESTING, read_object


def flat_attributes(value: Any) -> dict[str, Any]:
    """The attributes in an object, however nested; null is none.

    Objects in objects become dotted names (``llm.model_name``), objects in lists get their index
    (``llm.input_messages.0.message``), and plain lists stay lists. Nulls are left out.

    Raises:
        Misfit: It is no object, or nested too deeply.
    """
    attributes: dict[str, Any] = {}
    if value is not None:
        for key, item in read_object(value).items():
            flatten(item, attributes, key)
    return attributes


def flatten(value: Any, into: dict[str, Any], key: str, depth: int = 0) -> None:
    """Add one attribute.

    Args:
        value: Its value, ``depth`` others around it.
        into: Where it is added, under one name or several.
        key: Its name.
        depth: How many values it is in.

    Raises:
        Misfit: It is nested too deeply.
    """
    if value is None:
        return
    if depth > MAX_NESTING:
        raise Misfit(f"values in at most {MAX_NESTING} others", value)
    if isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            flatten(item, into, f"{key}.{name}", depth + 1)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if any(isinstance(item, dict | list) for item in items):
            for index, item in enumerate(items):
                flatten(item, into, f"{key}.{index}", depth + 1)
        else:
            into[key] = tuple(items)
    else:
        into[key] = value
