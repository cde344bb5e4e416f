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
        self._replaced: list[tuple[type, str, Any, Any]] = []
        self._restores: list[Callable[[], None]] = []

    def on_restore(self, restore: Callable[[], None]) -> None:
        """Call this too when the patches are taken back."""
        self._restores.append(restore)

    def wrap(self, cls: type, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace a method, inherited or not, by ``wrapper(method)``.

        Raises:
            AttributeError: The class has no such method.
        """
        self.replace(cls, name, wrapper(getattr(cls, name)))

    def replace(self, cls: type, name: str, ours: Any) -> None:
        """Put an attribute of ours on a class."""
        original = cls.__dict__.get(name)
        setattr(cls, name, ours)
        self._replaced.append((cls, name, original, ours))

    def restore(self) -> None:
        """Put the original methods back, where nobody has patched over ours."""
        self.active = False
        for cls, name, original, ours in reversed(self._replaced):
            if cls.__dict__.get(name) is not ours:
                continue
            if original is None:  # it was inherited
                delattr(cls, name)
            else:
                setattr(cls, name, original)
        self._replaced.clear()
        for restore in reversed(self._restores):
            restore()
        self._restores.clear()
