"""Directories of records: by Kafka partition, by fields, by time.

Main type: ``DirectoryPartitioner``; pure, any thread.

Source: the partitioners of Confluent's connectors (``DefaultPartitioner``, ``FieldPartitioner``,
``TimeBasedPartitioner``, ``DailyPartitioner``, ``HourlyPartitioner``).
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import is_text
from penstock.connectors.files.sink.path_format import PathFormat
from penstock.errors import DataException

#: A directory for values that are null, as Hive and Spark name it.
NULL_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: The longest name in bytes; longer values are cut, and get a hash: most file systems allow at most 255 bytes.
_LONGEST: Final = 200
#: The limit for all values of a row together.
_LONGEST_OF_ALL: Final = 400
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{}\[\]^<>|~]')


class TimestampExtractor(Enum):
    """The time of a record: of the clock, of the record, or of one of its fields."""

    WALLCLOCK = "Wallclock"
    RECORD = "Record"
    RECORD_FIELD = "RecordField"


@dataclass(frozen=True, slots=True)
class Times:
    """Directories by time.

    Attributes:
        format: The format of their names.
        zone: The time zone of the names.
        duration_ms: The duration of one directory.
    """

    format: PathFormat
    zone: ZoneInfo
    duration_ms: int


@dataclass(frozen=True, slots=True)
class DirectoryPartitioner:
    """Gives each row of a frame a directory below that of its topic.

    Attributes:
        fields: The fields of the value whose values are directories, in this order.
        with_names: True: ``field=value``; False: the value only.
        times: Directories by time below those; None for none.
        extractor: The source of a record's time.
        timestamp_field: The field of ``RecordField``.
        delimiter: The text between directories.
        by_partition: True: without fields and times there is a directory ``partition=N``; False: none.
    """

    fields: tuple[str, ...] = ()
    with_names: bool = True
    times: Times | None = None
    extractor: TimestampExtractor = TimestampExtractor.RECORD
    timestamp_field: str = "timestamp"
    delimiter: str = "/"
    by_partition: bool = True

    def timestamps(self, frame: SinkFrame, now_ms: int) -> np.ndarray:
        """The time of each row, in milliseconds of the epoch.

        Raises:
            DataException: The field is missing, null or no time in some rows.
        """
        match self.extractor:
            case TimestampExtractor.WALLCLOCK:
                return np.full(frame.num_rows, now_ms, np.int64)
            case TimestampExtractor.RECORD:
                return _numbers(pc.fill_null(frame.table.column("timestamp"), -1))
            case TimestampExtractor.RECORD_FIELD:
                return self._field_times(frame)

    def directories(self, frame: SinkFrame, times: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """The directory of each row, as a number, and the names for these numbers.

        Args:
            frame: The rows.
            times: The result of ``timestamps``.

        Raises:
            DataException: The values have no such field, or a value that cannot name a directory.
        """
        keys: list[tuple[np.ndarray, list[str]]] = []
        if self.by_partition and not self.fields and self.times is None:
            keys.append(_encoded(frame.origin.column("partition"), lambda value: f"partition={value}"))
        # A key of S3 has at most 1,024 bytes, together with url, topic and the name of the file.
        longest = min(_LONGEST, _LONGEST_OF_ALL // max(1, len(self.fields)))
        for name in self.fields:
            column = frame.fields([name]).column(0)
            if pa.types.is_nested(column.type):
                raise DataException(
                    f'The field "{name}" of partition.field.name is {column.type}: a directory is named by a single '
                    "value; name a field inside of it"
                )
            label = f"{directory_name(name)}=" if self.with_names else ""
            keys.append(_encoded(column, lambda value, label=label: label + directory_name(value, longest)))
        if self.times is not None:
            keys.append(self._by_time(self.times, times))
        topics = _encoded(frame.table.column("topic"), directory_name)
        return _joined([topics, *keys], self.delimiter)

    def _by_time(self, of: Times, times: np.ndarray) -> tuple[np.ndarray, list[str]]:
        # A day has 23 to 25 hours when clocks change, so it is cut by local time.
        step = min(of.duration_ms, 900_000)
        buckets, codes = np.unique(times // step, return_inverse=True)
        names = []
        for bucket in buckets.tolist():
            try:
                at = datetime.datetime.fromtimestamp(bucket * step / 1000, of.zone)
            except (ValueError, OverflowError, OSError) as error:
                raise DataException(f"The time {bucket * step} ms of a record is no date: {error}") from error
            shown = at.replace(tzinfo=None) - _EPOCH.replace(tzinfo=None)
            into = datetime.timedelta(milliseconds=(shown // datetime.timedelta(milliseconds=1)) % of.duration_ms)
            names.append(of.format.text(at - into))
        return codes.reshape(-1), names

    def _field_times(self, frame: SinkFrame) -> np.ndarray:
        name = self.timestamp_field
        column = frame.fields([name]).column(0)
        if column.null_count:
            raise DataException(f'The field "{name}" of timestamp.field is null, or missing')
        kind = column.type
        if is_text(kind):
            return np.array([_parsed(name, text) for text in column.to_pylist()], np.int64)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _numbers(column.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False).cast(pa.int64()))
        if pa.types.is_integer(kind):
            return _numbers(column.cast(pa.int64()))
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return _numbers(column.cast(pa.float64()).cast(pa.int64(), safe=False))
        raise DataException(
            f'The field "{name}" of timestamp.field is {kind}: it has to be a timestamp, a number of milliseconds, or '
            "text such as 2026-01-31T12:00:00Z"
        )


def directory_name(value: object, longest: int = _LONGEST) -> str:
    """Converts a value to the name of a directory: separators are escaped as Hive does, long values are cut.

    >>> directory_name("a/b"), directory_name(None), directory_name(True), len(directory_name("x" * 1000))
    ('a%2Fb', '__HIVE_DEFAULT_PARTITION__', 'true', 217)
    """
    if value is None or value == "":
        return NULL_VALUE
    text = str(value).lower() if isinstance(value, bool) else value.hex() if isinstance(value, bytes) else str(value)
    found = _ESCAPED.sub(lambda one: f"%{ord(one[0]):02X}", text)
    if found in (".", ".."):
        found = found.replace(".", "%2E")
    raw = found.encode("utf-8", "surrogatepass")
    if len(raw) <= longest:
        return found if found.isascii() else found.encode("utf-8", "replace").decode()
    return f"{raw[:longest].decode('utf-8', 'ignore')}~{hashlib.sha256(raw).hexdigest()[:16]}"


def _parsed(name: str, text: str) -> int:
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise DataException(
            f'The field "{name}" of timestamp.field has the text {text[:100]!r}, which is no time such as '
            "2026-01-31T12:00:00Z"
        ) from error
    at = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    return (at - _EPOCH) // datetime.timedelta(milliseconds=1)


def _numbers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.to_numpy(), np.int64)


def _encoded(column: pa.Array | pa.ChunkedArray, name: object) -> tuple[np.ndarray, list[str]]:
    """The values of a column as numbers, and the name of each."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_null(whole.type):
        return np.zeros(len(whole), np.int64), [name(None)]  # type: ignore[operator]
    # Topic and partition are usually constant, and that check is cheaper than a look-up for each row.
    if len(whole) and not whole.null_count and pc.all(pc.equal(whole, whole[0])).as_py():
        return np.zeros(len(whole), np.int64), [name(whole[0].as_py())]  # type: ignore[operator]
    found = whole.dictionary_encode(null_encoding="encode")
    names = [name(value) for value in found.dictionary.to_pylist()]  # type: ignore[operator]
    return found.indices.to_numpy(zero_copy_only=False).astype(np.int64), names


def _joined(keys: Sequence[tuple[np.ndarray, list[str]]], delimiter: str) -> tuple[np.ndarray, list[str]]:
    codes, names = keys[0]
    for more, those in keys[1:]:
        if len(those) == 1:
            names = [f"{one}{delimiter}{those[0]}" for one in names]
            continue
        if len(names) == 1:
            codes, names = more, [f"{names[0]}{delimiter}{one}" for one in those]
            continue
        pairs, codes = np.unique(codes * len(those) + more, return_inverse=True)
        codes = codes.reshape(-1)
        names = [f"{names[one // len(those)]}{delimiter}{those[one % len(those)]}" for one in pairs.tolist()]
    return codes, names
