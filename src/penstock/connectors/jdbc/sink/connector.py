"""JDBC sink connector. Main type: `JdbcSink`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from penstock.api import SinkConnector, Task, TopicPartition
from penstock.config import Config
from penstock.connectors.jdbc.addresses import missing_libraries
from penstock.connectors.jdbc.connection_settings import MOST_CHECKED
from penstock.connectors.jdbc.sink.settings import JdbcSinkConfig
from penstock.errors import ConnectException


class JdbcSink(SinkConnector):
    """Writes records into tables: as new rows, in place of rows, or as deletes.

    Source: io.confluent.connect.jdbc.JdbcSinkConnector.
    """

    config_class = JdbcSinkConfig
    has_positions = True
    #: What is validated.
    _props: Mapping[str, str] = MappingProxyType({})

    def task_class(self) -> type[Task]:
        """The task that writes frames."""
        from penstock.connectors.jdbc.sink.task import JdbcSinkTask

        return JdbcSinkTask

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks each setting, and then as ``faults`` says."""
        self._props = connector_configs
        return super().validate(connector_configs)

    def faults(self, settings: JdbcSinkConfig) -> Iterable[tuple[str, str]]:
        """Checks whether the database is there, and whether the user may write."""
        return _faults_of_database(settings, self._props)

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the database cannot be reached, or that the user has no right to write."""
        return [text for _, text in _faults_of_database(JdbcSinkConfig.parse(props), props)]

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Any offsets do: with ``offsets.in.target`` they are set in the database, too.

        Raises:
            ConnectException: The database cannot be reached, or refuses.
        """
        config = JdbcSinkConfig.parse(props)
        if config.offsets_in_target:
            from penstock.connectors.jdbc.sink.task import create_offsets, kept_offsets
            from penstock.connectors.jdbc.sink.writing import writer_for

            writer = writer_for(config)
            try:
                kept = kept_offsets(props["name"], writer)
                create_offsets(writer, kept)
                writer.write([], lambda run: kept.alter(run, offsets))
            finally:
                writer.close()
        return True


def _tables(config: JdbcSinkConfig, props: Mapping[str, str]) -> Sequence[str]:
    """The tables that are known before a record comes; none of topics that transforms may change."""
    if "${topic}" not in config.table_name_format and not config.topic_to_table_map:
        return [config.table_of("")]
    topics = "" if props.get("transforms", "").strip() else props.get("topics", "")
    return list(dict.fromkeys(config.table_of(one.strip()) for one in topics.split(",") if one.strip()))


def _faults_of_database(config: JdbcSinkConfig, props: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names of settings that the database does not fit, each with a text for people."""
    missing = missing_libraries(config.address().dialect)
    if missing:
        return [("connection.url", missing)]
    from penstock.connectors.jdbc.rights import faults_of_rights

    try:
        return faults_of_rights(config.address(), _tables(config, props)[:MOST_CHECKED], config.rights)
    except ConnectException as error:
        return [("connection.url", str(error))]
