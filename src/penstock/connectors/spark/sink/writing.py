"""`SparkTableWriter`: writes a sink's rows with Spark. Thread: the task's. Source: Penstock's own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.api.arrow import for_spark
from penstock.connectors.spark.faults import is_of_spark, text_of, translated
from penstock.connectors.spark.names import quoted
from penstock.connectors.spark.sink.columns import DELETES, PLACE
from penstock.connectors.spark.sink.settings import SaveMode, SparkSinkConfig
from penstock.errors import ConnectException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark's errors for a missing table or directory.
_NOT_THERE = ("NOT_FOUND", "DOES_NOT_EXIST", "is not a Delta table", "MISSING_DELTA_TABLE", "NoSuchTable")


class SparkTableWriter:
    """Writes tables to the target of the settings.

    Args:
        config: The settings.
        session: Returns the session; called for each write.
    """

    def __init__(self, config: SparkSinkConfig, session: Callable[[], SparkSession]) -> None:
        self._config = config
        self._session = session
        self._is_there = False

    def write(self, rows: pa.Table) -> None:
        """Writes rows: all of them, or none.

        Raises:
            RetriableException: The other system is away.
            ConnectException: It, or Spark, refuses.
        """
        config = self._config
        lacking = [name for name in config.partition_columns if name not in rows.column_names]
        if lacking:
            raise ConnectException(
                f"partition.columns: the rows have no column {', '.join(lacking)}; they have "
                f"{', '.join(name for name in rows.column_names if name not in (DELETES, PLACE))}"
            )
        session = self._session()
        with translated(f"writing to {config.target}", config.format, config.target):
            if config.mode is SaveMode.UPSERT:
                self._merge(session, rows)
                return
            frame = session.createDataFrame(for_spark(rows.combine_chunks())).coalesce(1)
            self._save(frame, "overwrite" if config.mode is SaveMode.OVERWRITE else "append")

    def _save(self, frame: DataFrame, mode: str) -> None:
        config = self._config
        options = config.options()
        if mode == "overwrite":
            options = {"partitionOverwriteMode": "dynamic", **options}
        writer = frame.write.options(**options).mode(mode)
        if config.format:
            writer = writer.format(config.format)
        if config.partition_columns:
            writer = writer.partitionBy(*config.partition_columns)
        if config.spark_table:
            writer.saveAsTable(config.spark_table)
        elif config.spark_path:
            writer.save(config.spark_path)
        else:
            writer.save()

    def _merge(self, session: SparkSession, rows: pa.Table) -> None:
        from pyspark.sql import Window, functions

        keys = [quoted(name) for name in self._config.key_columns]
        placed = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows)))
        every = session.createDataFrame(for_spark(placed.combine_chunks()))
        # A key that has several rows has the last one: a MERGE takes one of each.
        newest = Window.partitionBy(*keys).orderBy(functions.desc(PLACE))
        ranked = every.withColumn(PLACE, functions.row_number().over(newest)).where(f"{PLACE} = 1").drop(PLACE)
        self._create(session, every)
        view = f"penstock_{uuid.uuid4().hex}"
        ranked.createOrReplaceTempView(view)
        try:
            columns = [name for name in rows.column_names if name != DELETES]
            session.sql(merge_statement(self._target(), view, self._config.key_columns, columns))
        finally:
            session.catalog.dropTempView(view)

    def _target(self) -> str:
        config = self._config
        return config.spark_table or f"{config.format}.{quoted(config.spark_path)}"

    def _create(self, session: SparkSession, rows: DataFrame) -> None:
        """Makes the table where it is not there."""
        if self._is_there:
            return
        config = self._config
        try:
            if config.spark_table:
                session.table(config.spark_table).schema  # noqa: B018 - it is looked for
            else:
                session.read.format(config.format).options(**config.options()).load(config.spark_path).schema  # noqa: B018
        except Exception as error:
            if not is_of_spark(error) or not any(one in text_of(error) for one in _NOT_THERE):
                raise
            self._save(rows.drop(DELETES, PLACE).limit(0), "append")
        self._is_there = True


def merge_statement(target: str, view: str, key: Sequence[str], columns: Sequence[str]) -> str:
    """The statement that replaces, deletes and adds rows.

    Args:
        target: The table, as SQL names it.
        view: The rows, one for each key, and the column ``DELETES``.
        key: The columns that name a row.
        columns: All columns of the rows that are written.

    >>> print(merge_statement("t", "v", ["id"], ["id", "name"]))
    MERGE INTO t AS t USING v AS s ON t.`id` = s.`id`
    WHEN MATCHED AND s.`__penstock_deletes` THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.`name` = s.`name`
    WHEN NOT MATCHED AND NOT s.`__penstock_deletes` THEN INSERT (`id`, `name`) VALUES (s.`id`, s.`name`)
    """
    same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key)
    changed = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns if name not in key)
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"s.{quoted(name)}" for name in columns)
    lines = [
        f"MERGE INTO {target} AS t USING {view} AS s ON {same}",
        f"WHEN MATCHED AND s.`{DELETES}` THEN DELETE",
        *([f"WHEN MATCHED THEN UPDATE SET {changed}"] if changed else []),
        f"WHEN NOT MATCHED AND NOT s.`{DELETES}` THEN INSERT ({names}) VALUES ({values})",
    ]
    return "\n".join(lines)
