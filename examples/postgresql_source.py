"""A source of tables of PostgreSQL: the rows behind the largest id that was read, as columns.

New tables are found while it runs. A row is read once its transaction has ended and no older one runs any more, so that
rows that are committed late, with a smaller id, are not missed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from adbc_driver_postgresql import dbapi

from penstock.api import Chunk, PartitionedSource
from penstock.config import AbstractConfig, Password, Range, setting
from penstock.errors import ConnectException, RetriableException

TABLES = """SELECT table_schema, table_name FROM information_schema.columns
            WHERE column_name = $1 AND table_schema = $2 AND table_name LIKE $3 ORDER BY 1, 2"""
#: Numbers of transactions count to four thousand millions and begin again; a row that is frozen is older than all.
ROWS = """SELECT * FROM {table} WHERE {id} > $1
          AND age(xmin) > age((pg_snapshot_xmin(pg_current_snapshot())::text::bigint % 4294967296)::text::xid)
          ORDER BY {id} LIMIT {most}"""


class TablesConfig(AbstractConfig):
    url: Password = setting(doc="postgresql://user:password@host:port/database")
    table_schema: str = setting(default="public", doc="The schema of the tables.")
    table_pattern: str = setting(default="%", doc="Which tables, as LIKE has it.")
    id_column: str = setting(default="id", doc="The column that grows with each new row; the key of its record.")
    topic_prefix: str = setting(default="", doc="Stands in front of the table's name in that of the topic.")
    chunk_rows: int = setting(default=50_000, validator=Range.at_least(1), doc="The most rows of a chunk.")
    poll_ms: int = setting(
        default=1000, validator=Range.at_least(1), doc="How often new rows and tables are asked for."
    )


def connect(config: TablesConfig) -> Any:
    try:
        return dbapi.connect(config.url.value)
    except dbapi.Error as error:
        raise RetriableException(f"The database cannot be reached: {error}") from error


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def query(connection: Any, statement: str, parameters: tuple[object, ...]) -> pa.Table:
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetch_arrow_table()
    except dbapi.OperationalError as error:
        raise RetriableException(f"The database did not answer: {error}") from error
    except dbapi.Error as error:
        raise ConnectException(f"The database refuses {statement!r}: {error}") from error


class TablesSource(PartitionedSource):
    config_class = TablesConfig

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        return float(self.settings.poll_ms) / 1000

    idle_s = interval_s

    def partitions(self) -> list[Mapping[str, Any]]:
        config = self.settings
        with connect(config) as connection:
            wanted = (config.id_column, config.table_schema, config.table_pattern)
            rows = query(connection, TABLES, wanted).to_pylist()
        return [{"schema": row["table_schema"], "table": row["table_name"]} for row in rows]

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        config = self.settings
        table = f"{quoted(partition['schema'])}.{quoted(partition['table'])}"
        statement = ROWS.format(table=table, id=quoted(config.id_column), most=config.chunk_rows)
        topic, after = config.topic_prefix + partition["table"], offset["id"] if offset else -1
        with connect(config) as connection:
            while (rows := query(connection, statement, (after,))).num_rows:
                connection.commit()  # The next chunk is of a snapshot of its own.
                yield Chunk(plain(rows), topic, offset_columns={"id": config.id_column}, key=[config.id_column])
                after = rows.column(config.id_column)[-1].as_py()

    def faults(self, settings: TablesConfig) -> Iterator[tuple[str, str]]:
        try:
            connect(settings).close()
        except ConnectException as error:
            yield "url", str(error)


def plain(rows: pa.Table) -> pa.Table:
    """The rows with types of PostgreSQL that Arrow has none for (numeric, say) as text."""
    for place, field in enumerate(rows.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            cells = pa.chunked_array([chunk.storage for chunk in rows.column(place).chunks], field.type.storage_type)
            rows = rows.set_column(place, field.name, cells.cast(pa.string()))
    return rows
