"""Streams of a model's answer that are watched while the program reads them."""

import functools
from typing import Any, Protocol

import wrapt


class Watcher(Protocol):
    """Whoever is told of a stream. Its methods raise nothing."""

    def add(self, chunk: Any) -> None:
        """A chunk was read."""

    def end(self, error: BaseException | None = None) -> None:
        """The stream is over, was closed, or raised; may be told more than once."""


def watched(stream: Any, watcher: Watcher) -> Any:
    """A stream that passes everything on, and tells of it.

    It is the stream itself in all else, its type included. Nobody but the stream holds the watcher: when the
    stream is given up, so is the watcher.

    Args:
        stream: What an SDK returned: to be read by ``for``, ``async for``, or either.
        watcher: Is told.
    """
    reads, reads_async = hasattr(stream, "__iter__"), hasattr(stream, "__aiter__")
    if reads and reads_async:
        return _EitherStream(stream, watcher)
    return _AsyncStream(stream, watcher) if reads_async else _SyncStream(stream, watcher)


_Proxy: Any = wrapt.ObjectProxy  # pyright: ignore[reportUnknownMemberType] # typed in some versions only


class _Stream(_Proxy):
    """What streams of either kind have in common."""

    def __init__(self, stream: Any, watcher: Watcher) -> None:
        super().__init__(stream)  # pyright: ignore[reportUnknownMemberType] # as above
        self._self_watcher = watcher
        self._self_iterator: Any = None

    def __getattr__(self, name: str) -> Any:
        value: Any = getattr(self.__wrapped__, name)
        if name not in ("close", "aclose"):
            return value
        watcher = self._self_watcher

        @functools.wraps(value)
        def closing() -> Any:  # awaitable where the stream's own method is
            try:
                return value()
            finally:
                watcher.end()

        return closing


class _Sync(_Stream):
    def __iter__(self) -> Any:
        self._self_iterator = iter(self.__wrapped__)
        return self

    def __next__(self) -> Any:
        if self._self_iterator is None:
            self._self_iterator = iter(self.__wrapped__)
        try:
            chunk = next(self._self_iterator)
        except StopIteration:
            self._self_watcher.end()
            raise
        except BaseException as error:
            self._self_watcher.end(error)
            raise
        self._self_watcher.add(chunk)
        return chunk

    def __enter__(self) -> Any:
        self.__wrapped__.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> Any:
        try:
            return self.__wrapped__.__exit__(kind, error, traceback)
        finally:
            self._self_watcher.end(error)


class _Async(_Stream):
    def __aiter__(self) -> Any:
        self._self_iterator = self.__wrapped__.__aiter__()
        return self

    async def __anext__(self) -> Any:
        if self._self_iterator is None:
            self._self_iterator = self.__wrapped__.__aiter__()
        try:
            chunk = await self._self_iterator.__anext__()
        except StopAsyncIteration:
            self._self_watcher.end()
            raise
        except BaseException as error:
            self._self_watcher.end(error)
            raise
        self._self_watcher.add(chunk)
        return chunk

    async def __aenter__(self) -> Any:
        await self.__wrapped__.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> Any:
        try:
            return await self.__wrapped__.__aexit__(kind, error, traceback)
        finally:
            self._self_watcher.end(error)


class _SyncStream(_Sync):
    pass


class _AsyncStream(_Async):
    pass


class _EitherStream(_Sync, _Async):
    pass
