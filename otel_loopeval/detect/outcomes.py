"""Reading a result: does it tell of a failure, of an outage, of something still under way?

Telemetry often carries a failure as the text of a result, so the beginning of the text is read where no
error is given. Each test is a regular expression over a few hundred characters.
"""

import re
from typing import Any, Final

_HEAD: Final = 240
_WAIT_S: Final = 5

_FAILURE: Final = re.compile(
    r"""
    ^\W*(?:error|exception|traceback|fatal|failed|failure|invalid|unknown|cannot|could\ not|couldn't|unable
        |denied|no\ such|not\ found|permission\ denied|timed?\ ?out|usage:|bash:|sh:)\b
  | \b(?:error|exception|failure)(?:\ code)?\ ?: | \w(?:Error|Exception):\ | \btraceback\ \(most\ recent
  | \berror=(?!None|False|0\b|null) | \b(?:success|ok)=False | \bis_error=True
  | \b(?:exit|exited|return)(?:ed|ed\ with|\ with)?(?:\ code|\ status|code)?[\ :=]{1,2}-?[1-9]
  | \bhttp(?:/\S+)?\ [45]\d\d | \bcommand\ not\ found | \bno\ such\ file
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OUTAGE: Final = re.compile(
    r"""
    \b(?:429|500|502|503|504|529)\b | rate.?limit | too\ many\ requests | throttl | quota | overloaded
  | \b(?:service|temporarily|server)\s+(?:is\s+)?(?:temporarily\s+)?(?:unavailable|busy|overloaded)
  | \bunavailable\b | bad\ gateway | gateway\ time-?out | internal\ server\ error
  | connection\ (?:refused|reset|aborted|closed|error|timed\ out) | \btime(?:d\s)?-?\s?out\b
  | \beconn(?:refused|reset)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PENDING: Final = re.compile(
    r"\b(?:pending|running|in.progress|queued|waiting|processing|starting|building|deploying"
    r"|not (?:yet )?ready|still|scheduled|provisioning|initiali[sz]ing|no new)\b",
    re.IGNORECASE,
)
_WAIT_NAME: Final = re.compile(
    r"(?:^|[^a-z])(?:wait|sleep|delay|pause|backoff|await)(?:$|[^a-z])", re.IGNORECASE
)
_WAIT_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SLEEP_COMMAND: Final = re.compile(r"(?:^|[\s;&|(=])(?:sleep\s+|time\.sleep\()(\d+)")


def looks_failed(text: str) -> bool:
    """Whether the text of a result tells of a failure.

    Args:
        text: The result; its first 240 characters are looked at.
    """
    return _FAILURE.search(text, 0, _HEAD) is not None


def looks_like_outage(text: str) -> bool:
    """Whether an error is the other side's fault and may pass: a rate limit, a 5xx, a timeout.

    Args:
        text: The error; its first 240 characters are looked at.
    """
    return _OUTAGE.search(text, 0, _HEAD) is not None


def looks_pending(text: str) -> bool:
    """Whether a result says that something is still under way.

    Args:
        text: The result; its first 240 characters are looked at.
    """
    return _PENDING.search(text, 0, _HEAD) is not None


def waits(tool: str, arguments: Any) -> bool:
    """Whether a call waits on purpose: a tool called so, or a command that sleeps for five seconds or more.

    Args:
        tool: Name of the tool.
        arguments: Canonical text of the arguments.
    """
    if _WAIT_NAME.search(_WAIT_WORDS.sub("_", tool)):
        return True
    if isinstance(arguments, str):
        found = _SLEEP_COMMAND.search(arguments, 0, 2000)
        return found is not None and int(found[1][:9]) >= _WAIT_S
    return False
