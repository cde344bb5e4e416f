"""Reading a result: does it tell of a failure, of an outage, of something still under way?

Telemetry often carries a failure as the text of a result, so the beginning of the text is read where no
error is given. Each test is a regular expression over a few hundred characters.
"""

import re
from functools import lru_cache
from typing import Final

_HEAD: Final = 240
_MARKS: Final = " \t\r\n.,:;!?*#-=>~_'\"`([{<|/\\"
_WAIT_S: Final = 5

_FAILURE: Final = re.compile(
    r"""
    ^\W*(?:error|exception)\b(?!["']?\ ?[:=]\ ?(?:null|none|false|0\b|""|\[\]|\{\}))
  | ^\W*(?:traceback|fatal|failed|failure|invalid|unknown|cannot|could\ not|couldn't|unable|denied|no\ such
        |not\ found|permission\ denied|timed?\ ?out)\b
  | ^\W*(?:usage|bash|sh):\ | \b(?:error|exception|failure)(?:\ code)?\ ?:\ | \w(?:error|exception):\s
  | \btraceback\ \(most\ recent | \berror=(?!none|false|0\b|null)
  | \bis_?error\W{1,4}true | \b(?:success|ok)\W{1,4}false | \bstatus\W{1,4}(?:error|fail)
  | \b(?:exit(?:ed)?(?:\ with)?(?:\ ?code|\ status)?|return(?:ed)?\ ?code)[\ :=]{1,2}-?[1-9]
  | \bhttp(?:/\S+)?\ [45]\d\d | \bcommand\ not\ found | \bno\ such\ file
    """,
    re.VERBOSE,
)
# Every match of the expression begins with one of these, or holds a word that is looked for first.
_FAILURE_STARTS: Final = (
    *("cannot", "could", "denied", "fatal", "invalid", "unable", "unknown", "usage:", "bash:", "sh:"),
    *("permission", "time"),
)
_OUTAGE: Final = re.compile(
    r"""
    \b(?:429|500|502|503|504|529)\b | rate.?limit | too\ many\ requests | throttl | quota | overloaded
  | \b(?:service|temporarily|server)\s+(?:is\s+)?(?:temporarily\s+)?(?:unavailable|busy|overloaded)
  | \bunavailable\b | bad\ gateway | gateway\ time-?out | internal\ server\ error
  | connection\ (?:refused|reset|aborted|closed|error|timed\ out) | \btime(?:d\s)?-?\s?out\b
  | \beconn(?:refused|reset)
    """,
    re.VERBOSE,
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
    head = text[:_HEAD].lower()
    # A dozen searches for a word are faster than one for the expression, and written out than in a loop.
    suspicious = (
        "err" in head
        or "fail" in head
        or "exception" in head
        or "not found" in head
        or "no such" in head
        or "exit" in head
        or "return" in head
        or "http" in head
        or "false" in head
        or "traceback" in head
        or head.lstrip(_MARKS).startswith(_FAILURE_STARTS)
    )
    return suspicious and _FAILURE.search(head) is not None


def looks_like_outage(text: str) -> bool:
    """Whether an error is the other side's fault and may pass: a rate limit, a 5xx, a timeout.

    Args:
        text: The error; its first 240 characters are looked at.
    """
    return _OUTAGE.search(text[:_HEAD].lower()) is not None


def looks_pending(text: str) -> bool:
    """Whether a result says that something is still under way.

    Args:
        text: The result; its first 240 characters are looked at.
    """
    return _PENDING.search(text, 0, _HEAD) is not None


@lru_cache(maxsize=256)
def named_wait(tool: str) -> bool:
    """Whether a tool is called a wait.

    Args:
        tool: Name of the tool, at most 200 characters of it.
    """
    return _WAIT_NAME.search(_WAIT_WORDS.sub("_", tool)) is not None


def sleeps(arguments: str) -> bool:
    """Whether a command sleeps for five seconds or more.

    Args:
        arguments: Canonical text of the arguments; its first 2,000 characters are looked at.
    """
    if "sleep" not in arguments:
        return False
    found = _SLEEP_COMMAND.search(arguments, 0, 2000)
    return found is not None and int(found[1][:9]) >= _WAIT_S
