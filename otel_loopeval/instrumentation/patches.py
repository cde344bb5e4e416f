"""Patches of single methods, in place and reversible."""

from collections.abc import Callable
from typing import Any


class Patches:
    """Patches that were put in place together.

    Attributes:
        active: Whether they should do anything: a patch that somebody has patched over stays in place.
    """

    def __init__(self) -> None:
        self.active = True
        self._patched: list[tuple[type, str, Any, Any]] = []

    def wrap(self, cls: type, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace a method by ``wrapper(method)``.

        Raises:
            AttributeError: The class has no such method.
        """
        original = cls.__dict__.get(name) or getattr(cls, name)
        ours = wrapper(original)
        setattr(cls, name, ours)
        self._patched.append((cls, name, cls.__dict__.get(name) and original, ours))

    def restore(self) -> None:
        """Put the original methods back, where nobody has patched over ours."""
        self.active = False
        for cls, name, original, ours in reversed(self._patched):
            if cls.__dict__.get(name) is ours:
                setattr(cls, name, original)
        self._patched.clear()
