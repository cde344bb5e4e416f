"""Does a call only look, or may it change something?

After a change, looking again is verification and no repetition. The names of tools and the first words of
shell commands tell; what neither tells is taken to change something, so that doubt never makes an alarm.
"""

import re
from functools import lru_cache
from typing import Final

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOOKING: Final = _words(
    "analyze browse cat check describe diff dir discover display explore extract fetch file find "
    "get glob goto grep head help info inspect introspect lint list load locate lookup look ls "
    "navigate observe open peek ping preview print query read recall resolve retrieve review scan "
    "screenshot scroll search select show stat status summary tail test tests think tree validate "
    "verify version view visit wc where which who"
)
_CHANGING: Final = _words(
    "add append apply approve assign book build buy call cancel change checkout clear click close "
    "commit compile copy create delete deploy disable drag drop edit enable enter fill fix format "
    "generate insert install kill make mark merge mkdir modify move mutate patch pay post press "
    "publish purge push put rebase reboot remove rename replace reset restart restore return "
    "revert rm save schedule send set sign start stop store submit suggest sync terminate toggle "
    "touch transfer type unset update upgrade upload write"
)
_BY_NATURE: Final = _words("scroll swipe key keys keyboard keypress next step advance page")
_SHELLS: Final = _words(
    "bash cmd command console exec execute powershell run shell sh ssh subprocess terminal zsh"
)
_LOOKING_COMMAND: Final = re.compile(
    r"""
    (?:[\w-]+=)?\s*(?:cd\s+[^;&|]+(?:&&|;)\s*)?
    (?:cat|ls|e?grep|rg|find|head|tail|pwd|wc|which|file|stat|tree|du|df|ps|env|whoami|date|echo|printenv|diff|less
      |git\s+(?:status|log|diff|show|branch|blame|grep|ls-files|remote)
      |(?:kubectl|docker)\s+(?:get|describe|logs|ps|inspect)
      |(?:python\d?\s+-m\s+)?(?:pytest|unittest)|tox|ctest
      |(?:npm|yarn|pnpm|cargo|go|mvn|make|dotnet)\s+(?:run\s+)?(?:test|lint|check))
    \b(?![^|]*(?:(?<![2&])>(?!&)|\s-i\b|-delete\b|\|\s*(?:xargs|tee|sh|bash)\b))
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=512)
def looks_by_name(tool: str) -> bool | None:
    """Whether the name of a tool says that it changes nothing.

    Args:
        tool: Name of the tool, at most 200 characters of it.

    Returns:
        The answer, or ``None`` for a shell, whose command decides.
    """
    words = [word.lower() for word in _WORDS.findall(tool)]
    # The verb usually leads: the first word that tells decides.
    for word in words:
        if word in _LOOKING:
            return True
        if word in _CHANGING:
            return False
    return None if any(word in _SHELLS for word in words) else False


@lru_cache(maxsize=512)
def repeated_by_nature(tool: str) -> bool:
    """Whether doing the same again is what a tool is for: to scroll, to press a key, to turn a page.

    Args:
        tool: Name of the tool, at most 200 characters of it.
    """
    return any(word.lower() in _BY_NATURE for word in _WORDS.findall(tool))


def command_looks(arguments: str) -> bool:
    """Whether a shell command changes nothing.

    Args:
        arguments: Canonical text of the arguments, which holds the command.
    """
    return _LOOKING_COMMAND.match(arguments, 0, 1000) is not None
