"""Fast lookup of the settings below a prefix, without a scan of all settings.

Main types: `Prefixed`, `NamesByPrefix`. A configuration may have many transforms, and each needs its own settings.
Immutable; any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class NamesByPrefix:
    """Names that can be looked up by prefix.

    Args:
        names: The names; their order is kept.

    >>> NamesByPrefix(["b.y", "a", "b.x"]).below("b.")
    ['b.y', 'b.x']
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._sorted = sorted(self._places)

    def below(self, prefix: str) -> list[str]:
        """The names that begin with a prefix, in their original order."""
        begin = end = bisect_left(self._sorted, prefix)
        while end < len(self._sorted) and self._sorted[end].startswith(prefix):
            end += 1
        return sorted(self._sorted[begin:end], key=self._places.__getitem__)


class Prefixed(Generic[V]):
    """A configuration whose settings can be looked up by prefix.

    Args:
        properties: The configuration.

    >>> Prefixed({"t.x.type": "A", "name": "n", "t.x.": "no name"}).below("t.x.")
    {'type': 'A'}
    """

    def __init__(self, properties: Mapping[str, V]) -> None:
        self._properties = properties
        self._names = NamesByPrefix(properties)

    def below(self, prefix: str) -> dict[str, V]:
        """The settings below a prefix, with the prefix removed, in order; nulls are left out."""
        found = {name.removeprefix(prefix): self._properties[name] for name in self._names.below(prefix)}
        return {name: value for name, value in found.items() if name and value is not None}
