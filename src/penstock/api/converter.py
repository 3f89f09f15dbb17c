"""Converters: between Connect's data and the bytes in Kafka.

Owning thread: each task has its own instances, used by one thread of the worker at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.config import ConfigDef
from penstock.data import ConnectHeaders, Schema, SchemaAndValue


class Converter(ABC):
    """Converts keys or values. Source: org.apache.kafka.connect.storage.Converter.

    Life: made with no arguments; ``configure`` once; conversions; ``close`` once.
    """

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        """Takes its settings (those below ``key.converter.`` or ``value.converter.``). Called once, first.

        Raises:
            ConfigException: They are wrong: the task does not start.
        """

    @abstractmethod
    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """The bytes for Kafka. Must not block for long.

        Args:
            topic: The topic, after transforms.
            schema: Schema of the value; None = schemaless.
            value: The key or value.
            headers: The record's headers; not to be changed.

        Returns:
            The bytes; None for a tombstone.

        Raises:
            DataException: (or SerializationException) This record cannot be converted: skipped when errors are
            tolerated. RetriableException: Tried again as ``errors.retry.timeout`` says.
        """

    @abstractmethod
    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """Converts the bytes of a key or value to Connect data. For None: null with a null or optional schema.

        Raises:
            DataException: (or SerializationException) They mean nothing: skipped when errors are tolerated.
            RetriableException: Tried again as ``errors.retry.timeout`` says.
        """

    def config(self) -> ConfigDef:
        """The settings it knows."""
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
        """Takes its settings (those below ``header.converter.``). Called once, first."""

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """The bytes for Kafka of one header's value."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Converts the bytes of one header's value to Connect data."""

    def config(self) -> ConfigDef:
        """The settings it knows."""
        return _no_settings()

    def close(self) -> None:
        """Releases resources. Called once, last; must not fail."""

    def version(self) -> str:
        """The version, as shown by the REST API."""
        return "undefined"


def _no_settings() -> ConfigDef:
    return ConfigDef()
