"""What a sender is told of an answer of the next hop."""

from typing import Final

from otel_loopeval.server.http.replies import Reply, refused
from otel_loopeval.server.next_hop.hop_connection import BUSY

RETRIED: Final = frozenset({429, 502, 503, 504})
"""What OTLP has a sender try again after."""
_OURS: Final = frozenset({401, 403, 404, 405, 407})
"""What the next hop says of our own set-up, and not of what came in."""
_PAGE: Final = b"text/html"


def is_taken(answer: Reply) -> bool:
    """Whether the next hop has it. Who answers with a web page took nothing for what it is."""
    return 200 <= answer.status < 300 and not answer.content_type.lower().startswith(_PAGE)  # noqa: PLR2004


def is_for_good(answer: Reply) -> bool:
    """Whether the next hop will not have it, however often it is sent."""
    return 400 <= answer.status < 500 and answer.status not in RETRIED  # noqa: PLR2004


def passed_on(answer: Reply, retry_after: bytes) -> Reply:
    """What a sender is told.

    Args:
        answer: The answer of the next hop; its status is 0 if there was none.
        retry_after: Seconds after which to try again where the next hop says nothing of it.
    """
    status = answer.status
    if is_taken(answer):
        return Reply(200, answer.body, answer.content_type)
    if is_for_good(answer) and status not in _OURS:
        return Reply(status, answer.body, answer.content_type or b"text/plain")
    if status == 429:  # noqa: PLR2004
        return refused(429, "the next hop is busy", answer.retry_after or retry_after)
    if answer is BUSY:
        return refused(503, "too much at once", b"1")
    return refused(503, f"the next hop {what_is_wrong(answer)}", answer.retry_after or retry_after)


def what_is_wrong(answer: Reply) -> str:
    """What the next hop does that did not take something."""
    if not answer.status:
        return "does not answer"
    if 200 <= answer.status < 300:  # noqa: PLR2004
        return "answers with a web page, and not as OTLP does"
    return f"says {answer.status}"


def is_told_elsewhere(answer: Reply) -> bool:
    """Whether what is wrong is for the sender to know, and not for who runs the server."""
    return answer is BUSY or (is_for_good(answer) and answer.status not in _OURS)
