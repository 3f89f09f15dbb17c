"""The row path: applies transforms and converters to single records, with their methods for one record.

``penstock.pipeline.batch.groups`` decides which records of a batch take this path while the rest are columns. They are
separated before a segment and merged after it, by row number. The same instances serve both paths. ``MessageReader``
makes the records of a sink: some are results of a plan, others are read one by one.

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, Converter, SinkRecord, TimestampType
from penstock.api.arrow import one_array
from penstock.data import ConnectHeaders, Schema
from penstock.data.text import to_java_text
from penstock.errors import DataException, as_exception
from penstock.pipeline.batch.batches import Failures, LazyColumns, Stage, Why
from penstock.pipeline.batch.headers import HeaderReader, headers_column, headers_of_column
from penstock.pipeline.batch.segments import Classic, ColumnarSegment, class_name
from penstock.pipeline.batch.transfer import ShippedRecords, Values, packed
from penstock.pipeline.columns.layout import default_physical, unbounded
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.plan.chain import GroupOutcome
from penstock.pipeline.plan.step import (
    NOTHING,
    SIDES,
    ColumnConverter,
    ReadAtOnce,
    RowConverter,
    Shape,
    Side,
    SideName,
    WrittenAtOnce,
)

#: The minimum number of records of a topic and schema for a block; fewer are as fast one by one.
MIN_AT_ONCE: Final = 64
#: Records and their rows in the batch.
Rows: TypeAlias = tuple[list[ConnectRecord], Sequence[int]]


def is_narrow(side: Side) -> bool:
    """True if a column is in the narrowest layout of its schema, which converters without a plan require."""
    return unbounded(side.physical) == default_physical(side.schema)


def java_text_of(value: object, schema: Schema | None) -> str:
    """A value as Java's text, which is UTF-8."""
    return to_java_text(value, schema).encode("utf-8", "replace").decode()


def all_rows(live: list[ConnectRecord], positions: Sequence[int] | None) -> Rows:
    """Records with their rows; positions None = 0, 1, 2, ..."""
    return live, range(len(live)) if positions is None else positions


def parted(rows: Rows, chosen: Set[int]) -> tuple[Rows, Rows]:
    """The records whose rows are not among the chosen ones, and those whose rows are."""
    if not chosen:
        return rows, ([], [])
    pairs = list(zip(*rows, strict=True))
    return _rows([one for one in pairs if one[1] not in chosen]), _rows([one for one in pairs if one[1] in chosen])


def merged(one: Rows, other: Rows) -> Rows:
    """The records of both, in the order of their rows."""
    if not one[0] or not other[0]:
        return other if other[0] else one
    pairs = [*zip(*one, strict=True), *zip(*other, strict=True)]
    return _rows(sorted(pairs, key=itemgetter(1)))


def _rows(pairs: Sequence[tuple[ConnectRecord, int]]) -> Rows:
    return [record for record, _ in pairs], [row for _, row in pairs]


def transformed(segment: ColumnarSegment, rows: Rows, failures: Failures) -> Rows:
    """Records after the transforms of a segment, without failed and dropped ones."""
    # Results of stock transforms need no check.
    chain = [(one.transformation.apply if one.predicate is None else one.apply, one.name) for one in segment.alone]
    if not chain:
        return rows
    live: list[ConnectRecord] = []
    kept: list[int] = []
    for record, row in zip(*rows, strict=True):
        at = chain[0]
        try:
            for at in chain:
                made = at[0](record)
                if made is None:
                    break
                record = made
            else:
                live.append(record)
                kept.append(row)
        except BaseException as error:
            failures.raised(row, Stage.TRANSFORMATION, at[1], as_exception(error))
    return live, kept


class OneSide:
    """The converter of keys or of values, for single records; ``stage`` and ``name`` are for errors."""

    def __init__(self, side: SideName, converter: Converter) -> None:
        self._side = side
        self._converter = converter
        self.stage = Stage.KEY_CONVERTER if side == "key" else Stage.VALUE_CONVERTER
        self.name = class_name(converter)

    def written(self, rows: Rows, failures: Failures) -> pa.Array:
        """The bytes of some records, null for failed ones. Notes rows that a converter of a registry has written one by
        one.
        """
        if not isinstance(self._converter, RowConverter):
            return self._written_alone(rows, failures)
        parts: list[pa.Array] = []
        count = len(rows[0])
        alone = np.ones(count, dtype=bool)
        places = np.arange(count)
        for topic, schema, mine, values in self._alike(rows, failures):
            if len(mine) < MIN_AT_ONCE:
                continue
            made = self._converter.write_at_once(topic, schema, values)
            if made is None:
                continue
            good = np.flatnonzero(~made.odd)
            taken = mine[good]
            places[taken] = good + sum(map(len, parts))
            alone[taken] = False
            parts.append(made.messages)
        left = np.flatnonzero(alone)
        if len(left):
            records, seqs = rows
            some = [records[at] for at in left.tolist()], [seqs[at] for at in left.tolist()]
            places[left] = np.arange(len(left)) + sum(map(len, parts))
            failures.went_as_rows(some[1], Why.ONE_BY_ONE)
            parts.append(self._written_alone(some, failures))
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return whole if np.array_equal(places, np.arange(len(whole))) else whole.take(pa.array(places))

    def written_column(
        self,
        topic: str | None,
        schema: Schema | None,
        column: pa.Array | pa.ChunkedArray | None,
        rows: np.ndarray,
        records: Callable[[np.ndarray], list[ConnectRecord]],
        failures: Failures,
    ) -> pa.Array:
        """The bytes of values that are a column, null for failed ones; as `written`.

        Args:
            topic: The topic of all rows; None if they have several.
            column: The values in the narrowest layout of the schema; None if they are in none.
            rows: The row of each value in the batch.
            records: Returns some of them as records, by their positions in the column.
        """
        made: WrittenAtOnce | None = None
        if topic is not None and column is not None and isinstance(self._converter, RowConverter):
            made = self._converter.write_at_once(topic, schema, one_array(column))
        odd = np.arange(len(rows)) if made is None else np.flatnonzero(made.odd)
        if made is not None and not len(odd):
            return made.messages
        failures.went_as_rows(rows[odd], Why.ONE_BY_ONE)
        alone = self._written_alone((records(odd), rows[odd].tolist()), failures)
        if made is None:
            return alone
        places = np.arange(len(rows))
        places[odd] = len(rows) + np.arange(len(odd))
        return pa.concat_arrays([made.messages, alone]).take(pa.array(places))

    def written_part(self, part: ShippedRecords, failures: Failures) -> pa.Array:
        """The bytes of records that are columns; as `written`."""
        assert part.shape is not None, "it is columns"
        side, topics = part.shape.side(self._side), part.attribute("topic")
        column = None if side.absent else one_array(part.columns[self._side])
        if column is None or not is_narrow(side) or len(part) < MIN_AT_ONCE or set(map(type, topics)) != {str}:
            return self.written((part.records(), part.rows.tolist()), failures)
        encoded = pa.array(topics, pa.string()).dictionary_encode()
        pieces: list[pa.Array] = []
        places: list[np.ndarray] = []
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            mine = np.flatnonzero(encoded.indices.to_numpy() == code)

            def records(some: np.ndarray, mine: np.ndarray = mine) -> list[ConnectRecord]:
                made = part.records()
                return [made[place] for place in mine[some].tolist()]

            some = column if len(mine) == len(part) else column.take(pa.array(mine))
            pieces.append(self.written_column(topic, side.schema, some, part.rows[mine], records, failures))
            places.append(mine)
        whole = pa.concat_arrays(pieces)
        return whole if len(pieces) == 1 else whole.take(pa.array(np.argsort(np.concatenate(places))))

    def _alike(
        self, rows: Rows, failures: Failures
    ) -> Iterator[tuple[str, Schema | None, np.ndarray, Sequence[object]]]:
        """The positions and values of the records of each topic and schema, without failed ones."""
        live, seqs = rows
        values, schemas = (list(map(attrgetter(name), live)) for name in (self._side, f"{self._side}_schema"))
        topics: list[str] = list(map(attrgetter("topic"), live))
        # A lookup compares a whole schema; object identity decides for nearly all records.
        kinds = set(zip(topics, map(id, schemas), strict=True))
        if len(kinds) == 1 and not failures.errors:
            yield topics[0], schemas[0], np.arange(len(live)), values
            return
        found: dict[tuple[str, Schema | None], list[int]] = {}
        known: dict[tuple[str, int], list[int]] = {}
        for place, (topic, schema) in enumerate(zip(topics, schemas, strict=True)):
            if failures.of_row(seqs[place]) is not None:
                continue
            mine = known.get((topic, id(schema)))
            if mine is None:
                mine = known[topic, id(schema)] = found.setdefault((topic, schema), [])
            mine.append(place)
        for (topic, schema), mine in found.items():
            yield topic, schema, np.array(mine), [values[place] for place in mine]

    def _written_alone(self, rows: Rows, failures: Failures) -> pa.Array:
        data: list[bytes | None] = []
        for record, row in zip(*rows, strict=True):
            one: bytes | None = None
            if failures.of_row(row) is None:
                try:
                    one = self._bytes_of(record)
                except BaseException as error:
                    failures.raised(row, self.stage, self.name, as_exception(error))
            data.append(one)
        return pa.array(data, pa.binary())

    def _bytes_of(self, record: ConnectRecord) -> bytes | None:
        of_keys = self._side == "key"
        schema, value = (record.key_schema, record.key) if of_keys else (record.value_schema, record.value)
        made: object = self._converter.from_connect_data(record.topic, schema, value, record.headers)
        if made is not None and not isinstance(made, (bytes, bytearray, memoryview)):
            raise DataException(f"{self.name} must return bytes or None, got {type(made).__name__}")
        return made if made is None else bytes(made)

    def texts(
        self, topics: Sequence[str], data: Sequence[bytes | None], rows: Sequence[int], failures: Failures
    ) -> pa.Array:
        """Java's text of the values of some messages; null for null, and for failed ones."""
        found: list[str | None] = []
        for topic, one, row in zip(topics, data, rows, strict=True):
            text: str | None = None
            try:
                schema, value = self._converter.to_connect_data(topic, one, None)
                text = None if value is None else java_text_of(value, schema)
            except BaseException as error:
                failures.raised(row, self.stage, self.name, as_exception(error))
            found.append(text)
        return pa.array(found, pa.string())

    def texts_at_once(self, messages: pa.Table, failures: Failures) -> pa.ChunkedArray | None:
        """Java's texts of all messages, as in ``texts``; None = their plan makes them. Notes those processed one by
        one.
        """
        column = messages.column(self._side)
        found = self._converter.texts_at_once(column) if isinstance(self._converter, ColumnConverter) else None
        if found is None or not found.odd:
            return None if found is None else found.texts
        failures.went_as_rows(found.odd, Why.MIXED_VALUES)
        odd = pa.array(found.odd)
        topics, data = (messages.column(name).take(odd).to_pylist() for name in ("topic", self._side))
        place = np.arange(len(column))
        place[found.odd] = len(column) + np.arange(len(found.odd))
        made = self.texts(topics, data, found.odd, failures)
        return pa.chunked_array([*found.texts.chunks, made]).take(pa.array(place))

    def read_at_once(self, column: pa.ChunkedArray) -> ReadAtOnce:
        """Reads the messages that can be read without a call for each."""
        found = self._converter.read_at_once(column) if isinstance(self._converter, ColumnConverter) else None
        rows = len(column)
        return ReadAtOnce(None, [None] * rows, range(rows)) if found is None else found

    def all_objects(self, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Returns the values of messages without a schema, if all are objects with the same members."""
        return self._converter.read_objects(column) if isinstance(self._converter, ColumnConverter) else None

    def all_values(
        self, topics: pa.ChunkedArray, column: pa.ChunkedArray
    ) -> tuple[list[object], dict[int, BaseException]]:
        """Returns the values of messages without a schema, and the errors of unreadable ones, by position."""
        found = self.read_at_once(column)
        values: list[object] = list(found.values)
        errors: dict[int, BaseException] = {}
        for place in found.odd:
            try:
                _, values[place] = self._converter.to_connect_data(
                    topics[place].as_py(), column[place].as_py(), ConnectHeaders()
                )
            except BaseException as error:
                errors[place] = as_exception(error)
        return values, errors

    def note(self, failures: Failures, row: int, error: BaseException) -> None:
        """Notes that the message of a row could not be read, or its value has no type in Connect."""
        failures.raised(row, self.stage, self.name, error)

    def read(self, record: SinkRecord, data: bytes | None, row: int, failures: Failures) -> bool:
        """Puts a converted message into a new record; returns True if it could be read."""
        try:
            schema, value = self._converter.to_connect_data(record.topic, data, record.headers)
        except BaseException as error:
            failures.raised(row, self.stage, self.name, as_exception(error))
            return False
        if self._side == "key":
            record.key_schema, record.key = schema, value
        else:
            record.value_schema, record.value = schema, value
        return True


#: Returns the values of an attribute of all records, in their order; None for missing ones.
Attributes: TypeAlias = Callable[[str], Sequence[Any]]

_ROW: Final = itemgetter(0)
#: The attribute of records for each of the other columns.
_ATTRIBUTES: Final = {
    "topic": "topic",
    "partition": "kafka_partition",
    "timestamp": "timestamp",
    "headers": "raw_headers",
}


def side_values(outcome: GroupOutcome, side: SideName, rows: int) -> Sequence[object]:
    """The keys or values of an outcome as Python objects."""
    known = outcome.shape.side(side)
    column = outcome.columns.get(side)
    if known.absent or column is None:
        return [None] * rows
    return from_arrow(column, known.carrier if known.schema is None else known.schema, known.physical)


def rebuilt_rows(
    outcome: GroupOutcome, records: Mapping[int, ConnectRecord] | Sequence[ConnectRecord]
) -> list[tuple[int, ConnectRecord]]:
    """The records of an outcome with their rows, without dropped ones, but including failed ones; a row may occur
    several times. ``records`` has those of the job's input, by row.
    """
    key_schema, value_schema = outcome.shape.key.schema, outcome.shape.value.schema

    def changed(rows: Sequence[int], keys: Sequence[object], values: Sequence[object]) -> list[ConnectRecord]:
        return [
            records[row].new_record(key_schema=key_schema, key=key, value_schema=value_schema, value=value)
            for row, key, value in zip(rows, keys, values, strict=True)
        ]

    return rows_of(outcome, len(records), changed)


def rows_of(
    outcome: GroupOutcome,
    count: int,
    make: Callable[[Sequence[int], Sequence[object], Sequence[object]], Sequence[ConnectRecord]],
) -> list[tuple[int, ConnectRecord]]:
    """As ``rebuilt_rows``, with records that `make` makes of each row, key and value.

    They are not shared yet, so the job's changes of other columns are set in them.
    """
    rows = range(count) if outcome.rows is None else outcome.rows.tolist()
    keys, values = (side_values(outcome, side, len(rows)) for side in SIDES)
    made = make(rows, keys, values)
    for name, attribute in _ATTRIBUTES.items():
        if name in outcome.columns:
            column = outcome.columns[name]
            found = headers_of_column(column) if name == "headers" else column.to_pylist()
            for record, value in zip(made, found, strict=True):
                setattr(record, attribute, value)
    pairs = zip(rows, made, strict=True)
    if outcome.dropped is None:
        return list(pairs)
    return [pair for pair, gone in zip(pairs, outcome.dropped.to_pylist(), strict=True) if not gone]


def in_order(
    made: Sequence[Sequence[tuple[int, ConnectRecord]]], rows: int, failures: Failures
) -> tuple[list[ConnectRecord], list[int] | None]:
    """Records of several outcomes, without failed ones, and their rows; None = row i is record i. No row is in two."""
    found = sorted_rows(made, failures)
    records = [record for _, record in found]
    return records, None if len(found) == rows else [row for row, _ in found]


def sorted_rows(
    made: Sequence[Sequence[tuple[int, ConnectRecord]]], failures: Failures
) -> list[tuple[int, ConnectRecord]]:
    """Records with their rows, of several parts, in the order of the rows and without failed ones."""
    found = list(made[0]) if len(made) == 1 else sorted(chain.from_iterable(made), key=_ROW)
    if not failures.errors:
        return found
    return [one for one in found if failures.of_row(one[0]) is None]


def apply_classic(
    classic: Classic, live: list[ConnectRecord], positions: Sequence[int] | None, failures: Failures
) -> tuple[list[ConnectRecord], Sequence[int] | None]:
    """Applies a user's transform to records, in order; the results lack dropped and failed records."""
    kept: list[ConnectRecord] = []
    gone: list[int] = []
    apply = classic.apply
    for index, record in enumerate(live):
        try:
            result = apply(record)
        except BaseException as error:
            row = index if positions is None else positions[index]
            failures.raised(row, Stage.TRANSFORMATION, classic.name, as_exception(error))
            result = None
        if result is None:
            gone.append(index)
        else:
            kept.append(result)
    if not gone:
        return kept, positions
    left = np.delete(np.arange(len(live)) if positions is None else np.asarray(positions, dtype=np.int64), gone)
    return kept, left.tolist()


def attributes_of(records: Sequence[ConnectRecord]) -> Attributes:
    """Returns a function that gives an attribute of all records; it is looked up once for all callers."""

    @cache
    def attribute(name: str) -> Sequence[Any]:
        try:
            return list(map(attrgetter(name), records))
        except AttributeError:  # records of a source have no offset in Kafka
            return [getattr(record, name, None) for record in records]

    return attribute


def columns_of(attributes: Attributes, positions: Sequence[int] | None, rows: int, failures: Failures) -> LazyColumns:
    """Topic, partition, timestamp, offset and headers by position in the batch. Notes headers that fit no column."""

    def spread(values: Sequence[object]) -> Sequence[Any]:
        if positions is None:
            return values
        found: list[object] = [None] * rows
        for seq, value in zip(positions, values, strict=True):
            found[seq] = value
        return found

    def by_position(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array(spread(attributes(name)), kind)

    def on_bad(seq: int, error: Exception) -> None:
        failures.raised(seq, Stage.HEADER_CONVERTER, "org.apache.kafka.connect.header.ConnectHeaders", error)

    return LazyColumns(
        {
            "topic": lambda: by_position("topic", pa.string()),
            "partition": lambda: by_position("kafka_partition", pa.int32()),
            "timestamp": lambda: by_position("timestamp", pa.int64()),
            "offset": lambda: by_position("kafka_offset", pa.int64()),
            "headers": lambda: headers_column(spread(attributes("raw_headers")), on_bad),
        }
    )


_NAMES = ("topic", "partition", "offset", "timestamp")
_TIMESTAMP_TYPES = {int(kind): kind for kind in TimestampType}


def beside_of_messages(table: pa.Table, headers: Sequence[ConnectHeaders | None]) -> dict[str, Values]:
    """Returns the attributes of the records of messages, besides keys and values, by name."""
    topics, partitions, offsets, timestamps, kinds, _ = Coordinates.of(table, headers)
    found: dict[str, Sequence[Any]] = {
        "topic": topics,
        "kafka_partition": partitions,
        "kafka_offset": offsets,
        "timestamp": timestamps,
        "timestamp_type": kinds,
        "raw_headers": list(headers),
        "original_topic": topics,
        "original_kafka_partition": partitions,
        "original_kafka_offset": offsets,
        "_delivered": [None] * table.num_rows,
    }
    return {name: packed(list(values)) for name, values in found.items()}


class Coordinates(NamedTuple):
    """The attributes of messages besides keys and values, as columns of the same length."""

    topics: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]
    timestamps: Sequence[int | None]
    timestamp_types: Sequence[TimestampType]
    headers: Sequence[ConnectHeaders | None]

    @classmethod
    def of(cls, table: pa.Table, headers: Sequence[ConnectHeaders | None]) -> Coordinates:
        """The coordinates of some messages."""
        topics, partitions, offsets, timestamps = (table.column(name).to_pylist() for name in _NAMES)
        kinds = [_TIMESTAMP_TYPES[kind] for kind in table.column("timestamp_type").to_pylist()]
        return cls(topics, partitions, offsets, timestamps, kinds, headers)

    def taken(self, rows: Sequence[int]) -> Coordinates:
        """The coordinates of some rows."""
        return Coordinates._make([column[row] for row in rows] for column in self)

    def records(
        self,
        key_schema: Schema | None,
        keys: Sequence[object],
        value_schema: Schema | None,
        values: Sequence[object],
    ) -> list[ConnectRecord]:
        """Makes a record of each message, with these keys and values."""
        # A constructor call for each record takes twice as long.
        records: list[ConnectRecord] = []
        make = SinkRecord.__new__
        for topic, partition, offset, timestamp, kind, header, key, value in zip(*self, keys, values, strict=True):
            record: SinkRecord = make(SinkRecord)
            record.topic = record.original_topic = topic
            record.kafka_partition = record.original_kafka_partition = partition
            record.kafka_offset = record.original_kafka_offset = offset
            record.key_schema = key_schema
            record.key = key
            record.value_schema = value_schema
            record.value = value
            record.timestamp = timestamp
            record.timestamp_type = kind
            record.raw_headers = header
            record._delivered = None
            records.append(record)
        return records


class MessageReader:
    """Makes records for one task; ``own`` are the sides whose converter has no columns, ``first`` the transforms of the
    first plan, for messages that are read one by one.
    """

    def __init__(
        self, sides: Mapping[SideName, OneSide], own: Set[SideName], headers: HeaderReader, first: ColumnarSegment
    ) -> None:
        self._sides = sides
        self._own = own
        self._headers = headers
        self._first = first

    def headers_of(self, table: pa.Table, failures: Failures) -> list[ConnectHeaders | None]:
        """The headers of each message."""
        topics = table.column("topic")
        return self._headers.read(lambda row: str(topics[row].as_py()), table.column("headers"), failures)

    def headers_before(
        self, outcomes: Sequence[GroupOutcome], alone: np.ndarray, table: pa.Table, failures: Failures
    ) -> list[ConnectHeaders | None]:
        """The headers of each row after the first plan."""
        changed = [outcome for outcome in outcomes if "headers" in outcome.columns]
        headers: list[ConnectHeaders | None] = [None] * table.num_rows
        if len(changed) < len(outcomes) or len(alone):
            headers = self.headers_of(table, failures)
        for outcome in changed:
            rows = range(table.num_rows) if outcome.rows is None else outcome.rows.tolist()
            for row, one in zip(rows, headers_of_column(outcome.columns["headers"]), strict=True):
                headers[row] = one
        return headers

    def records(
        self,
        outcomes: Sequence[GroupOutcome],
        alone: np.ndarray,
        table: pa.Table,
        headers: Sequence[ConnectHeaders | None],
        failures: Failures,
    ) -> Rows:
        """Records with their rows, in order and without failed and dropped ones.

        The rows ``alone`` are read, and go through the first transforms, one by one.
        """
        unread = GroupOutcome(alone, Shape(NOTHING, NOTHING, sink=True), {}, None, None, {})
        if len(alone):
            outcomes = [*outcomes, unread]
        coordinates = Coordinates.of(table, headers)
        rows: Rows = [], []
        for outcome in outcomes:
            mine, places = table, coordinates
            if outcome.rows is not None and not _is_all(outcome.rows, len(table)):
                mine, places = table.take(pa.array(outcome.rows)), coordinates.taken(outcome.rows.tolist())
            late = SIDES if outcome is unread else self._own
            found = {side: self._sides[side].read_at_once(mine.column(side)) for side in SIDES if side in late}
            made = self._made(outcome, places, mine, found, failures)
            rows = merged(rows, transformed(self._first, made, failures) if outcome is unread else made)
        return rows

    def _made(
        self,
        outcome: GroupOutcome,
        coordinates: Coordinates,
        mine: pa.Table,
        found: Mapping[SideName, ReadAtOnce],
        failures: Failures,
    ) -> Rows:
        """The records of an outcome, without failed and dropped ones; ``found`` has the sides that no plan has read."""
        count = len(coordinates.topics)
        rows: Sequence[int] = range(count) if outcome.rows is None else outcome.rows.tolist()
        schemas = {side: found[side].schema if side in found else outcome.shape.side(side).schema for side in SIDES}
        keys, values = (found[side].values if side in found else side_values(outcome, side, count) for side in SIDES)
        records = coordinates.records(schemas["key"], keys, schemas["value"], values)
        gone: set[int] = set()
        if outcome.dropped is not None:
            gone = {row for row, dropped in zip(rows, outcome.dropped.to_pylist(), strict=True) if dropped}
        self._read_odd((records, rows), mine, found, gone, failures)
        _change(records, outcome)
        gone |= failures.errors.keys()
        if not gone:
            return records, rows
        kept = [(record, row) for record, row in zip(records, rows, strict=True) if row not in gone]
        return [record for record, _ in kept], [row for _, row in kept]

    def _read_odd(
        self, given: Rows, mine: pa.Table, found: Mapping[SideName, ReadAtOnce], gone: Set[int], failures: Failures
    ) -> None:
        """Reads messages one by one, in their order; notes those that fail.

        Headers are converted after key and value, so the error of a value is that of the record, whose headers may have
        failed before.
        """
        odd = {side: frozenset(one.odd) for side, one in found.items() if one.odd}
        if not odd:
            return
        records, rows = given
        gone = gone | {row for row, one in failures.errors.items() if one.stage != Stage.HEADER_CONVERTER}
        places = sorted(frozenset().union(*odd.values()))
        taken = pa.array(places)
        raw = {side: mine.column(side).take(taken).to_pylist() for side in odd}
        for number, place in enumerate(places):
            row, record = rows[place], records[place]
            if row not in gone:
                assert isinstance(record, SinkRecord), "it was made for a sink"
                sides = (side for side, those in odd.items() if place in those)
                all(self._sides[side].read(record, raw[side][number], row, failures) for side in sides)


def _is_all(rows: np.ndarray, count: int) -> bool:
    """True if rows are all of this number of rows, in their order."""
    return np.array_equal(rows, np.arange(count))


def _change(records: Sequence[ConnectRecord], outcome: GroupOutcome) -> None:
    """Sets the topics, partitions and timestamps that a job has changed."""
    for name, attribute in (("topic", "topic"), ("partition", "kafka_partition"), ("timestamp", "timestamp")):
        if name in outcome.columns:
            for record, value in zip(records, outcome.columns[name].to_pylist(), strict=True):
                setattr(record, attribute, value)
