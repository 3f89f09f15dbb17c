"""JDBC sink connector. Main type: `JdbcSink`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.api import SinkConnector, Task, TopicPartition
from penstock.connectors.jdbc.addresses import missing_libraries
from penstock.connectors.jdbc.sink.settings import JdbcSinkConfig
from penstock.errors import ConnectException


class JdbcSink(SinkConnector):
    """Writes records into tables: as new rows, in place of rows, or as deletes.

    Source: io.confluent.connect.jdbc.JdbcSinkConnector.
    """

    config_class = JdbcSinkConfig
    has_positions = True

    def task_class(self) -> type[Task]:
        """The task that writes frames."""
        from penstock.connectors.jdbc.sink.task import JdbcSinkTask

        return JdbcSinkTask

    def faults(self, settings: JdbcSinkConfig) -> Iterable[tuple[str, str]]:
        """Checks which settings fit together, and whether the database is there."""
        return settings.faults() or [("connection.url", text) for text in _faults_of_database(settings)]

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the database cannot be reached."""
        return _faults_of_database(JdbcSinkConfig.parse(props))

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


def _faults_of_database(config: JdbcSinkConfig) -> list[str]:
    missing = missing_libraries(config.address().dialect)
    if missing:
        return [missing]
    from penstock.connectors.jdbc.tables import catalog_of

    try:
        with catalog_of(config.address()).connection():
            return []
    except ConnectException as error:
        return [str(error)]
