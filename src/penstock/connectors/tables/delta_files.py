"""Data files of Delta tables that no version has yet, and their entries in the log.

Main type: `DeltaFiles`. Files are in the directory of the table itself: the values of its partitions are in the log.

Thread: the task's, or that of an executor. Source: Delta Lake's protocol, "Add File" and "Per-file Statistics".
"""

from __future__ import annotations

import datetime
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyarrow import fs

from penstock.api.arrow import one_array
from penstock.connectors.tables.sizes import Ratio, groups, parts, windows
from penstock.errors import ConnectException

#: The number of columns with bounds, and the number of characters of their texts, as in Delta's own writers.
_COLUMNS: Final = 32
_CHARACTERS: Final = 32
_OTHER_NAMES: Final = {
    "AWS_ENDPOINT": "AWS_ENDPOINT_URL",
    "AWS_DEFAULT_REGION": "AWS_REGION",
    "AWS_TOKEN": "AWS_SESSION_TOKEN",
}
#: Features of tables that require more of a writer than this module does, by their names in tables.
_RULES: Final = {
    "delta.constraints.": "a CHECK",
    "delta.invariants": "an invariant of a column",
    "delta.generationExpression": "a generated column",
    "delta.identity.": "an identity column",
}


class DeltaFiles:
    """Writes data files of one table.

    Args:
        table: The table.
        system: Its file system.
        root: Its directory there.
        codec: The compression.
        ratio: The ratio of the sizes of files and rows.
    """

    def __init__(self, table: DeltaTable, system: fs.FileSystem, root: str, codec: str, ratio: Ratio) -> None:
        self._table = table
        self._system = system
        self._root = root
        self._codec = codec
        self._ratio = ratio

    def write(self, rows: Iterable[pa.Table]) -> list[dict[str, Any]]:
        """Writes files.

        Args:
            rows: Tables with the columns of the table. Read once.

        Returns:
            The argument of ``action``, for each file; values of JSON.

        Raises:
            ConnectException: The table has rules that only the library's writer follows.
        """
        refuse_rules(self._table)
        schema = pa.schema(self._table.schema().to_arrow())
        by = list(self._table.metadata().partition_columns)
        found: list[dict[str, Any]] = []
        for window in windows((one.cast(schema) for one in rows), self._ratio.most):
            begun = len(found)
            for values, whole in _split(window, by):
                found += [self._file(values, part) for part in parts(whole, self._ratio.most)]
            self._ratio.learn(window.nbytes, sum(one["size"] for one in found[begun:]))
        return found

    def _file(self, values: dict[str, str | None], rows: pa.Table) -> dict[str, Any]:
        name = f"part-00000-{uuid.uuid4()}-c000.{self._codec}.parquet"
        path = f"{self._root}/{name}"
        with self._system.open_output_stream(path) as out:
            pq.write_table(rows, out, compression=self._codec)
        info = self._system.get_file_info(path)
        return {
            "path": name,
            "size": info.size,
            "time": info.mtime_ns // 1_000_000,
            "values": values,
            "stats": json.dumps(stats_of(rows), ensure_ascii=False),
        }


def system_of(url: str, options: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """PyArrow's file system for a path or address, and the path in it.

    The library's own file system holds Python's lock while it waits for a store.

    Args:
        url: A path, or an address such as s3://BUCKET/PREFIX.
        options: The library's options for the store; for other stores than S3 PyArrow's default chain applies.
    """
    place = urlsplit(url)
    if place.scheme not in ("s3", "s3a"):
        return fs.FileSystem.from_uri(url) if place.scheme else (fs.LocalFileSystem(), url)
    # The library accepts names in any case, with and without the prefix, and some under a second name.
    given = {f"AWS_{name.upper().removeprefix('AWS_')}": value for name, value in options.items()}
    for other, name in _OTHER_NAMES.items():
        if other in given:
            given.setdefault(name, given[other])
    endpoint = urlsplit(given.get("AWS_ENDPOINT_URL", ""))
    is_virtual = given.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false") == "true"
    wanted: dict[str, Any] = {
        "access_key": given.get("AWS_ACCESS_KEY_ID"),
        "secret_key": given.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": given.get("AWS_SESSION_TOKEN"),
        "region": given.get("AWS_REGION"),
        "endpoint_override": endpoint.netloc or None,
        "scheme": endpoint.scheme or None,
        "force_virtual_addressing": is_virtual if endpoint.netloc else None,
    }
    half_s = _seconds(given.get("AWS_TIMEOUT", "")) / 2
    system = fs.S3FileSystem(
        connect_timeout=min(5.0, half_s),
        request_timeout=half_s,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
        **{name: value for name, value in wanted.items() if value is not None},
    )
    return system, f"{place.netloc}{place.path}"


def _seconds(text: str) -> float:
    """Parses a time of the library.

    >>> _seconds("20s"), _seconds("500ms"), _seconds("?")
    (20.0, 0.5, 20.0)
    """
    found = re.fullmatch(r"(\d+) *(ms|s|sec|m|min)?", text)
    return int(found[1]) * {"ms": 0.001, "m": 60.0, "min": 60.0}.get(found[2], 1.0) if found else 20.0


def action(file: Mapping[str, Any]) -> AddAction:
    """The entry of the log for a file."""
    return AddAction(file["path"], file["size"], file["values"], file["time"], True, file["stats"])


def refuse_rules(table: DeltaTable) -> None:
    """Refuses tables that require more of a writer than writing rows.

    Raises:
        ConnectException: It is such a table.
    """
    configuration = table.metadata().configuration
    said = [*configuration, table.schema().to_json()]
    found = [what for word, what in _RULES.items() if any(word in one for one in said)]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        found.append("other names of columns in its files (delta.columnMapping.mode)")
    if configuration.get("delta.enableRowTracking", "false") == "true":
        found.append("numbers of rows (delta.enableRowTracking)")
    if found:
        raise ConnectException(
            f"The table {table.table_uri} has {' and '.join(found)}, which is not looked after where files are written "
            "before they are committed: set tables.commit=task and tables.bulk=false"
        )


def stats_of(rows: pa.Table) -> dict[str, Any]:
    """Numbers of rows and nulls, and bounds, by which readers exclude files."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    columns = zip(rows.column_names, map(one_array, rows.columns), strict=True)
    _collect(columns, low, high, nulls, [_COLUMNS])
    return {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _collect(
    columns: Iterable[tuple[str, pa.Array]],
    low: dict[str, Any],
    high: dict[str, Any],
    nulls: dict[str, Any],
    left: list[int],
) -> None:
    for name, cells in columns:
        if pa.types.is_struct(cells.type):
            inner: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
            children = ((one.name, pc.struct_field(cells, [at])) for at, one in enumerate(cells.type))
            _collect(children, *inner, left)
            for all_of, own in zip((low, high, nulls), inner, strict=True):
                if own:
                    all_of[name] = own
            continue
        if not left[0]:
            return
        left[0] -= 1
        nulls[name] = cells.null_count
        if bounds := _bounds(cells):
            low[name], high[name] = bounds


def _bounds(cells: pa.Array) -> tuple[Any, Any] | None:
    kind = cells.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (is_text or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)):
        return None
    ends = pc.min_max(cells)
    try:
        low, high = ends["min"].as_py(), ends["max"].as_py()
    except (ValueError, OverflowError):
        return None  # A time outside of Python's dates.
    if low is None:
        return None
    if is_text:
        # The truncated highest text must not be below the full text.
        return low[:_CHARACTERS], high if len(high) <= _CHARACTERS else f"{high[:_CHARACTERS]}\U0010ffff"
    if pa.types.is_floating(kind):
        # NaN has no order, and JSON has no infinity.
        is_plain = math.isfinite(low) and math.isfinite(high) and not pc.any(pc.is_nan(cells)).as_py()
        return (low, high) if is_plain else None
    if isinstance(low, datetime.datetime):
        return tuple(f"{one:%Y-%m-%dT%H:%M:%S.%f}{'Z' if kind.tz else ''}".rjust(27, "0") for one in (low, high))  # type: ignore[return-value]
    return (str(low), str(high)) if isinstance(low, datetime.date) else (low, high)


def _split(rows: pa.Table, by: list[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition without its columns, and the values of its columns."""
    if not by:
        yield {}, rows
        return
    left, columns = rows.drop_columns(by), [one_array(rows.column(name)) for name in by]
    for numbers in groups(columns):
        first = int(numbers[0])
        values = {name: _value(cells[first].as_py()) for name, cells in zip(by, columns, strict=True)}
        yield values, left.take(numbers)


_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str,
    bool: lambda value: str(value).lower(),
    int: str,
    float: repr,
    Decimal: lambda value: format(value, "f"),
    datetime.date: str,
    datetime.datetime: lambda value: f"{value:%Y-%m-%d %H:%M:%S.%f}",
}


def _value(value: Any) -> str | None:
    """The value of a partition for the log, where an empty text is null."""
    if value is None or value == "":
        return None
    if type(value) not in _TEXTS:
        raise ConnectException(
            f"Values of the type {type(value).__name__} cannot be partitions of files that are written before they are "
            "committed: set tables.commit=task and tables.bulk=false, or another partition.by"
        )
    return _TEXTS[type(value)](value)
