"""A store of files in memory, which fails when a test wants it to. Main type: ``MemoryStore``. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.files import ChangedException, Found, GoneException, Store


class MemoryStore(Store):
    """A place for files in memory, for tests of connectors that write files.

    Attributes:
        files: What is there: the bytes of each key.
        changes: How many calls have changed something, or tried to: ``put``, ``create_if_absent``,
            ``delete`` and ``move``.

    Source: Penstock's own.

    >>> import io
    >>> store = MemoryStore()
    >>> store.fail(1, OSError("killed"), behind=True)
    >>> store.put("a/b", io.BytesIO(b"x"), 1)
    Traceback (most recent call last):
    OSError: killed
    >>> store.files
    {'a/b': b'x'}
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.changes = 0
        self._versions: dict[str, int] = {}
        self._faults: dict[int, tuple[BaseException, bool]] = {}
        self._lock = threading.RLock()

    def fail(self, number: int, error: BaseException, *, behind: bool = False) -> None:
        """Lets a change that comes fail.

        Args:
            number: The number of the change, counted from the next one, which is 1.
            error: The error: ``RetriableException`` for an unreachable store, any other for a kill.
            behind: True to raise it after the change.
        """
        with self._lock:
            self._faults[self.changes + number] = (error, behind)

    def put(self, key: str, data: BinaryIO, size: int) -> None:
        """See ``Store``."""
        content = data.read()
        self._change(lambda: self._set(key, content))

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """See ``Store``."""

        def create() -> bool:
            is_new = key not in self.files
            if is_new:
                self._set(key, data)
            return is_new

        return bool(self._change(create))

    def list_from(self, directory: str, start: str) -> Iterator[str]:
        """See ``Store``."""
        prefix = f"{directory}/" if directory else ""
        with self._lock:
            names = sorted(key.removeprefix(prefix) for key in self.files if key.startswith(prefix))
        yield from (name for name in names if name >= start and "/" not in name)

    def delete(self, key: str) -> None:
        """See ``Store``."""
        self._change(lambda: self.files.pop(key, None))

    def end_unfinished(self, directory: str, starts: tuple[str, ...]) -> int:
        """See ``Store``: there are none."""
        return 0

    def check(self) -> None:
        """See ``Store``: it is there."""

    def walk(self, skip: Callable[[str], bool], below: str = "") -> Iterator[Found]:
        """See ``Store``."""
        for key in sorted(self.files):
            parents = key.split("/")[:-1]
            if key.startswith(below and f"{below}/") and not any(
                skip("/".join(parents[:end])) for end in range(1, len(parents) + 1)
            ):
                yield self.look_at(key)

    def look_at(self, key: str) -> Found:
        """See ``Store``."""
        with self._lock:
            if key not in self.files:
                raise GoneException(f"{key} is gone")
            return Found(key, len(self.files[key]), self._versions[key], str(self._versions[key]))

    def open(self, found: Found) -> Any:
        """See ``Store``."""
        with self._lock:
            if self.look_at(found.key) != found:
                raise ChangedException(f"{found.key} was changed")
            return pa.BufferReader(self.files[found.key])

    def move(self, key: str, target: str) -> None:
        """See ``Store``."""

        def move() -> None:
            if key in self.files:
                self._set(target, self.files.pop(key))

        self._change(move)

    def _set(self, key: str, data: bytes) -> None:
        self.files[key] = data
        self._versions[key] = self._versions.get(key, 0) + 1

    def _change(self, change: Callable[[], Any]) -> Any:
        with self._lock:
            self.changes += 1
            error, behind = self._faults.pop(self.changes, (None, False))
            found = change() if error is None or behind else None
            if error is not None:
                raise error
            return found
