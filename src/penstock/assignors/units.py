"""The units of work of a cluster: connector instances and tasks.

Main type: ``Units``. A value; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

from penstock.model import ConnectorTaskId


@dataclass(frozen=True)
class Units:
    """Connectors and tasks, each once, in the order in which they were named.

    Which units a worker gives up first depends on that order. Two are equal when they hold the same in the same order.

    >>> Units.of(["a", "b", "a"]) - Units.of(["b"])
    Units(connectors=('a',), tasks=())
    """

    connectors: tuple[str, ...] = ()
    tasks: tuple[ConnectorTaskId, ...] = ()

    @classmethod
    def of(cls, connectors: Iterable[str] = (), tasks: Iterable[ConnectorTaskId] = ()) -> Units:
        """Makes one; what is named twice counts once, at its first place."""
        return cls(tuple(dict.fromkeys(connectors)), tuple(dict.fromkeys(tasks)))

    @classmethod
    def union(cls, several: Iterable[Units]) -> Units:
        """All units of several."""
        listed = list(several)
        return cls.of(
            (one for units in listed for one in units.connectors), (one for units in listed for one in units.tasks)
        )

    def __add__(self, other: Units) -> Units:
        return Units.union((self, other))

    def __sub__(self, other: Units) -> Units:
        gone_connectors, gone_tasks = set(other.connectors), set(other.tasks)
        return self._only(lambda one: one not in gone_connectors, lambda one: one not in gone_tasks)

    def __and__(self, other: Units) -> Units:
        connectors, tasks = set(other.connectors), set(other.tasks)
        return self._only(connectors.__contains__, tasks.__contains__)

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def __len__(self) -> int:
        return len(self.connectors) + len(self.tasks)

    def __iter__(self) -> Iterator[str | ConnectorTaskId]:
        yield from self.connectors
        yield from self.tasks

    def of_connectors(self, names: Container[str]) -> Units:
        """Those of some connectors."""
        return self._only(lambda one: one in names, lambda one: one.connector in names)

    def ordered(self) -> Units:
        """The same, connectors by name and tasks by connector and number."""
        return Units(tuple(sorted(self.connectors)), tuple(sorted(self.tasks)))

    def _only(self, connector: Callable[[str], bool], task: Callable[[ConnectorTaskId], bool]) -> Units:
        return Units(tuple(filter(connector, self.connectors)), tuple(filter(task, self.tasks)))


NOTHING = Units()
