"""Keys and headers in files next to those of the values. Main type: ``BesideValues``. No I/O; any thread.

Source: the documentation of Confluent's Amazon S3 sink, "Write raw keys and headers".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from penstock.api import SinkFrame
from penstock.api.arrow import one_array
from penstock.connectors.files.columns import VALUE
from penstock.connectors.files.sink.formats.format import Format
from penstock.files import Beside

#: The column of frames, and of files if it is no struct.
_COLUMNS: Final = {"keys": "key", "headers": "headers"}


class BesideValues:
    """The keys or the headers of records, in a format of their own.

    Args:
        what: ``keys`` or ``headers``.
        format: The format.

    Attributes:
        file: The file next to each file of values.
    """

    def __init__(self, what: str, format: Format) -> None:  # noqa: A002
        self._column = _COLUMNS[what]
        self._format = format
        self.file = Beside(f"\0{what}", f".{what}{format.name_end}", format.write)

    def prepare(self, frame: SinkFrame) -> pa.Array:
        """Converts the rows to their form in memory: structs, whose fields are columns of the file.

        Raises:
            DataException: The format does not take such keys.
        """
        at = frame.table.column_names.index("value")
        table = frame.table.set_column(at, "value", frame.table.column(self._column))
        schema = frame.key_schema if self._column == "key" else None
        made = self._format.prepare(replace(frame, table=table, value_schema=schema))
        names = [self._column if one == VALUE else one for one in made.column_names]
        columns = [one_array(one) for one in made.columns]
        return pa.StructArray.from_arrays(columns, names=names)
