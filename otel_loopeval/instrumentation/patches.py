"""Patches of single methods and functions, in place and reversible."""

from collections.abc import Callable
from typing import Any


class Patches:
    """Patches that were put in place together.

    Attributes:
        active: Whether they should do anything: a patch that somebody has patched over stays in place.
    """

    def __init__(self) -> None:
        self.active = True
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._restores: list[Callable[[], None]] = []

    def on_restore(self, restore: Callable[[], None]) -> None:
        """Call this too when the patches are taken back."""
        self._restores.append(restore)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace a method of a class, inherited or not, or a function of a module, by ``wrapper(it)``.

        Raises:
            AttributeError: The class or module has none of that name.
        """
        self.replace(owner, name, wrapper(getattr(owner, name)))

    def replace(self, owner: Any, name: str, ours: Any) -> None:
        """Put an attribute of ours on a class or module."""
        original = owner.__dict__.get(name)
        setattr(owner, name, ours)
        self._replaced.append((owner, name, original, ours))

    def restore(self) -> None:
        """Put the original methods back, where nobody has patched over ours."""
        self.active = False
        for owner, name, original, ours in reversed(self._replaced):
            if owner.__dict__.get(name) is not ours:
                continue
            if original is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._replaced.clear()
        for restore in reversed(self._restores):
            restore()
        self._restores.clear()
