"""Transforms that give fields new values: InsertField adds metadata or a fixed text, MaskField replaces values.

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: InsertField and MaskField of org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import cached_property, lru_cache, partial, reduce
from itertools import combinations
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord, SinkRecord
from penstock.api.transform import R
from penstock.config import AbstractConfig, AnyNonDuplicate, Importance, NonEmptyString, setting
from penstock.data import (
    Date,
    Decimal,
    FarDate,
    FarMoment,
    FarTimestamp,
    Schema,
    SchemaBuilder,
    Time,
    Timestamp,
    Type,
    Values,
)
from penstock.data.parser import parse_decimal
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_text import java_class, java_class_of_value
from penstock.pipeline.columns.json_text import literal
from penstock.pipeline.columns.layout import (
    CLEAN_SCALAR,
    SCALAR,
    UNSCALED,
    Layout,
    LayoutKind,
    TextBound,
    logical_name,
    spark_type,
    text_bound,
)
from penstock.pipeline.plan.map_structs import ValueDescription, members_of, object_column, object_side
from penstock.pipeline.plan.step import (
    Branch,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Split,
    StepFault,
    StepPlan,
)
from penstock.transforms.definition import (
    StockTransform,
    null_replacement,
    pair,
    replaces_nulls,
    require_map,
    require_struct,
)
from penstock.transforms.fields import (
    Change,
    FieldSelection,
    Making,
    Nulls,
    OfChanges,
    OfFields,
    schema_like,
    side_of,
    with_side,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


_PURPOSE: Final = "field insertion"
#: The metadata of every record.
_NEVER_NULL: Final = frozenset(("static", "topic"))
_SUFFIXES: Final = (
    "Suffix with <code>!</code> to make this a required field, or <code>?</code> to keep it optional (the default)."
)
_SOURCE_RECORD: Final = "org.apache.kafka.connect.source.SourceRecord"
NOT_A_SINK: Final = f"Only SinkRecord supported for [{_PURPOSE}], found: {_SOURCE_RECORD}"


class InsertFieldConfig(AbstractConfig):
    """The settings of ``InsertField``."""

    topic_field: str | None = setting(default=None, doc=f"Field name for Kafka topic. {_SUFFIXES}")
    partition_field: str | None = setting(default=None, doc=f"Field name for Kafka partition. {_SUFFIXES}")
    offset_field: str | None = setting(
        default=None, doc=f"Field name for Kafka offset - only applicable to sink connectors. {_SUFFIXES}"
    )
    timestamp_field: str | None = setting(default=None, doc=f"Field name for record timestamp. {_SUFFIXES}")
    static_field: str | None = setting(default=None, doc=f"Field name for static data field. {_SUFFIXES}")
    static_value: str | None = setting(default=None, doc="Static field value, if field name configured.")
    replace_null_with_default: bool | None = null_replacement()


_KINDS: Final = {"topic": Type.STRING, "partition": Type.INT32, "offset": Type.INT64, "static": Type.STRING}
#: The same without a schema, where integers have one width.
_OBJECT_KINDS: Final = {**_KINDS, "partition": Type.INT64, "timestamp": Type.INT64}
#: Metadata that a record may lack.
_AT_TIMES: Final = frozenset(("partition", "timestamp"))


@dataclass(frozen=True)
class Insertion:
    """A field to add; ``what`` is its source: topic, partition, offset, timestamp or static."""

    what: str
    name: str
    optional: bool

    @classmethod
    def parse(cls, what: str, text: str | None) -> Insertion | None:
        """Reads ``name``, ``name?`` (optional) or ``name!`` (required)."""
        if text is None:
            return None
        if text.endswith("?"):
            return cls(what, text[:-1], True)
        if text.endswith("!"):
            return cls(what, text[:-1], False)
        return cls(what, text, True)

    def schema(self) -> Schema:
        """The schema of the field."""
        builder = Timestamp.builder() if self.what == "timestamp" else SchemaBuilder.type(_KINDS[self.what])
        return builder.optional().build() if self.optional else builder.build()


def _moment(millis: object) -> object:
    """The timestamp of a record as the value of a field with a schema."""
    return Timestamp.to_logical(Timestamp.SCHEMA, millis) if isinstance(millis, int) else millis


@dataclass(frozen=True)
class Insert(OfFields):
    """Adds fields to a key or value."""

    side: SideName
    insertions: tuple[Insertion, ...]
    static: str | None
    defaults: bool
    purpose: ClassVar[str] = _PURPOSE

    def select(self, schema: Schema) -> FieldSelection:
        """The added fields follow the others."""
        kept = [(one.name, one.schema) for one in schema.fields]
        extended = schema_like(schema, [*kept, *((one.name, one.schema()) for one in self.insertions)])
        return FieldSelection.of_all(extended, schema.fields, self.defaults)

    def apply(self, record: R) -> R | None:
        schema, value = side_of(record, self.side)
        if value is None:
            return record
        if schema is None:
            changed = dict(require_map(value, self.purpose))
            for one, found in zip(self.insertions, self._values_of(record), strict=True):
                if found is not None:
                    changed[one.name] = found
            return with_side(record, self.side, None, changed)
        struct = require_struct(value, schema, self.purpose)
        selection = self.selected(struct.schema)
        added = self._values_of(record)
        inserted = selection.struct(struct)
        pairs = zip(self.insertions, added, strict=True)
        inserted.values += [_moment(found) if one.what == "timestamp" else found for one, found in pairs]
        return with_side(record, self.side, selection.schema, inserted)

    def _values_of(self, record: ConnectRecord) -> list[object]:
        if not isinstance(record, SinkRecord) and any(one.what == "offset" for one in self.insertions):
            raise DataException(NOT_A_SINK)
        return [self.static if one.what == "static" else _READERS[one.what](record) for one in self.insertions]

    def _needs_sink(self, shape: Shape) -> bool:
        return not shape.sink and any(one.what == "offset" for one in self.insertions)

    def planned(self, shape: Shape, side: Side, make: Making) -> StepPlan:
        plan = super().planned(shape, side, make)
        return replace(plan, reads=plan.reads | {one.what for one in self.insertions if one.what != "static"})

    # ------------------------------------------------------------------ with schema
    def plan_struct(self, shape: Shape, known: Side, selection: FieldSelection) -> StepPlan | Split:
        if self._needs_sink(shape):
            return self.failing(shape, NOT_A_SINK)
        inserted = [replace(SCALAR, text=self._text_bound(one)) for one in self.insertions]
        physical = Layout(LayoutKind.STRUCT, (*selection.layout(known.physical).children, *inserted))
        complete = known.complete and all(one.optional or one.what in _NEVER_NULL for one in self.insertions)

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            fields, faults = selection.columns(record.side(self.side), known, keep)
            fields += [self._value(record, one).alias(one.name) for one in self.insertions]
            return Made({self.side: F.struct(*fields)}, faults)

        side = Side.of(selection.schema, physical, present=True, complete=complete)
        return self.unless_null(shape, self.planned(shape, side, make))

    def _text_bound(self, insertion: Insertion) -> TextBound:
        # Topic names consist of ASCII letters, digits, dots, underscores and hyphens; the other metadata are numbers.
        return text_bound(self.static or "") if insertion.what == "static" else TextBound.CLEAN

    def _value(self, record: RecordColumns, insertion: Insertion) -> Column:
        if insertion.what == "static":
            return F.lit(self.static).cast("string")
        return cast("Column", getattr(record, insertion.what))

    # ------------------------------------------------------------------ without
    def plan_members(self, shape: Shape, known: Side) -> StepPlan | Split:
        if self._needs_sink(shape):
            return self.failing(shape, NOT_A_SINK)
        at_times = [one for one in self.insertions if one.what in _AT_TIMES]
        # A null is not inserted, so records with and without it are separated here: their members differ.
        branches = [
            Branch(
                partial(_are_there, there) if there else None,
                self._plan_inserted(
                    shape, known, [one for one in self.insertions if one in there or one not in at_times]
                ),
                frozenset(one.what for one in there),
            )
            for count in range(len(at_times), -1, -1)
            for there in combinations(at_times, count)
        ]
        return branches[0].plan if len(branches) == 1 else Split(branches)

    def _plan_inserted(self, shape: Shape, known: Side, insertions: Sequence[Insertion]) -> StepPlan:
        before = members_of(known)
        added = {one.name: self._member(one) for one in insertions}

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            value = record.side(self.side)
            columns = {name: value.getField(name) for name in before}
            columns |= {
                one.name: self._value(record, one).cast(spark_type(added[one.name].schema)) for one in insertions
            }
            return Made({self.side: object_column(value, known, columns)})

        side = object_side({**before, **added}, present=known.present)
        return self.planned(shape, side, make)

    def _member(self, insertion: Insertion) -> ValueDescription:
        schema = Schema(_OBJECT_KINDS[insertion.what], optional=True)
        return ValueDescription(schema, replace(SCALAR, text=self._text_bound(insertion)))


def _are_there(insertions: Sequence[Insertion], record: RecordColumns) -> Column:
    present: list[Column] = [getattr(record, one.what).isNotNull() for one in insertions]
    return reduce(and_, present)


_READERS: Final[Mapping[str, Callable[[ConnectRecord], object]]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: record.kafka_partition,
    "timestamp": lambda record: record.timestamp,
    "offset": lambda record: record.kafka_offset if isinstance(record, SinkRecord) else None,
}


class _InsertField(StockTransform[InsertFieldConfig]):
    """Adds record metadata, or a fixed text, as fields of the key or value."""

    settings = InsertFieldConfig

    def define(self, config: InsertFieldConfig) -> Insert:
        static = Insertion.parse("static", config.static_field)
        parsed = (
            Insertion.parse("topic", config.topic_field),
            Insertion.parse("partition", config.partition_field),
            Insertion.parse("offset", config.offset_field),
            Insertion.parse("timestamp", config.timestamp_field),
            static,
        )
        insertions = tuple(one for one in parsed if one is not None)
        if not insertions:
            raise ConfigException("No field insertion configured")
        if static is not None and config.static_value is None:
            raise ConfigException("static.value", None, f"No value specified for static field: {static.name}")
        return Insert(self.side, insertions, config.static_value, replaces_nulls(config.replace_null_with_default))


InsertFieldKey, InsertFieldValue = pair(_InsertField)


class MaskFieldConfig(AbstractConfig):
    """The settings of ``MaskField``."""

    fields: tuple[str, ...] = setting(
        validator=AnyNonDuplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Names of fields to mask.",
    )
    replacement: str | None = setting(
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        doc="Custom value replacement, that will be applied to all 'fields' values "
        "(numeric or non-empty string values only).",
    )
    replace_null_with_default: bool | None = null_replacement()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZEROS: Final[Mapping[Type, object]] = {
    Type.INT8: 0,
    Type.INT16: 0,
    Type.INT32: 0,
    Type.INT64: 0,
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
    Type.ARRAY: [],
    Type.MAP: {},
}
_REPLACED: Final[Mapping[Type, Callable[[Schema | None, object], object]]] = {
    Type.INT8: Values.convert_to_byte,
    Type.INT16: Values.convert_to_short,
    Type.INT32: Values.convert_to_integer,
    Type.INT64: Values.convert_to_long,
    Type.FLOAT32: Values.convert_to_float,
    Type.FLOAT64: Values.convert_to_double,
    Type.STRING: lambda _, text: text,
}


@lru_cache(maxsize=256)
def masked(schema: Schema, replacement: str | None) -> object:
    """The masked form of a non-null value of a schema; raises DataException if it cannot be masked."""
    logical = logical_name(schema)
    if logical == Decimal.LOGICAL_NAME:
        return decimal.Decimal(0) if replacement is None else _decimal(replacement)
    if replacement is None:
        if logical is None and schema.type not in _ZEROS:
            raise DataException(f"Cannot mask value of type: class {java_class(schema)}")
        return 0 if logical is not None else _ZEROS[schema.type]
    convert = _REPLACED.get(schema.type) if logical is None else None
    if convert is None:
        raise DataException(f"Cannot mask value of type class {java_class(schema)} with custom replacement.")
    try:
        return convert(None, replacement)
    except DataException:
        raise DataException(f"Unable to convert {replacement} (class java.lang.String) to a number") from None


def _decimal(replacement: str) -> decimal.Decimal:
    number = parse_decimal(replacement)
    if number is None:
        raise DataException(f"Unable to convert {replacement} (class java.lang.String) to number")
    return number


_SCHEMAS: Final[Mapping[type, Schema]] = {
    decimal.Decimal: Decimal.schema(0),
    bool: Schema(Type.BOOLEAN),
    int: Schema(Type.INT64),
    float: Schema(Type.FLOAT64),
    str: Schema(Type.STRING),
    list: Schema(Type.ARRAY),
    dict: Schema(Type.MAP),
}


_MOMENTS: Final[Mapping[str, Callable[[Schema, Any], object]]] = {
    Date.LOGICAL_NAME: Date.to_logical,
    Time.LOGICAL_NAME: Time.to_logical,
    Timestamp.LOGICAL_NAME: Timestamp.to_logical,
}


def _schema_of(value: object) -> Schema | None:
    """The schema of a schemaless value; None if no schema can be masked this way."""
    if isinstance(value, FarMoment):
        return None
    for kind in type(value).__mro__:
        if kind in _SCHEMAS:
            return _SCHEMAS[kind]
    return None


@dataclass(frozen=True)
class Masked(Change):
    """Replaces every non-null value by the empty value of its type, or by the replacement."""

    replacement: str | None

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        try:
            mask = masked(schema, self.replacement)
        except DataException:
            return physical
        if physical.form is LayoutKind.DECIMAL:
            return UNSCALED  # The mask has its own scale.
        return replace(physical, text=text_bound(mask)) if isinstance(mask, str) else physical

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        try:
            mask = literal(masked(schema, self.replacement), schema, self.layout(schema, physical))
        except DataException as error:
            return column, [StepFault(column.isNotNull(), str(error), DataException.java_name)]
        return F.when(column.isNotNull(), mask), ()

    def member(self, known: ValueDescription | None) -> ValueDescription:
        if known is None:
            return ValueDescription(Schema(Type.STRING, optional=True), CLEAN_SCALAR)
        return replace(known, physical=self.layout(known.schema, known.physical))

    def value(self, schema: Schema | None, value: object) -> object:
        if value is None:
            return None
        if schema is None:
            schema = _schema_of(value)
        if schema is not None:
            mask = masked(schema, self.replacement)
            to_logical = _MOMENTS.get(logical_name(schema) or "")
            return mask if to_logical is None else to_logical(schema, mask)
        if self.replacement is not None or not isinstance(value, (date, time, FarMoment)):
            how = ": class " if self.replacement is None else " class "
            end = "" if self.replacement is None else " with custom replacement."
            raise DataException(f"Cannot mask value of type{how}{java_class_of_value(value)}{end}")
        if isinstance(value, (datetime, FarTimestamp)):
            return _EPOCH
        return _EPOCH.date() if isinstance(value, (date, FarDate)) else time()


@dataclass(frozen=True)
class Mask(OfChanges):
    """Masks fields of a key or value."""

    side: SideName
    fields: tuple[str, ...]
    replacement: str | None
    defaults: bool
    purpose: ClassVar[str] = "mask fields"
    nulls: ClassVar[Nulls] = Nulls.FAIL

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        return dict.fromkeys(self.fields, Masked(self.replacement))

    def updated(self, schema: Schema) -> Schema:
        return schema


class _MaskField(StockTransform[MaskFieldConfig]):
    """Replaces fields by the empty value of their type, or by a fixed replacement."""

    settings = MaskFieldConfig

    def define(self, config: MaskFieldConfig) -> Mask:
        return Mask(self.side, config.fields, config.replacement, replaces_nulls(config.replace_null_with_default))


MaskFieldKey, MaskFieldValue = pair(_MaskField)
