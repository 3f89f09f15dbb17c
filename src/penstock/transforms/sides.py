"""The key or value a transform works on: what it asks of it, and the plans where nothing, or only null, passes.

Main type: ``Demand``. Functions ``side_of`` and ``with_side`` for one record.

Thread: pure functions; columns are built on a pipeline thread.
Source: org.apache.kafka.connect.transforms.util.Requirements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from penstock.api import ConnectRecord
from penstock.api.transform import R
from penstock.data import Schema, SchemaBuilder
from penstock.errors import DataException
from penstock.pipeline.step import Bag, Branch, Fault, Keep, Made, Shape, Side, SideName, Split, StepPlan
from penstock.transforms.requirements import is_struct, java_class, no_map, no_struct

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Demand:
    """What a transform needs: a Struct with a schema, or a map without one. ``purpose`` is for messages."""

    purpose: str
    side: SideName

    def null_fault(self, column: Column, side: Side) -> Fault:
        """The fault of a null."""
        start = no_map(self.purpose) if side.schema is None else no_struct(self.purpose)
        return Fault(column.isNull(), f"{start}null", DataException.java_name)

    def unfit(self, shape: Shape, *, null_passes: bool) -> StepPlan | None:
        """The plan where no value can meet the demand, whatever it is; None where some can."""
        known = shape.side(self.side)
        if known.absent:
            if null_passes:
                return StepPlan(shape)
            raise DataException(f"{no_map(self.purpose)}null")
        if known.schema is None:
            if known.is_object:
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
            faults = [Fault(column.isNotNull(), message, exception)]
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
