"""JsonConverter: JSON, with or without the schema in each message. A frame sink receives typed columns in both cases.

Messages that are nested too deeply are found before anything parses them: the length of a message, or for long messages
the number of opening brackets, decides nearly all cases, in one pass in C over the column.

Thread: one instance for each task; the functions: any.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.api.arrow import one_array
from penstock.config import CaseInsensitiveValidString, Importance, Width, setting
from penstock.converters.json.byte_columns import ShortcutMemory, odd_rows, plain_column
from penstock.converters.json.envelope import (
    BAD_SYNTAX,
    LACKS_ENVELOPE,
    Envelope,
    Envelopes,
    UnreadableMessages,
    read_schema,
    schema_text,
)
from penstock.converters.json.plain_bytes import UnreadableBytesError, plain_json
from penstock.converters.json.reading import ReadJson
from penstock.converters.json.schemaless import AlikeObjects, ReadObjects, json_texts, read_schemaless_column
from penstock.converters.json.structs import PlainPayloads
from penstock.converters.json.values import (
    MISSING,
    first_json,
    parse_json,
    read_schemaless,
    read_value,
    write_schemaless,
    write_value,
)
from penstock.converters.json.writing import json_column
from penstock.converters.primitives import ConverterConfig, PlainConverter, WriteSide
from penstock.data import ConnectHeaders, Schema, SchemaAndValue
from penstock.errors import DataException, SerializationException
from penstock.pipeline.columns.json_text import JsonText, escaped, has_struct_default, joined
from penstock.pipeline.columns.layout import TextBound, lowest_bound, text_bound
from penstock.pipeline.columns.sizes import (
    MAX_LEVELS,
    MAX_SCHEMA_LEVELS,
    TOO_DEEP_SCHEMA,
    bytes_of,
    check_schema,
    exceeds,
    offsets_of,
    places_of,
)
from penstock.pipeline.plan import map_structs
from penstock.pipeline.plan.map_structs import as_struct
from penstock.pipeline.plan.step import (
    RAW_TEXT,
    NameColumn,
    ReadAtOnce,
    Side,
    SideName,
    Sorted,
    Step,
    StepFault,
    TextsAtOnce,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class WriteJson(WriteSide):
    """Writes keys or values as JSON. ``numeric``: decimals as numbers; ``defaults``: a null as its default."""

    schemas: bool
    numeric: bool
    defaults: bool
    result: ClassVar[Side] = RAW_TEXT

    def check(self, known: Side) -> None:
        """See ``WriteSide``. A schema with a struct as default fails all records of this shape, as in Java."""
        if self.schemas and has_struct_default(known.schema):
            raise DataException("Mismatching schema.")

    def written(self, column: Column, known: Side, keep: NameColumn) -> tuple[Column, *tuple[StepFault, ...]]:
        if known.physical.children:
            # Named, because each field uses it: the plan would repeat preceding transforms for each use.
            column = keep(column)
        if known.schema is None:
            return (self._schemaless(column, known, keep),)
        return self._typed(column, known.schema, known, keep)

    def _typed(
        self, column: Column, schema: Schema, known: Side, keep: NameColumn
    ) -> tuple[Column, *tuple[StepFault, ...]]:
        writer = JsonText(self.numeric, self.defaults, known.complete)
        parts = writer.value_parts(column, schema, known.physical, present=known.present)
        bound = lowest_bound(known.physical)
        if has_struct_default(schema):
            bound = TextBound.ANY  # Such a schema has no text.
        else:
            head = schema_text(schema, numeric=self.numeric)
            # The text contains field names and defaults; characters beyond U+FFFF are already two escapes in it.
            bound = TextBound.ANY if "\\u" in head else min(bound, text_bound(head))
            if self.schemas:
                parts = [f'{{"schema":{head},"payload":', *parts, "}"]
        text = joined(parts)
        problem = writer.problem(column, schema, known.physical, present=known.present)
        faults = () if problem is None else (StepFault(problem.isNotNull(), problem, DataException.java_name),)
        return text if bound >= TextBound.BMP else escaped(keep(text)), *faults

    def _schemaless(self, column: Column, known: Side, keep: NameColumn) -> Column:
        text = JsonText().value_text(column, known.carrier, as_struct(known.physical))
        if self.schemas:
            text = F.concat(F.lit('{"schema":null,"payload":'), text, F.lit("}"))
        if lowest_bound(known.physical) < TextBound.BMP:
            text = escaped(keep(text))
        # Null without schema is a null message, even with schemas.
        return F.when(column.isNotNull(), text)


TOO_DEEP: Final = f"the message has more than {MAX_LEVELS} levels of nesting"

_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|$)', re.DOTALL)
_STEPS: Final = np.zeros(256, dtype=np.int32)
_STEPS[list(b"{[")] = 1
_STEPS[list(b"}]")] = -1


def without_deep(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, np.ndarray | None]:
    """Replaces messages that are nested too deeply by null; returns their rows, too, None = no rows."""
    long = np.flatnonzero(pc.greater(pc.binary_length(column), MAX_LEVELS).fill_null(False).to_numpy())
    if not len(long):
        return column, None
    found = column if len(long) == len(column) else column.take(pa.array(long))
    many = long[np.concatenate([_opened(chunk) for chunk in found.chunks]) > MAX_LEVELS]
    deep = [row for row in many.tolist() if is_too_deep(column[row].as_py())]
    if not deep:
        return column, None
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[deep] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, column.type), column), np.array(deep)


def _opened(chunk: pa.BinaryArray) -> np.ndarray:
    """Counts the opening brackets of each message, including those in strings."""
    if not len(chunk):
        return np.empty(0, np.int64)
    bounds = offsets_of(chunk)
    # The two brackets differ only in this bit.
    places = places_of(bytes_of(chunk), ord("[") & ord("{"), mask=0xFF ^ (ord("[") ^ ord("{")))
    return np.diff(np.searchsorted(places, bounds - bounds[0]))


def is_too_deep(message: bytes) -> bool:
    """True if a message is nested too deeply."""
    return message.count(b"{") + message.count(b"[") > MAX_LEVELS and levels(message) > MAX_LEVELS


def levels(message: bytes) -> int:
    """Counts the levels of nested objects and arrays in a text, whether it is JSON or not.

    >>> levels(b'{"a[[[": [1, {"\\\\"{": 2}]}'), levels(b"[]"), levels(b"1")
    (3, 1, 0)
    """
    steps = _STEPS[np.frombuffer(_STRINGS.sub(b"", message), dtype=np.uint8)]
    return int(np.cumsum(steps).max(initial=0))


_schemas: Final = partial(setting, importance=Importance.HIGH, group="Schemas", width=Width.MEDIUM)
_serialization: Final = partial(setting, importance=Importance.LOW, group="Serialization", width=Width.MEDIUM)


class JsonConverterConfig(ConverterConfig):
    """The settings of ``JsonConverter``."""

    schemas_enable: bool | None = _schemas(
        default=True,
        doc="Include schemas within each of the serialized values and keys.",
        order=0,
        display_name="Enable Schemas",
    )
    schemas_cache_size: int | None = _schemas(
        default=1000,
        doc="The maximum number of schemas that can be cached in this converter instance.",
        order=1,
        display_name="Schema Cache Size",
    )
    schema_content: str | None = _schemas(
        default=None,
        doc="When set, this is used as the schema for all messages, and messages hold no schema of their own.",
        order=2,
        display_name="Schema Content",
    )
    decimal_format: str | None = _serialization(
        default="BASE64",
        validator=CaseInsensitiveValidString("BASE64", "NUMERIC"),
        doc="Controls which format this converter will serialize decimals in. "
        "This value is case insensitive and can be either 'BASE64' (default) or 'NUMERIC'",
        order=0,
        display_name="Decimal Format",
    )
    replace_null_with_default: bool | None = _serialization(
        default=True,
        doc="Whether to replace fields that have a default value and that are null to the default value. "
        "When set to true, the default value is used, otherwise null is used.",
        order=1,
        display_name="Replace null with default",
    )


T = TypeVar("T")


class NullSettingError(TypeError):
    """A setting that Java unboxes is null."""

    java_name: ClassVar[str] = "java.lang.NullPointerException"


def not_null(name: str, value: T | None) -> T:
    """Returns the value of a setting that Java unboxes.

    Raises:
        NullSettingError: The value is null.
    """
    if value is None:
        raise NullSettingError(f"{name} must not be null")
    return value


class JsonConverter(PlainConverter):
    """JSON. Defaults: with schemas, decimals in base64, nulls replaced by defaults.

    Without schemas (``schemas.enable=false``) values have no declared types. A frame sink receives typed columns:
    structs with all fields seen so far on each topic.
    """

    java_name: ClassVar[str] = "org.apache.kafka.connect.json.JsonConverter"
    settings = JsonConverterConfig

    def __init__(self) -> None:
        self._schemas = True
        self._numeric = False
        self._defaults = True
        self._content: Schema | None = None
        self._envelopes = Envelopes(1000, defaults=True)
        self._alike = AlikeObjects()
        self._all_alike = ShortcutMemory(1)
        self._payloads = PlainPayloads(defaults=True)

    def take(self, config: ConverterConfig) -> None:
        assert isinstance(config, JsonConverterConfig)
        self._schemas = not_null("schemas.enable", config.schemas_enable)
        cache_size = not_null("schemas.cache.size", config.schemas_cache_size)
        self._numeric = not_null("decimal.format", config.decimal_format).upper() == "NUMERIC"
        self._defaults = not_null("replace.null.with.default", config.replace_null_with_default)
        self._envelopes = Envelopes(cache_size, defaults=self._defaults)
        self._payloads = PlainPayloads(defaults=self._defaults)
        content = config.schema_content
        self._content = self._read_content(content) if content and self._schemas else None

    def _read_content(self, content: str) -> Schema | None:
        try:
            node = parse_json(content)
        except ValueError as error:
            raise DataException(
                f"Failed to parse schema in converter config due to serialization error: {error}"
            ) from SerializationException(str(error))
        schema = read_schema(node, defaults=self._defaults)
        check_schema(schema)
        return schema

    @property
    def reads_text(self) -> bool:
        """See ``ColumnConverter``. True: the text of a message is used unchanged."""
        return True

    @property
    def is_schemaless(self) -> bool:
        """See ``ColumnConverter``. True without schemas."""
        return not self._schemas

    def writing(self, side: SideName) -> Step:
        return WriteJson(side, self._schemas, self._numeric, self._defaults)

    def write_column(self, side: Side, column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnConverter``. Writes values with a schema in nearly all layouts."""
        if side.schema is None:
            return None
        return json_column(
            one_array(column),
            side.schema,
            side.physical,
            schemas=self._schemas,
            numeric=self._numeric,
            defaults=self._defaults,
        )

    def reading(self, side: SideName, hint: Hashable) -> Step:
        """See ``ColumnConverter``. The hint is the envelope of the messages, or the known layout of plain messages."""
        if isinstance(hint, Side):
            return ReadObjects(side, hint)
        if isinstance(hint, Envelope) and exceeds(hint.schema, MAX_SCHEMA_LEVELS):
            hint = _REFUSED_SCHEMA
        return ReadJson(side, cast("Any", hint), self._content, self._defaults)

    def sort(self, column: pa.ChunkedArray, *, worked_on: bool, beside_spark: bool) -> Sorted:
        """See ``ColumnConverter``. Reads messages that look alike as typed columns; rejects messages that are nested
        too deeply.
        """
        return _sorted_but_refused(column, lambda good: self._sort(good, worked_on, beside_spark))

    def _sort(self, column: pa.ChunkedArray, worked_on: bool, beside_spark: bool) -> Sorted:
        if not self._schemas:
            return self._alike.sort(column, read=beside_spark) if worked_on else Sorted(hints=(None,))
        if self._content is None:
            found = self._envelopes.sort(column)
        else:
            found = Sorted(hints=(None,), deep=exceeds(self._content))
        if found.deep or not beside_spark:
            return found
        found = self._payloads.read(found, column if found.column is None else found.column, self._content)
        # What has been read passes as it came.
        return replace(found, column=None) if len(found.read) == len(found.hints) else found

    def read_at_once(self, column: pa.ChunkedArray) -> ReadAtOnce | None:
        """See ``ColumnConverter``. Reads all messages without schemas, except doubtful ones."""
        return None if self._schemas else self._read_at_once(column)

    def _read_at_once(self, column: pa.ChunkedArray) -> ReadAtOnce:
        shallow, deep = without_deep(column)
        refused = [*odd_rows(column), *(() if deep is None else deep.tolist())]
        values, odd = read_schemaless_column(shallow, refused)
        return ReadAtOnce(None, values, odd)

    def read_objects(self, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """See ``ColumnConverter``. Messages that are written like one of them are cut, without Python's objects."""
        if self._schemas or not self._all_alike.worth(None):
            return None
        found = None if odd_rows(column) else self._alike.read_all(column)
        if found is None and len(column) >= map_structs.MIN_ROWS:
            self._all_alike.note(None, 2, 1)
        return found

    def texts_at_once(self, column: pa.ChunkedArray) -> TextsAtOnce | None:
        """See ``ColumnConverter``. Reads all messages without schemas, except doubtful ones."""
        if self._schemas:
            return None
        return json_texts(column, self.sort(column, worked_on=True, beside_spark=True), self._read_at_once)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``. Writes one value in Python."""
        if schema is None and value is None:
            return None
        try:
            if schema is None:
                data = write_schemaless(value, numeric=self._numeric, defaults=self._defaults)
                return b'{"schema":null,"payload":%b}' % data if self._schemas else data
            text = write_value(schema, value, numeric=self._numeric, defaults=self._defaults)
        except RecursionError as error:
            raise _beyond_python(schema) from error
        if self._schemas:
            text = f'{{"schema":{schema_text(schema, numeric=self._numeric)},"payload":{text}}}'
        return text.encode("utf-8", "surrogatepass")

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. Reads one message in Python."""
        if data is None:
            return SchemaAndValue(None, None)
        try:
            data = plain_json(data)
        except UnreadableBytesError as error:
            raise DataException(_refused(str(error)).message) from error
        if is_too_deep(data):
            raise DataException(_REFUSED_DEPTH.message)
        try:
            if not self._schemas:
                return SchemaAndValue(None, read_schemaless(data))
            node = first_json(data)
        except ValueError as error:
            raise DataException(BAD_SYNTAX) from error
        except RecursionError as error:
            raise _beyond_python(None) from error
        try:
            return self._read(node, data)
        except RecursionError as error:
            raise _beyond_python(None) from error

    def _read(self, node: Any, data: bytes) -> SchemaAndValue:
        if self._content is not None:
            # Without any JSON there is not even a null: numbers become 0, for example.
            payload = node if data.strip(b" \t\r\n") else MISSING
            return SchemaAndValue(self._content, read_value(self._content, payload, defaults=self._defaults))
        if not isinstance(node, dict) or node.keys() != {"schema", "payload"}:
            raise DataException(LACKS_ENVELOPE)
        schema = self._envelopes.schema_of(node["schema"])
        return SchemaAndValue(schema, read_value(schema, node["payload"], defaults=self._defaults))


_REFUSED_SCHEMA: Final = UnreadableMessages(TOO_DEEP_SCHEMA, DataException.java_name)
_REFUSED_DEPTH: Final = UnreadableMessages(f"{BAD_SYNTAX}{TOO_DEEP}", DataException.java_name)


def _refused(reason: str) -> UnreadableMessages:
    return UnreadableMessages(f"{BAD_SYNTAX}{reason}", DataException.java_name)


def _beyond_python(schema: Schema | None) -> DataException:
    """The error for a value that is nested too deeply for Python, which needs several calls for each level."""
    what = "message or value" if schema is None else "value of this schema"
    return DataException(f"The {what} is nested too deeply to be converted record by record")


def _sorted_but_refused(column: pa.ChunkedArray, sort: Callable[[pa.ChunkedArray], Sorted]) -> Sorted:
    """Sorts messages with ``sort``; messages that no parser may see are rejected first."""
    plain = plain_column(column)
    good, deep = without_deep(plain.column)
    found = sort(good)
    if good is column:
        return found
    size = len(column)
    for reason, rows in plain.refused.items():
        found = found.with_hint(_refused(reason), np.array(rows), size)
    if deep is not None:
        found = found.with_hint(_REFUSED_DEPTH, deep, size)
    return replace(found, column=found.column or good, changed=plain.changed)
