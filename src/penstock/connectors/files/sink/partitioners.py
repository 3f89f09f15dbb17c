"""Directories of records: by Kafka partition, by fields, by time.

Main type: ``DirectoryPartitioner``; ``PathFormat`` is a pattern of dates in paths, as in ``path.format``. Pure; any
thread.

Source: the partitioners of Confluent's connectors (``DefaultPartitioner``, ``FieldPartitioner``,
``TimeBasedPartitioner``, ``DailyPartitioner``, ``HourlyPartitioner``); the documentation of Joda-Time,
"DateTimeFormat".
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import is_text
from penstock.errors import ConfigException, DataException

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MONTHS: Final = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
}
_DAYS: Final = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
}
#: Letters for numbers.
_NUMBERS: Final[dict[str, Callable[[datetime.datetime], int]]] = {
    "y": lambda at: at.year,
    "Y": lambda at: at.year,
    "u": lambda at: at.year,
    "x": lambda at: at.isocalendar()[0],
    "w": lambda at: at.isocalendar()[1],
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "e": lambda at: at.isoweekday(),
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "K": lambda at: at.hour % 12,
    "h": lambda at: at.hour % 12 or 12,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
}


class PathFormat:
    """A pattern, compiled.

    Args:
        pattern: For example ``'year'=YYYY/'month'=MM/'day'=dd``.
        locale: The language of names of months and days: ``en``, ``de-DE`` and so on.

    Raises:
        ConfigException: The pattern has an unknown letter, or needs names in an unsupported language.

    >>> at = datetime.datetime(2026, 3, 5, 7, tzinfo=datetime.UTC)
    >>> PathFormat("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH").text(at)
    'year=2026/month=03/day=05/hour=07'
    >>> PathFormat("EEE, d MMM yy").text(at)
    'Thu, 5 Mar 26'
    """

    def __init__(self, pattern: str, locale: str = "en") -> None:
        self._parts: list[tuple[str, int] | str] = []
        self._language = re.split(r"[-_]", locale)[0].lower() or "en"
        end = 0
        for found in _TOKEN.finditer(pattern):
            if found.start() != end:
                break
            end = found.end()
            if found[1] is not None:
                self._parts.append(found[1].replace("''", "'") or "'")
            elif found[2]:
                self._parts.append(self._letter(pattern, found[2], len(found[0])))
            else:
                self._parts.append(found[0])
        if end != len(pattern):
            raise ConfigException("path.format", pattern, "has a quote without a partner")

    def text(self, at: datetime.datetime) -> str:
        """The formatted text of a time."""
        return "".join(one if isinstance(one, str) else self._part(at, *one) for one in self._parts)

    def _letter(self, pattern: str, letter: str, count: int) -> tuple[str, int]:
        is_name = letter == "E" or (letter == "M" and count > 2)
        if is_name and self._language not in _MONTHS:
            raise ConfigException(
                "path.format", pattern, f"needs names of the locale {self._language}; there are {', '.join(_MONTHS)}. "
                "Write numbers: MM for the month"
            )  # fmt: skip
        if not is_name and letter not in _NUMBERS and letter not in "aSzZG":
            raise ConfigException(
                "path.format",
                pattern,
                f"has the letter {letter}, which stands for nothing; text stands in quotes: 'year'=yyyy",
            )
        return letter, count

    def _part(self, at: datetime.datetime, letter: str, count: int) -> str:
        match letter:
            case "E":
                name = _DAYS[self._language].split()[at.weekday()]
                return name if count > 3 else name[:3]
            case "M" if count > 2:
                name = _MONTHS[self._language].split()[at.month - 1]
                return name if count > 3 else name[:3]
            case "y" | "Y" | "u" | "x" if count == 2:
                return f"{_NUMBERS[letter](at) % 100:02d}"
            case "S":
                return f"{at.microsecond:06d}"[:count].ljust(count, "0")
            case "a":
                return "AM" if at.hour < 12 else "PM"
            case "G":
                return "AD"
            case "z":
                return at.tzname() or ""
            case "Z":
                text = at.strftime("%z")
                return text if count == 1 else f"{text[:3]}:{text[3:]}" if count == 2 else str(at.tzinfo)
        return str(_NUMBERS[letter](at)).zfill(count)


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
