"""InsertField: adds record metadata, or a fixed text, as fields of the key or value.

Classes ``InsertFieldKey`` and ``InsertFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline
thread. Source: org.apache.kafka.connect.transforms.InsertField.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from operator import and_
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord, SinkRecord
from penstock.api.transform import R
from penstock.config import AbstractConfig, setting
from penstock.data import Schema, SchemaBuilder, Timestamp, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.layout import SCALAR, Layout, LayoutKind, TextBound, spark_type, text_bound
from penstock.pipeline.plan.map_structs import ValueDescription, members_of, object_column, object_side
from penstock.pipeline.plan.step import Branch, Made, NameColumn, RecordColumns, Shape, Side, SideName, Split, StepPlan
from penstock.transforms.definition import (
    StockTransform,
    null_replacement,
    pair,
    replaces_nulls,
    require_map,
    require_struct,
)
from penstock.transforms.fields.definition import Making, OfFields, side_of, with_side
from penstock.transforms.fields.selection import FieldSelection, schema_like

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
    """A field to add: its source (topic, partition, offset, timestamp, static), its name, and whether it is
    optional.
    """

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
        """See ``OfFields``. The added fields follow the others."""
        kept = [(one.name, one.schema) for one in schema.fields]
        extended = schema_like(schema, [*kept, *((one.name, one.schema()) for one in self.insertions)])
        return FieldSelection.of_all(extended, schema.fields, self.defaults)

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
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
        """See ``OfFields``."""
        plan = super().planned(shape, side, make)
        return replace(plan, reads=plan.reads | {one.what for one in self.insertions if one.what != "static"})

    # ------------------------------------------------------------------ with schema
    def plan_struct(self, shape: Shape, known: Side, selection: FieldSelection) -> StepPlan | Split:
        """See ``OfFields``."""
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
        """See ``OfFields``."""
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
