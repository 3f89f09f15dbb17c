"""Converters: between Connect's data and the bytes in Kafka.

Owning thread: each task has its own instances; one thread of the worker uses them at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.config import ConfigDef
from penstock.data import ConnectHeaders, Schema, SchemaAndValue


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
