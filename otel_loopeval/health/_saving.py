"""Results files: path templates, and writing a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_loopeval.health.result import LoopHealthResult

_ALLOWED = ("name", "eval_id")


class SaveResultsError(OSError):
    """A verdict was reached but could not be saved.

    Attributes:
        path: Where it should have gone: the file, or the template if that cannot be filled in.
        result: The verdict.
        errno: Error number of the cause, where it has one.
    """

    def __init__(self, message: str, path: str, result: "LoopHealthResult", errno: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.result = result
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions come back from worker processes by their message alone, unless told otherwise.
        return type(self), (str(self), self.path, self.result, self.errno)


def check_template(template: str) -> None:
    """Check that a path template has no placeholder but ``{name}`` and ``{eval_id}``.

    Raises:
        ValueError: It has another one, or is malformed; the message says which and what is allowed.
    """
    try:
        unknown = [f"{{{name}}}" for name in _placeholders(template) if name not in _ALLOWED]
        problem = f"unknown placeholder {unknown[0]}" if unknown else None
        if problem is None:
            template.format(name="", eval_id="")
    except ValueError as error:
        problem = str(error)
    if problem is not None:
        raise ValueError(
            f"save_results_path={template!r}: {problem};"
            " allowed are {name} and {eval_id} (write {{ and }} for braces)"
        )


def _placeholders(template: str) -> Iterator[str]:
    from string import Formatter  # noqa: PLC0415 - most evaluators save nothing

    for _, placeholder, format_spec, _ in Formatter().parse(template):
        if placeholder is not None:
            yield placeholder
            yield from _placeholders(format_spec or "")


def save(result: "LoopHealthResult", template: str, *, name: str, eval_id: str) -> None:
    """Write a result as JSON, whole or not at all, and make the folders it needs.

    Args:
        result: What to write.
        template: Path of the file, with the placeholders ``{name}`` and ``{eval_id}``.
        name: Name of the evaluation.
        eval_id: Identifier of the evaluation.

    Raises:
        SaveResultsError: It could not be written. The message names path and cause.
    """
    path = template
    try:
        check_template(template)
        path = template.format(name=name, eval_id=eval_id)
        _write(path, result.to_json() + "\n")
    except (OSError, ValueError) as error:
        cause, errno = (error.strerror, error.errno) if isinstance(error, OSError) else (str(error), None)
        message = f"cannot save the results to {path!r}: {cause or error}"
        raise SaveResultsError(message, path, result, errno) from error


def _write(path: str, text: str) -> None:
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or pipe cannot be replaced, and must not be; a folder raises here.
        with target.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    # The file behind a link is replaced, not the link.
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own, short enough for any folder; created with the user's umask, as open() would.
    temporary = target.parent / f".loopeval-{os.urandom(8).hex()}.tmp"
    try:
        with temporary.open("x", encoding="utf-8") as stream:
            stream.write(text)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
