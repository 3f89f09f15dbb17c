"""Table sink connector. Main type: `TableSink`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from penstock.api import SinkConnector, Task, TopicPartition
from penstock.config import Config, ConfigValue
from penstock.connectors.tables.places import open_lake
from penstock.connectors.tables.sink.settings import TableSinkConfig, is_known, with_own_names
from penstock.errors import ConnectException


class TableSink(SinkConnector):
    """Writes topics into tables of Delta Lake or Apache Iceberg.

    Source: org.apache.iceberg.connect.IcebergSinkConnector; the commits are Penstock's own.
    """

    config_class = TableSinkConfig
    has_positions = True

    def task_class(self) -> type[Task]:
        """The task that writes frames, or the one whose executors write."""
        if self.settings.tables_bulk:
            from penstock.connectors.tables.sink.bulk import TableBulkSinkTask

            return TableBulkSinkTask
        from penstock.connectors.tables.sink.task import TableSinkTask

        return TableSinkTask

    def validate(self, connector_configs: Mapping[str, str]) -> Config:
        """Checks each setting, their combination, and that the lake exists."""
        properties = with_own_names(connector_configs)
        checked = super().validate({name: str(value) for name, value in properties.items() if value is not None})
        values = {value.name: value for value in checked.config_values}
        if not checked.errors():
            config = TableSinkConfig.of(TableSinkConfig.definition().parse(properties))
            for text in _faults_of_lake(config, connector_configs):
                values["url"].add_error_message(f"url: {text}")
        for name in filter(is_known, connector_configs):
            values.setdefault(name, ConfigValue(name, connector_configs[name]))
        return Config(list(values.values()))

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Reports a lake that cannot be used."""
        return _faults_of_lake(TableSinkConfig.parse(props), props)

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Sets the offsets in the tables, too.

        Raises:
            ConnectException: A table cannot be reached, or refuses.
        """
        from penstock.connectors.tables.sink.intake import Router, sink_lake
        from penstock.connectors.tables.sink.rounds import Handover

        config = TableSinkConfig.parse(props)
        lake = sink_lake(config, props)
        try:
            router = Router(config.table_name_format, config.tables, config.route_field, config.dynamic_tables)
            names = router.all_tables(sorted({place.topic for place in offsets}))
            if config.dynamic_tables and not config.tables:
                names = list(lake.names())
            for name in names:
                table = lake.table(name, config.of_table(name, props).branch)
                if table is not None:
                    # Stored units of killed tasks would count again if the offsets fit.
                    handover = Handover(table, props["name"])
                    handover.remove(handover.names())
                    table.move(offsets)
        finally:
            lake.close()
        return True


def _faults_of_lake(config: TableSinkConfig, properties: Mapping[str, str]) -> list[str]:
    if not find_spec("pyarrow"):
        return ["PyArrow is not installed"]
    try:
        lake = open_lake(config, properties, properties.get("name", ""))
        try:
            lake.check()
        finally:
            lake.close()
    except ConnectException as error:
        return [str(error)]
    return []
