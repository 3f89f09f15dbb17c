"""`PositionColumn`: values of a growing column as offsets. Builds Spark columns, and runs no job.

Thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConnectException, DataException

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_WHOLE: Final = ("byte", "short", "integer", "long")
_AS_TEXT: Final = ("string", "date", "timestamp_ntz")
_EPOCH_UNIT: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class PositionColumn:
    """The way a column's values are stored and compared.

    Attributes:
        column: Its name.
        kind: Its type, as Spark's JSON calls it.
    """

    column: str
    kind: str

    @staticmethod
    def of(column: str, kind: DataType) -> PositionColumn:
        """The position by a column of a type.

        Raises:
            ConnectException: Values of the type have no order that could be stored exactly.
        """
        name = kind.jsonValue()
        text = name if isinstance(name, str) else kind.simpleString()
        plain = text in (*_WHOLE, *_AS_TEXT, "timestamp") or text.startswith(("decimal", "char", "varchar"))
        if not plain:
            raise ConnectException(
                f"incrementing.column.name: the column {column} is of type {kind.simpleString()}; whole numbers, "
                "decimals, "
                "dates, timestamps and texts can be gone on from: cast it in spark.query"
            )
        return PositionColumn(column, text)

    def after(self, offset: Mapping[str, Any] | None) -> object:
        """The stored value; None: from the beginning.

        Raises:
            ConnectException: The offset is of another column, or is none.
        """
        if offset is None:
            return None
        if offset.get("column") != self.column or "value" not in offset:
            raise ConnectException(
                f"The offset {dict(offset)} is none of the column {self.column}: reset the connector's offsets, "
                "or give it "
                "another name"
            )
        value: object = offset["value"]
        return value

    def literal(self, value: object) -> Column:
        """A stored value as a column."""
        from pyspark.sql import functions

        if self.kind == "timestamp":
            return functions.timestamp_micros(functions.lit(value))
        kind = self.kind if self.kind in _AS_TEXT or "(" in self.kind else _DDL[self.kind]
        return functions.lit(value).cast(kind)

    def offset(self, value: object, rows: int = 0) -> dict[str, Any]:
        """A stored value as an offset.

        Args:
            value: Of the last row that was read.
            rows: How many of the rows with this value were read; 0: all.
        """
        return {"column": self.column, "value": value, **({"rows": rows} if rows else {})}

    def stored(self, rows: pa.Table) -> Callable[[int], object]:
        """Gives the value of a row as it is stored.

        Raises:
            DataException: There is a null, which has no place in the order.
        """
        column = rows.column(self.column)
        if column.null_count:
            raise DataException(
                f"The column {self.column} is null in {column.null_count} or more rows, which therefore have no "
                "place in its "
                f"order and would never be read: leave them out in spark.query, WHERE {self.column} IS NOT NULL, "
                "or give "
                "them values"
            )
        if self.kind == "timestamp":
            micros = column.cast(_EPOCH_UNIT).cast(pa.int64())
            return lambda row: micros[row].as_py()
        if self.kind in _WHOLE:
            return lambda row: column[row].as_py()
        if self.kind == "date":
            return lambda row: column[row].as_py().isoformat()
        if self.kind == "timestamp_ntz":
            texts = pc.strftime(column.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
            return lambda row: texts[row].as_py()
        return lambda row: str(column[row].as_py())


def counts_within_values(values: Callable[[int], object], count: int) -> list[int]:
    """The number of rows with the same value up to each row; 0 for the last row of a value.

    >>> counts_within_values([1, 1, 1, 2, 3, 3].__getitem__, 6)
    [1, 2, 0, 0, 1, 0]
    """
    counts, same = [], 0
    for row in range(count):
        same += 1
        if row + 1 == count or values(row + 1) != values(row):
            same = 0
        counts.append(same)
    return counts


_DDL: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
