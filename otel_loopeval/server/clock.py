"""The time in which the server ran: what others may take is measured with it."""

import time
from typing import Final

_MOST_S: Final = 1.0


class RunningClock:
    """Seconds in which we ran, as of the last tick.

    While the machine stood still, or we did, answers may have come that nobody took: then nobody was slow.

    Attributes:
        now: The seconds. A plain attribute, since it is read for each request.
    """

    __slots__ = ("_last", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._last = time.monotonic()

    def tick(self) -> None:
        """Go on. To be called about twice a second."""
        last, self._last = self._last, time.monotonic()
        self.now += min(self._last - last, _MOST_S)
