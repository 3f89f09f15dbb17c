"""Transforms: they change or drop records between connector and converter.

``Transformation`` works on one record at a time, in Python. ``FrameTransformation`` works on a whole batch as columns
and becomes part of the Spark plan. A ``Predicate`` decides for which records a transform runs.

Owning thread: each task has its own instances, used by one thread of the worker at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from penstock.api.frames.frame import Frame
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
        """True if the predicate matches the record (``negate`` is applied by the worker). Must not change the record.

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


R = TypeVar("R", bound=ConnectRecord)


class BaseTransformation(ABC):
    """Life shared by both kinds: made with no arguments; ``configure`` once; ``apply``; ``close`` once.

    Source: org.apache.kafka.connect.transforms.Transformation, of which both kinds have ``configure``, ``config`` and
    ``close``.
    """

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


class Transformation(BaseTransformation):
    """Changes or drops one record at a time. Source: org.apache.kafka.connect.transforms.Transformation.

    Attributes:
        stateless: Whether what ``apply`` returns depends on its settings and the record alone, and it does nothing
            beside. Then the records of a large batch may go through copies of the instance, in other processes, several
            at a time, and a record may come twice when Spark works on it again. False (the default): one instance in
            the worker gets every record, in order. Penstock's own.
    """

    stateless: ClassVar[bool] = False

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """The record as it is to go on (``record.new_record(...)``), itself, or None: dropped.

        Called once for each record, in order, unless the class is ``stateless``. The record given must not be changed.
        Must not block for long.

        Raises:
            DataException: This record cannot be transformed: skipped when errors are tolerated.
            RetriableException: Tried again as ``errors.retry.timeout`` says.
            Exception: Any other is also an error of this record.
        """


class FrameTransformation(BaseTransformation):
    """Changes a whole batch as columns, lazily, in a Spark plan of its own.

    Attributes:
        takes_tombstones: Whether records without value are in its frames; False = they pass as they are.

    Source: Penstock's own.
    """

    takes_tombstones: ClassVar[bool] = True

    @abstractmethod
    def apply(self, frame: Frame) -> Frame:
        """The batch as it is to go on: ``frame.replace(dataframe=..., value_schema=...)``.

        Called once for each kind of records (schemas) of a batch, so it must depend on the settings and the schemas
        alone. Must run no Spark action. Rows keep their ``seq``: a record without a row is dropped, and one with
        several becomes several records, the first of which is its first row. ``dropped = true`` drops a row, too. A
        record that cannot be transformed is told by the column ``error``, or by an expression that fails in Spark: then
        the batch is halved until the records that fail are alone.

        Raises:
            Exception: No record of these schemas can pass: each of them fails with this error.
        """
