"""Transforms: they change or drop records between connector and converter.

``Transformation`` works on one record at a time, in Python. ``FrameTransformation`` works on a whole batch as columns
and becomes part of the Spark plan.

Owning thread: each task has its own instances, used by one thread of the worker at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

from penstock.api.frame import Frame
from penstock.api.record import ConnectRecord
from penstock.config import ConfigDef

__all__ = ["FrameTransformation", "Transformation"]

R = TypeVar("R", bound=ConnectRecord)


class _Configured(ABC):
    """Life shared by both kinds: made with no arguments; ``configure`` once; ``apply``; ``close`` once."""

    def configure(self, props: Mapping[str, object]) -> None:
        """Takes its settings (those below ``transforms.<alias>.``, without ``predicate`` and ``negate``). Called once,
        first.

        Raises:
            ConfigException: They are wrong: the task does not start.
        """

    @abstractmethod
    def config(self) -> ConfigDef:
        """The settings it knows. Called at any time, on fresh instances, to validate a connector's configuration."""

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"


class Transformation(_Configured):
    """Changes or drops one record at a time. Source: org.apache.kafka.connect.transforms.Transformation."""

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """The record as it is to go on (``record.new_record(...)``), itself, or None: dropped.

        Called once for each record, in order. The record given must not be changed. Must not block for long.

        Raises:
            DataException: This record cannot be transformed: skipped when errors are tolerated.
            RetriableException: Tried again as ``errors.retry.timeout`` says.
            Exception: Any other is also an error of this record.
        """


class FrameTransformation(_Configured):
    """Changes a whole batch as columns, lazily, in the Spark plan.

    No worker of this release runs one: a chain takes classes of ``Transformation`` and those that are built in.

    Source: Penstock's own.
    """

    @abstractmethod
    def apply(self, frame: Frame) -> Frame:
        """The batch as it is to go on: ``frame.replace(dataframe=..., value_schema=...)``.

        Called once for each kind of batch (schemas) and reused, not once for each batch, so it must depend on the
        settings and schemas alone. Must run no Spark action. Rows keep their ``seq``; a row is dropped by ``dropped =
        true``, or by filtering it out. A record that cannot be transformed is told by the column ``error``.
        """
