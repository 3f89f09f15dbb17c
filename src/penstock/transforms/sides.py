"""The key or value a transform works on: what it asks of it, and the plans where nothing, or only null, passes.

Main type: ``Demand``. Functions ``side_of`` and ``with_side`` for one record.

Thread: pure functions; columns are built on a pipeline thread.
Source: org.apache.kafka.connect.transforms.util.Requirements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F

from penstock.api import ConnectRecord
from penstock.api.transform import R
from penstock.data import Schema, SchemaBuilder
from penstock.errors import DataException
from penstock.pipeline.expressions import apart
from penstock.pipeline.step import Bag, Branch, Fault, Keep, Made, Shape, Side, SideName, Split, StepPlan
from penstock.pipeline.variant_columns import is_map, java_class_of
from penstock.transforms.requirements import is_struct, java_class, no_map, no_struct

if TYPE_CHECKING:
    from pyspark.sql import Column


def is_null(column: Column, side: Side) -> Column:
    """Whether a key or value is null; schemaless data has a null of its own."""
    return column.isNull() | F.is_variant_null(column) if side.is_variant else column.isNull()


def null_variant() -> Column:
    """The null that schemaless data holds."""
    return F.parse_json(F.lit("null"))


def with_kind(column: Column) -> Column:
    """Schemaless values as ``struct<v variant, k string, j string>``: with their kinds, and as JSON where scalar.

    Taking a number or a text out of a VARIANT makes Spark build a cast for each row; its JSON text is had for less.
    """
    kind = F.schema_of_variant(column)
    pair = F.struct(column.alias("v"), kind.alias("k"))

    def known(one: Column) -> Column:
        value, name = one.getField("v"), one.getField("k")
        json = F.when(name.isin("BIGINT", "STRING", "DOUBLE", "BOOLEAN"), F.to_json(value))
        return F.struct(value.alias("v"), name.alias("k"), json.alias("j"))

    return apart(pair, known)


def scalar(known: Column, kind: str) -> Column:
    """The value of schemaless data of a kind, as a column of that type; ``known`` is ``with_kind`` of it."""
    value, json = known.getField("v"), known.getField("j")
    match kind:
        case "STRING":
            inner = F.substr(json, F.lit(2), F.length(json) - F.lit(2))
            return F.when(json.contains("\\"), F.try_variant_get(value, "$", "string")).otherwise(inner)
        case "BIGINT":
            return json.try_cast("bigint")
        case "DOUBLE":
            return F.coalesce(json.try_cast("double"), F.try_variant_get(value, "$", "double"))
        case "BOOLEAN":
            return json == "true"
        case _:
            return F.try_variant_get(value, "$", kind.lower())


@dataclass(frozen=True)
class Demand:
    """A Struct where there is a schema, a map where there is none; ``purpose`` says what for, in messages."""

    purpose: str
    side: SideName

    def map_fault(self, column: Column, changed: Column | None = None) -> Fault:
        """The fault of a VARIANT that is neither null nor a map.

        Args:
            column: The VARIANT.
            changed: It with a field set, null where it is no map; tells the same for nothing.
        """
        no_object = ~is_map(column) if changed is None else changed.isNull()
        bad = column.isNotNull() & ~F.is_variant_null(column) & no_object
        message = F.concat(F.lit(no_map(self.purpose)), apart(column, java_class_of))
        return Fault(bad, message, DataException.java_name)

    def null_fault(self, column: Column, side: Side) -> Fault:
        """The fault of a null."""
        start = no_map(self.purpose) if side.schema is None else no_struct(self.purpose)
        return Fault(is_null(column, side), f"{start}null", DataException.java_name)

    def unfit(self, shape: Shape, *, null_passes: bool) -> StepPlan | None:
        """The plan where no value can meet the demand, whatever it is; None where some can."""
        known = shape.side(self.side)
        if known.absent:
            if null_passes:
                return StepPlan(shape)
            raise DataException(f"{no_map(self.purpose)}null")
        if known.schema is None:
            if known.is_variant or known.is_object:
                return None
            found = java_class(known.carrier) if known.carrier is not None else "java.lang.Object"
            return self.failing(shape, f"{no_map(self.purpose)}{found}", null_passes=null_passes)
        if is_struct(known):
            return None
        return self.failing(shape, f"{no_struct(self.purpose)}{java_class(known.schema)}", null_passes=null_passes)

    def failing(
        self, shape: Shape, message: str, exception: str = DataException.java_name, *, null_passes: bool
    ) -> StepPlan:
        """The plan where every value fails, and null does too unless it passes."""

        def make(bag: Bag, keep: Keep) -> Made:
            column, known = bag.side(self.side), shape.side(self.side)
            faults = [Fault(~is_null(column, known), message, exception)]
            if not null_passes:
                faults.append(self.null_fault(column, known))
            return Made(faults=faults)

        return StepPlan(shape, make, frozenset({self.side}))

    def unless_null(self, shape: Shape, plan: StepPlan) -> StepPlan | Split:
        """The plan for values; a null stays as it is, its schema too, so null and other records part here."""
        if shape.side(self.side).present:
            return plan
        same = Branch(lambda bag: bag.side(self.side).isNull(), StepPlan(shape), frozenset({self.side}))
        return Split([same, Branch(None, plan)])


def side_of(record: ConnectRecord, side: SideName) -> tuple[Schema | None, object]:
    """Schema and value of one side of a record."""
    return (record.key_schema, record.key) if side == "key" else (record.value_schema, record.value)


def with_side(record: R, side: SideName, schema: Schema | None, value: object) -> R:
    """The record with one side replaced."""
    if side == "key":
        return cast("R", record.new_record(key_schema=schema, key=value))
    return cast("R", record.new_record(value_schema=schema, value=value))


def copy_basics(schema: Schema, builder: SchemaBuilder) -> SchemaBuilder:
    """Name, version, doc and parameters of a schema on a new one; not whether it is optional, nor its default."""
    builder.name(schema.name).version(schema.version).doc(schema.doc)
    return builder if schema.parameters is None else builder.parameters(schema.parameters)
