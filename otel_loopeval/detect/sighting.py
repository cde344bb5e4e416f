"""One entry of what was seen before: a call, what it last brought, and how often. Packed into one integer.

A run keeps hundreds of these within a small budget, and an integer of 200 bits takes a quarter of the room
of a tuple.
"""

from typing import Final, NamedTuple

MASK64: Final = 0xFFFF_FFFF_FFFF_FFFF
MARK: Final = 0xFFFF_FFFF_FFFF
_MASK16: Final = 0xFFFF
_MASK32: Final = 0xFFFF_FFFF


class Sighting(NamedTuple):
    """A call that was seen.

    Attributes:
        total: Sightings with whatever result, up to 65,535.
        times: Sightings with the last result while nothing changed, up to 65,535.
        volatile: Whether ``got`` is the hash of a normalised result.
        first: Index of the first step of ``times``.
        mark: Mark of the agent at the last sighting: see :attr:`~otel_loopeval.detect.lane.Lane.mark`.
        got: Hash of the last result, 64 bits; 0 where it is not known.
    """

    total: int
    times: int
    volatile: bool
    first: int
    mark: int
    got: int

    def pack(self) -> int:
        """Pack into an integer."""
        return (
            min(self.total, _MASK16)
            | min(self.times, _MASK16) << 16
            | self.volatile << 32
            | (self.first & _MASK32) << 33
            | (self.mark & MARK) << 65
            | self.got << 113
        )

    @classmethod
    def unpack(cls, packed: int) -> "Sighting":
        """Read what :meth:`pack` wrote."""
        return cls(
            packed & _MASK16,
            packed >> 16 & _MASK16,
            bool(packed >> 32 & 1),
            packed >> 33 & _MASK32,
            packed >> 65 & MARK,
            packed >> 113,
        )

    def units_since(self, mark: int) -> int | None:
        """Count the units since the last sighting.

        Args:
            mark: The agent's mark now.

        Returns:
            Units, or ``None`` if something changed since.
        """
        return (mark >> 16) - (self.mark >> 16) if (mark ^ self.mark) & _MASK16 == 0 else None


def pack_first(first: int, mark: int, got: int) -> int:
    """Pack the first sighting of a call: the common case, without a :class:`Sighting` in between.

    Args:
        first: Index of the step.
        mark: The agent's mark.
        got: Hash of the result.

    Returns:
        What ``Sighting(1, 1, False, first, mark, got).pack()`` returns.
    """
    return ((got << 48 | mark & MARK) << 32 | first & _MASK32) << 33 | 0x1_0001
