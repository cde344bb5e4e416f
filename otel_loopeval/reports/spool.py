"""Text that is written before what has to come first is known."""

import shutil
from tempfile import SpooledTemporaryFile
from typing import Final, TextIO

_IN_MEMORY: Final = 4 * 1024 * 1024


class Spool:
    """Keeps text, a lot of it in a temporary file.

    Attributes:
        written: Whether there is any.
    """

    def __init__(self) -> None:
        self.written = False
        # Closed by pour(), or by its own finalizer where the report is given up.
        self._file = SpooledTemporaryFile(  # noqa: SIM115
            _IN_MEMORY, "w+", encoding="utf-8", errors="backslashreplace", newline=""
        )

    def write(self, text: str) -> None:
        """Add text."""
        self.written = True
        self._file.write(text)

    def pour(self, out: TextIO) -> None:
        """Write all of it to a stream, and forget it."""
        with self._file as file:
            file.seek(0)
            shutil.copyfileobj(file, out)
