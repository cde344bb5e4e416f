"""Verdicts on their way to the next hop."""

import logging
from collections import deque
from typing import Final

from otel_loopeval.server.http.replies import PROTOBUF
from otel_loopeval.server.next_hop.forwarding import Forwarder
from otel_loopeval.server.next_hop.passing_on import is_for_good, is_taken
from otel_loopeval.server.next_hop.verdicts import verdict_request
from otel_loopeval.server.served import ServedRun

_MAX_WAITING: Final = 10_000
_A_REQUEST: Final = 500

_log: Final = logging.getLogger("otel_loopeval.serve")


class Telling:
    """Tells the next hop the verdicts; they wait where it is away.

    Args:
        forwarder: Sends to the next hop; None where there is none to be told.

    Attributes:
        lost: Verdicts that the next hop did not take.
    """

    def __init__(self, forwarder: Forwarder | None) -> None:
        self.lost = 0
        self._forwarder = forwarder
        self._waiting: deque[ServedRun] = deque()

    def add(self, served: ServedRun) -> None:
        """A run is over. Of very many that wait, the latest do."""
        if self._forwarder is None:
            return
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(served)

    async def send(self) -> bool:
        """Send what waits.

        Returns:
            Whether nothing is left.
        """
        waiting = self._waiting
        while waiting and self._forwarder is not None:
            count = min(len(waiting), _A_REQUEST)
            batch = [waiting.popleft() for _ in range(count)]
            try:
                answer = await self._forwarder.ask(b"/v1/traces", PROTOBUF, b"", self._encoded(batch))
            except BaseException:  # such as a cancellation: they are told the next time
                waiting.extendleft(reversed(batch))
                raise
            if is_taken(answer):
                continue
            if is_for_good(answer):
                self.lost += count
                continue
            room = _MAX_WAITING - len(waiting)
            self.lost += max(count - room, 0)
            waiting.extendleft(reversed(batch[max(count - room, 0) :]))
            return False
        return True

    def _encoded(self, batch: list[ServedRun]) -> bytes:
        try:
            return verdict_request(batch)
        except Exception:  # noqa: BLE001 - whatever is wrong with one, the others are told
            # Of messages, the bytes of one after the other are their sum.
            return b"".join(map(self._encoded_alone, batch))

    def _encoded_alone(self, served: ServedRun) -> bytes:
        try:
            return verdict_request([served])
        except Exception:  # noqa: BLE001 - as above
            self.lost += 1
            _log.exception("the verdict of a run cannot be told; going on")
            return b""

    def give_up(self) -> None:
        """What waits still is lost: we end."""
        self.lost += len(self._waiting)
        self._waiting.clear()
