"""The transactional ids of a simulated Kafka: with which of them somebody writes, and whose writes count.

Main types: ``Producers``; ``Holder``, a task that has begun with an id.

Thread: that of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import KafkaException


@dataclass(frozen=True)
class Holder:
    """A task that writes.

    Attributes:
        node: Where it runs.
        connector: Whose task it is.
        id: Its transactional id.
        epoch: What it got when it took the id.
        settings: Those of the set of tasks that it belongs to.
    """

    node: str
    connector: str
    id: str
    epoch: int
    settings: tuple[str, ...]


class Producers:
    """The last holder of each transactional id."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._holders: list[Holder] = []

    def epochs(self) -> dict[str, int]:
        """Returns how often each id was taken."""
        return dict(self._epochs)

    def claim(self, id_: str) -> int:
        """Takes an id; whoever had it writes nothing any more that counts."""
        self._epochs[id_] = self._epochs.get(id_, 0) + 1
        return self._epochs[id_]

    def fence(self, connector: str, config: Mapping[str, str], ids: Sequence[str]) -> Mapping[str, KafkaException]:
        """As the leader fences former tasks."""
        for one in ids:
            self.claim(one)
        return {}

    def counts(self, holder: Holder) -> bool:
        """True if what a task writes counts."""
        return self._epochs[holder.id] == holder.epoch

    def begin(self, holder: Holder) -> None:
        """A task begins to write: nobody else's writes may count who belongs to another set of tasks."""
        self._holders = [one for one in self._holders if self.counts(one)]
        zombies = [
            one for one in self._holders if one.connector == holder.connector and one.settings != holder.settings
        ]
        assert not zombies, f"{holder} begins while {zombies} write"
        self._holders.append(holder)

    def end(self, holder: Holder) -> None:
        """A task has ended."""
        self._holders = [one for one in self._holders if one != holder]
