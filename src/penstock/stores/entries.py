"""The entries of an offset store, where keys that are equal as JSON are one key.

Main type: `OffsetEntries`; `key_identity` says what makes two keys the same one. In JSON the order of names means
nothing, but Java looks a key up by its bytes. So a value goes under the spelling that is stored already, where whoever
wrote that finds it again, and it is found whatever spelling is asked for.

Thread: owned by a store, which guards it with its lock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import orjson

logger = logging.getLogger(__name__)


def key_identity(key: bytes) -> bytes:
    """Returns the identity that equal keys share: the JSON with its names in order. A key that is not JSON is its own.

    >>> key_identity(b'["c",{"table":"t","db":"x"}]')
    b'["c",{"db":"x","table":"t"}]'
    >>> key_identity(b"other")
    b'other'
    """
    try:
        identity = orjson.dumps(orjson.loads(key), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return key
    # A copy: what the encoder returns holds on to its buffer of some kilobytes.
    return bytes(memoryview(identity))


class OffsetEntries:
    """A map from keys to values that keeps the spelling under which each key was first stored. Invariant 5.

    A file may hold one key in several spellings, written by workers that compare bytes. Each is read as it is until its
    key is next written: then the first one in the file has the new value, and the others are removed.

    Args:
        entries: what was stored, in the order of the file.
    """

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self._values: dict[bytes, bytes] = {}
        # Only of keys whose spelling is not their identity or that have several: most have neither, and cost nothing.
        self._spellings: dict[bytes, tuple[bytes, ...]] = {}
        self.apply(entries or {})

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; of several spellings the one asked for, else the last in the file."""
        value = self._values.get(key)
        if value is not None:
            return value
        stored = self._stored(key_identity(key))
        return self._values[stored[-1]] if stored else None

    def copy(self) -> dict[bytes, bytes]:
        """All entries as they are stored."""
        return dict(self._values)

    def several(self) -> list[tuple[bytes, ...]]:
        """The keys that are stored in several spellings."""
        return [spellings for spellings in self._spellings.values() if len(spellings) > 1]

    def warn_of_spellings(self, where: str) -> None:
        """Says in the log that a key is stored in several spellings, if one is.

        Args:
            where: What holds them, at the beginning of a sentence.
        """
        if several := self.several():
            logger.warning(
                "%s holds %d source partitions more than once, with their keys in different orders, as in %s. A task "
                "goes on from the spelling that is its own; its next commit, or a change of the offset over REST, "
                "leaves one",
                where,
                len(several),
                " and ".join(key.decode(errors="replace") for key in several[0]),
            )

    def changes(self, entries: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        """Returns the changes of the file that give these keys these values, in whatever spelling.

        Args:
            entries: in the order in which they were asked for; of equal keys the last one counts.

        Returns:
            The same for exact bytes; None removes.
        """
        changes: dict[bytes, bytes | None] = {}
        new: dict[bytes, bytes] = {}
        for key, value in entries.items():
            identity = key_identity(key)
            stored = self._stored(identity) or (new.setdefault(identity, key),)
            changes[stored[0]] = value
            changes.update(dict.fromkeys(stored[1:]))
        return changes

    def after(self, changes: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
        """All entries as they will be stored after these changes, which are not made."""
        values = dict(self._values)
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return values

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Make changes of exact bytes."""
        for key, value in changes.items():
            if value is None:
                self._remove(key)
            else:
                if key not in self._values:
                    self._add(key)
                self._values[key] = value

    def _stored(self, identity: bytes) -> tuple[bytes, ...]:
        """The spellings in which a key is stored, in the order of the file."""
        spellings = self._spellings.get(identity)
        if spellings is not None:
            return spellings
        return (identity,) if identity in self._values else ()

    def _add(self, key: bytes) -> None:
        identity = key_identity(key)
        others = self._stored(identity)
        if others or key != identity:
            self._spellings[identity] = (*others, key)

    def _remove(self, key: bytes) -> None:
        if self._values.pop(key, None) is None:
            return
        identity = key_identity(key)
        left = tuple(other for other in self._spellings.pop(identity, ()) if other != key)
        if left and left != (identity,):
            self._spellings[identity] = left
