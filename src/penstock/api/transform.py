"""The chain between a task and Kafka: transforms, predicates and converters.

``Transformation`` works on one record at a time, in Python. ``FrameTransformation`` works on a whole batch as columns
and becomes part of the Spark plan. A ``Predicate`` decides for which records a transform runs. A ``Converter`` is the
step between Connect's data and the bytes in Kafka.

Owning thread: each task has its own instances; one thread of the worker uses them at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from penstock.api.frames.frame import Frame
from penstock.api.record import ConnectRecord
from penstock.config import ConfigDef
from penstock.data import ConnectHeaders, Schema, SchemaAndValue


class Predicate(ABC):
    """Decides for which records a transform runs. Source: org.apache.kafka.connect.transforms.predicates.Predicate.

    Lifecycle: made with no arguments; ``configure`` once; ``test`` for each record; ``close`` once.

    Attributes:
        stateless: True if the result depends only on the settings and the record; see ``Transformation.stateless``.
    """

    stateless: ClassVar[bool] = False

    def configure(self, props: Mapping[str, object]) -> None:
        """Receives its settings, without the prefix ``predicates.<alias>.``. Called once, first.

        Raises:
            ConfigException: The settings are wrong: the task does not start.
        """

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """True if the predicate matches the record (the worker applies ``negate``). Must not change the record.

        Raises:
            Exception: An error of this record, handled like an error of a transform.
        """

    @abstractmethod
    def config(self) -> ConfigDef:
        """The settings of this predicate. Called at any time, on new instances."""

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"


R = TypeVar("R", bound=ConnectRecord)


class BaseTransformation(ABC):
    """The common base of both kinds of transforms. Lifecycle: made with no arguments; ``configure`` once; ``apply``;
    ``close`` once.

    Source: org.apache.kafka.connect.transforms.Transformation, of which both kinds have ``configure``, ``config`` and
    ``close``.
    """

    def configure(self, props: Mapping[str, object]) -> None:
        """Receives its settings, without the prefix ``transforms.<alias>.`` and without ``predicate`` and ``negate``.
        Called once, first.

        Raises:
            ConfigException: The settings are wrong: the task does not start.
        """

    @abstractmethod
    def config(self) -> ConfigDef:
        """The settings of this transform. Called at any time, on new instances, to validate a connector's
        configuration.
        """

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"


class Transformation(BaseTransformation):
    """Changes or drops one record at a time. Source: org.apache.kafka.connect.transforms.Transformation.

    Attributes:
        stateless: True if the result of ``apply`` depends only on the settings and the record, and ``apply`` has no
            side effects. Then copies of the instance in other processes may transform the records of a large batch
            concurrently, and see a record twice when Spark repeats work. False (the default): one instance in the
            worker gets every record, in order. Penstock's own.
    """

    stateless: ClassVar[bool] = False

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """Returns the changed record (``record.new_record(...)``), the record itself, or None to drop it.

        Called once for each record, in order, unless the class is ``stateless``. Must not change the given record. Must
        not block for long.

        Raises:
            DataException: This record cannot be transformed: it is skipped when errors are tolerated.
            RetriableException: The worker retries for ``errors.retry.timeout``.
            Exception: Any other is also an error of this record.
        """


class FrameTransformation(BaseTransformation):
    """Changes a whole batch as columns, lazily, in a Spark plan of its own.

    Attributes:
        takes_tombstones: True if its frames contain records without a value; False: such records pass unchanged.

    Source: Penstock's own.
    """

    takes_tombstones: ClassVar[bool] = True

    @abstractmethod
    def apply(self, frame: Frame) -> Frame:
        """Returns the changed batch: ``frame.replace(dataframe=..., value_schema=...)``.

        Called once for each combination of schemas in a batch, so it must depend only on the settings and the schemas.
        Must run no Spark action. Rows keep their ``seq``: a record without a row is dropped, and a record with several
        rows becomes several records, in the order of the rows. ``dropped = true`` drops a row, too. Report a record
        that cannot be transformed in the column ``error``, or by an expression that fails in Spark: the worker then
        halves the batch until it has found the failing records.

        Raises:
            Exception: No record of these schemas can be transformed: each of them fails with this error.
        """


class Converter(ABC):
    """Converts keys or values. Source: org.apache.kafka.connect.storage.Converter.

    Lifecycle: made with no arguments; ``configure`` once; conversions; ``close`` once.
    """

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        """Receives its settings, without the prefix ``key.converter.`` or ``value.converter.``. Called once, first.

        Raises:
            ConfigException: The settings are wrong: the task does not start.
        """

    @abstractmethod
    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """Converts a key or value to bytes for Kafka. Must not block for long.

        Args:
            topic: The topic, after transforms.
            schema: Schema of the value; None = schemaless.
            value: The key or value.
            headers: The record's headers; must not be changed.

        Returns:
            The bytes; None for a tombstone.

        Raises:
            DataException: (or SerializationException) This record cannot be converted; it is skipped when errors are
                tolerated.
            RetriableException: The worker retries for ``errors.retry.timeout``.
        """

    @abstractmethod
    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """Converts the bytes of a key or value to Connect data. None becomes null, with no schema or an optional one.

        Raises:
            DataException: (or SerializationException) The bytes cannot be read; the record is skipped when errors are
                tolerated.
            RetriableException: The worker retries for ``errors.retry.timeout``.
        """

    def config(self) -> ConfigDef:
        """The settings of this converter."""
        return _no_settings()

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"


class HeaderConverter(ABC):
    """Converts header values.

    Source: org.apache.kafka.connect.storage.HeaderConverter. Errors are as for ``Converter``.
    """

    def configure(self, configs: Mapping[str, object]) -> None:
        """Receives its settings, without the prefix ``header.converter.``. Called once, first."""

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """Converts one header's value to bytes for Kafka."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Converts the bytes of one header's value to Connect data."""

    def config(self) -> ConfigDef:
        """The settings of this converter."""
        return _no_settings()

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"


def _no_settings() -> ConfigDef:
    return ConfigDef()
