"""The settings below a prefix, found without looking at all others.

Main types: `Prefixed`, `NamesByPrefix`. A configuration has as many transforms as it likes, and each asks for its own
settings. Immutable; any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class NamesByPrefix:
    """Some names, for questions after those that begin with a text.

    Args:
        names: The names; their order is kept.

    >>> NamesByPrefix(["b.y", "a", "b.x"]).below("b.")
    ['b.y', 'b.x']
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._sorted = sorted(self._places)

    def below(self, prefix: str) -> list[str]:
        """The names that begin with a prefix, in the order in which they were given."""
        begin = end = bisect_left(self._sorted, prefix)
        while end < len(self._sorted) and self._sorted[end].startswith(prefix):
            end += 1
        return sorted(self._sorted[begin:end], key=self._places.__getitem__)


class Prefixed(Generic[V]):
    """A configuration, for questions after the settings below a prefix.

    Args:
        properties: The configuration.

    >>> Prefixed({"t.x.type": "A", "name": "n", "t.x.": "no name"}).below("t.x.")
    {'type': 'A'}
    """

    def __init__(self, properties: Mapping[str, V]) -> None:
        self._properties = properties
        self._names = NamesByPrefix(properties)

    def below(self, prefix: str) -> dict[str, V]:
        """The settings that begin with a prefix, without it, in their order; nulls are left out."""
        found = {name.removeprefix(prefix): self._properties[name] for name in self._names.below(prefix)}
        return {name: value for name, value in found.items() if name and value is not None}
