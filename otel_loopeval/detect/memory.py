"""What was seen before, in bounded memory and constant time.

Two generations: what is seen goes into the young one; when it is full it becomes the old one and the older
one is forgotten. So at least ``capacity`` and at most twice as many of the last distinct entries are known.
"""


class Sightings:
    """A bounded mapping of 64-bit keys to integers.

    Args:
        capacity: Entries of one generation.

    Attributes:
        young: The younger generation.
        old: The older one.
    """

    __slots__ = ("_capacity", "old", "young")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.young: dict[int, int] = {}
        self.old: dict[int, int] = {}

    def get(self, key: int) -> int | None:
        """Look an entry up.

        Args:
            key: Key of the entry.

        Returns:
            Its value, or ``None`` if it is not known (any more).
        """
        value = self.young.get(key)
        return self.old.get(key) if value is None else value

    def put(self, key: int, value: int) -> None:
        """Remember an entry.

        Args:
            key: Key of the entry.
            value: What to remember.
        """
        young = self.young
        if len(young) >= self._capacity and key not in young:
            self.old = young
            self.young = young = {}
        young[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self.young = {}
        self.old = {}
