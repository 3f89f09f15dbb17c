"""``Predicate``: decides for which records a transform runs.

Owning thread: each task has its own instances, used by one thread of the worker at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from penstock.api.record import ConnectRecord
from penstock.config import ConfigDef


class Predicate(ABC):
    """Decides for which records a transform runs. Source: org.apache.kafka.connect.transforms.predicates.Predicate.

    Life: made with no arguments; ``configure`` once; ``test`` for each record; ``close`` once.

    Attributes:
        stateless: Whether what it says of a record depends on its settings and the record alone; see
            ``Transformation.stateless``.
    """

    stateless: ClassVar[bool] = False

    def configure(self, props: Mapping[str, object]) -> None:
        """Takes its settings (those below ``predicates.<alias>.``). Called once, first.

        Raises:
            ConfigException: They are wrong: the task does not start.
        """

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Whether the transform runs for this record (``negate`` is not its business). Must not change the record.

        Raises:
            Exception: An error of this record, as from a transform.
        """

    @abstractmethod
    def config(self) -> ConfigDef:
        """The settings it knows. Called at any time, on fresh instances."""

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"
