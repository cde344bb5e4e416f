"""One entry of what was seen before: a call, what it last brought, and how often. Packed into one integer.

A run keeps hundreds of these within a small budget, and an integer of 200 bits takes a quarter of the room
of a tuple.
"""

from typing import Final, NamedTuple

MASK64: Final = 0xFFFF_FFFF_FFFF_FFFF
_MASK16: Final = 0xFFFF
_MASK32: Final = 0xFFFF_FFFF


class Sighting(NamedTuple):
    """A call that was seen.

    Attributes:
        total: Sightings with whatever result, up to 65,535.
        times: Sightings with the last result while nothing changed, up to 65,535.
        epoch: Epoch of the agent in which these were (it grows when something changes), modulo 65,536.
        volatile: Whether ``got`` is the hash of a normalised result.
        first: Index of the first step of ``times``.
        ordinal: Ordinal of the unit of the last sighting in its agent.
        got: Hash of the last result, 64 bits; 0 where it is not known.
    """

    total: int
    times: int
    epoch: int
    volatile: bool
    first: int
    ordinal: int
    got: int

    def pack(self) -> int:
        """Pack into an integer."""
        return (
            min(self.total, _MASK16)
            | min(self.times, _MASK16) << 16
            | (self.epoch & _MASK16) << 32
            | self.volatile << 48
            | (self.first & _MASK32) << 49
            | (self.ordinal & _MASK32) << 81
            | self.got << 113
        )

    @classmethod
    def unpack(cls, packed: int) -> "Sighting":
        """Read what :meth:`pack` wrote."""
        return cls(
            packed & _MASK16,
            packed >> 16 & _MASK16,
            packed >> 32 & _MASK16,
            bool(packed >> 48 & 1),
            packed >> 49 & _MASK32,
            packed >> 81 & _MASK32,
            packed >> 113,
        )

    def in_epoch(self, epoch: int) -> bool:
        """Whether nothing changed since: the epoch is still the same."""
        return self.epoch == epoch & _MASK16


def pack_first(epoch: int, first: int, ordinal: int, got: int) -> int:
    """Pack the first sighting of a call: the common case, without a :class:`Sighting` in between."""
    return (
        0x1_0001 | (epoch & _MASK16) << 32 | (first & _MASK32) << 49 | (ordinal & _MASK32) << 81 | got << 113
    )
