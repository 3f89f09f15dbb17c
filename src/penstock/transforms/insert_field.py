"""InsertField: adds record metadata, or a fixed text, as fields of the key or value.

Classes ``InsertFieldKey`` and ``InsertFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline
thread. Source: org.apache.kafka.connect.transforms.InsertField.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from operator import and_
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord, SinkRecord, Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, setting
from penstock.data import Schema, SchemaBuilder, Struct, Timestamp, Type
from penstock.errors import ConfigException, DataException, SchemaBuilderException
from penstock.pipeline.objects import Member, members_of, object_column, object_side
from penstock.pipeline.step import (
    Bag,
    Branch,
    ColumnTransform,
    Fault,
    Keep,
    Made,
    Shape,
    Side,
    SideName,
    Split,
    Step,
    StepPlan,
)
from penstock.pipeline.text_bounds import text_bound
from penstock.pipeline.types import SCALAR, Form, Physical, TextBound, spark_type
from penstock.transforms.requirements import java_class, no_map, no_struct, require_map, require_struct
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.struct_copies import (
    copied_layout,
    field_column,
    field_value,
    filled,
    required_fault,
    schema_like,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "field insertion"
#: What every record has.
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
#: What a record need not have.
_AT_TIMES: Final = frozenset(("partition", "timestamp"))


@dataclass(frozen=True)
class Insertion:
    """One field to add: what (topic, partition, offset, timestamp, static), its name, whether it may be null."""

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
        """Schema of the field."""
        builder = Timestamp.builder() if self.what == "timestamp" else SchemaBuilder.type(_KINDS[self.what])
        return builder.optional().build() if self.optional else builder.build()


def _extended(schema: Schema, insertions: Sequence[Insertion]) -> Schema:
    kept = [(field.name, field.schema) for field in schema.fields]
    return schema_like(schema, [*kept, *((one.name, one.schema()) for one in insertions)])


@dataclass(frozen=True)
class Insert(Step):
    """Adds fields to one side."""

    side: SideName
    insertions: tuple[Insertion, ...]
    static: str | None
    defaults: bool
    bounds_text: ClassVar[bool] = True

    def plan(self, shape: Shape) -> StepPlan | Split:
        """See ``Step``. A side that no record has stays as it is."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        if known.is_object:
            return self._plan_objects(shape, known)
        if known.schema is None:
            found = "java.lang.String" if known.carrier is None else java_class(known.carrier)
            return self._failing(shape, f"{no_map(_PURPOSE)}{found}", DataException.java_name)
        inserted = self._plan_struct(shape, known)
        if known.present:
            return inserted
        # A null keeps its old schema, so null and other records part here.
        return Split([Branch(self._is_null, StepPlan(shape), frozenset({self.side})), Branch(None, inserted)])

    def _is_null(self, bag: Bag) -> Column:
        return bag.side(self.side).isNull()

    def _reads(self) -> frozenset[str]:
        return frozenset({self.side} | {one.what for one in self.insertions if one.what != "static"})

    def _needs_sink(self, shape: Shape) -> bool:
        return not shape.sink and any(one.what == "offset" for one in self.insertions)

    def _failing(self, shape: Shape, message: str, exception: str) -> StepPlan:
        """The plan where no value but null can pass."""

        def make(bag: Bag, keep: Keep) -> Made:
            return Made(faults=(Fault(bag.side(self.side).isNotNull(), message, exception),))

        return StepPlan(shape, make, frozenset({self.side}))

    # ------------------------------------------------------------------ with schema
    def _plan_struct(self, shape: Shape, known: Side) -> StepPlan:
        schema = known.schema
        assert schema is not None
        if schema.type is not Type.STRUCT or known.physical.form is not Form.STRUCT:
            return self._failing(shape, f"{no_struct(_PURPOSE)}{java_class(schema)}", DataException.java_name)
        try:
            extended = _extended(schema, self.insertions)
        except SchemaBuilderException as error:
            return self._failing(shape, str(error), SchemaBuilderException.java_name)
        if self._needs_sink(shape):
            return self._failing(shape, NOT_A_SINK, DataException.java_name)
        inserted = [replace(SCALAR, text=self._text_bound(one)) for one in self.insertions]
        pairs = zip(schema.fields, known.physical.children, strict=True)
        copied = [copied_layout(one, child, defaults=self.defaults) for one, child in pairs]
        physical = Physical(Form.STRUCT, (*copied, *inserted))
        complete = known.complete and all(one.optional or one.what in _NEVER_NULL for one in self.insertions)
        side = Side.of(extended, physical, present=True, complete=complete)
        # What has no default either is null in values alone that nothing should have let through.
        with_defaults = [(one.name, one) for one in schema.fields if one.schema.default is not None]

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            fields = [
                field_column(value, field, child, defaults=self.defaults).alias(field.name)
                for field, child in zip(schema.fields, known.physical.children, strict=True)
            ]
            fields += [self._value(bag, one).alias(one.name) for one in self.insertions]
            required = required_fault(value, with_defaults, defaults=self.defaults, complete=known.complete)
            return Made({self.side: F.struct(*fields)}, () if required is None else (required,))

        return StepPlan(shape.with_side(self.side, side), make, self._reads(), frozenset({self.side}))

    def _text_bound(self, insertion: Insertion) -> TextBound:
        # The names of topics are ASCII letters, digits, dots, underscores and hyphens; the others are numbers.
        return text_bound(self.static or "") if insertion.what == "static" else TextBound.CLEAN

    def _value(self, bag: Bag, insertion: Insertion) -> Column:
        if insertion.what == "static":
            return F.lit(self.static).cast("string")
        return cast("Column", getattr(bag, insertion.what))

    # ------------------------------------------------------------------ without
    def _plan_objects(self, shape: Shape, known: Side) -> StepPlan | Split:
        if self._needs_sink(shape):
            return self._failing(shape, NOT_A_SINK, DataException.java_name)
        at_times = [one for one in self.insertions if one.what in _AT_TIMES]
        # Null is not inserted, so records with and without part here: they have other members.
        branches = [
            Branch(
                partial(_are_there, there) if there else None,
                self._plan_members(shape, known, self._without(set(at_times) - set(there))),
                frozenset(one.what for one in there),
            )
            for count in range(len(at_times), -1, -1)
            for there in combinations(at_times, count)
        ]
        return branches[0].plan if len(branches) == 1 else Split(branches)

    def _without(self, absent: Collection[Insertion]) -> list[Insertion]:
        return [one for one in self.insertions if one not in absent]

    def _plan_members(self, shape: Shape, known: Side, insertions: Sequence[Insertion]) -> StepPlan:
        before = members_of(known)
        added = {one.name: self._member(one) for one in insertions}

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns = {name: value.getField(name) for name in before}
            columns |= {one.name: self._value(bag, one).cast(spark_type(added[one.name].schema)) for one in insertions}
            return Made({self.side: object_column(value, known, columns)})

        side = object_side({**before, **added}, present=known.present)
        return StepPlan(shape.with_side(self.side, side), make, self._reads(), frozenset({self.side}))

    def _member(self, insertion: Insertion) -> Member:
        schema = Schema(_OBJECT_KINDS[insertion.what], optional=True)
        return Member(schema, replace(SCALAR, text=self._text_bound(insertion)))


def _are_there(insertions: Sequence[Insertion], bag: Bag) -> Column:
    present: list[Column] = [getattr(bag, one.what).isNotNull() for one in insertions]
    return reduce(and_, present)


_READERS: Final[Mapping[str, Callable[[ConnectRecord], object]]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: record.kafka_partition,
    "timestamp": lambda record: record.timestamp,
    "offset": lambda record: record.kafka_offset if isinstance(record, SinkRecord) else None,
}


class _InsertField(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _insertions: tuple[Insertion, ...] = ()
    _static: str | None = None
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = InsertFieldConfig.parse(props)
        static = Insertion.parse("static", config.static_field)
        parsed = (
            Insertion.parse("topic", config.topic_field),
            Insertion.parse("partition", config.partition_field),
            Insertion.parse("offset", config.offset_field),
            Insertion.parse("timestamp", config.timestamp_field),
            static,
        )
        self._insertions = tuple(one for one in parsed if one is not None)
        if not self._insertions:
            raise ConfigException("No field insertion configured")
        self._static = config.static_value
        if static is not None and self._static is None:
            raise ConfigException("static.value", None, f"No value specified for static field: {static.name}")
        self._defaults = replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        return InsertFieldConfig.definition()

    def step(self) -> Step:
        return Insert(self.side, self._insertions, self._static, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = (record.key_schema, record.key) if self.side == "key" else (record.value_schema, record.value)
        if value is None:
            return record
        if schema is None:
            changed = dict(require_map(value, _PURPOSE))
            for name, one in self._values_of(record):
                if one is not None:
                    changed[name] = one
            return self._replaced(record, None, changed)
        struct = require_struct(value, schema, _PURPOSE)
        extended = _extended(schema, self._insertions)
        values = self._values_of(record)
        copy = filled(schema, [field_value(struct, field, defaults=self._defaults) for field in schema.fields])
        return self._replaced(record, extended, Struct.unchecked(extended, [*copy.values, *(one for _, one in values)]))

    def _values_of(self, record: ConnectRecord) -> list[tuple[str, object]]:
        if not isinstance(record, SinkRecord) and any(one.what == "offset" for one in self._insertions):
            raise DataException(NOT_A_SINK)
        return [(one.name, self._value_of(record, one)) for one in self._insertions]

    def _value_of(self, record: ConnectRecord, insertion: Insertion) -> object:
        return self._static if insertion.what == "static" else _READERS[insertion.what](record)

    def _replaced(self, record: R, schema: Schema | None, value: object) -> R:
        if self.side == "key":
            return cast("R", record.new_record(key_schema=schema, key=value))
        return cast("R", record.new_record(value_schema=schema, value=value))


class InsertFieldKey(_InsertField):
    """InsertField on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.InsertField$Key"
    side: ClassVar[SideName] = "key"


class InsertFieldValue(_InsertField):
    """InsertField on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.InsertField$Value"
    side: ClassVar[SideName] = "value"
