"""Writing JSON: the step that turns keys or values into JsonConverter's bytes. Main type: ``WriteJson``.

Thread: builds expressions, on a pipeline thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.converters.json.schema import schema_text
from penstock.errors import DataException
from penstock.pipeline.columns.layout import TextBound, lowest_bound, text_bound
from penstock.pipeline.columns.texts.json import JsonText, escaped, has_struct_default, joined
from penstock.pipeline.plan.map_structs import as_struct
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW_TEXT,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    SideName,
    Step,
    StepFault,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_DATA_EXCEPTION: Final = DataException.java_name


@dataclass(frozen=True)
class WriteJson(Step):
    """Writes keys or values as JSON.

    Attributes:
        side: Key or value.
        schemas: True if each message carries its schema.
        numeric: True if decimals are written as numbers.
        defaults: True if a null is written as its default.
    """

    side: SideName
    schemas: bool
    numeric: bool
    defaults: bool

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. A schema with a struct as default fails all records of this shape, as in Java."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        if self.schemas and has_struct_default(known.schema):
            raise DataException("Mismatching schema.")
        names = frozenset({self.side})
        make = partial(self._make_schemaless if known.schema is None else self._make_typed, known)
        return StepPlan(shape.with_side(self.side, RAW_TEXT), make, names, names)

    def _make_typed(self, known: Side, bag: RecordColumns, keep: NameColumn) -> Made:
        schema = known.schema
        assert schema is not None
        writer = JsonText(self.numeric, self.defaults, known.complete)
        # Named, because each field uses it: the plan would repeat preceding transforms for each use.
        column = keep(bag.side(self.side)) if known.physical.children else bag.side(self.side)
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
        return Made({self.side: text if bound >= TextBound.BMP else escaped(keep(text))}, _faults(problem))

    def _make_schemaless(self, known: Side, bag: RecordColumns, keep: NameColumn) -> Made:
        column = keep(bag.side(self.side)) if known.physical.children else bag.side(self.side)
        text = JsonText().value_text(column, known.carrier, as_struct(known.physical))
        if self.schemas:
            text = F.concat(F.lit('{"schema":null,"payload":'), text, F.lit("}"))
        if lowest_bound(known.physical) < TextBound.BMP:
            text = escaped(keep(text))
        # Null without schema is a null message, even with schemas.
        return Made({self.side: F.when(column.isNotNull(), text)})


def _faults(problem: Column | None) -> Sequence[StepFault]:
    return () if problem is None else (StepFault(problem.isNotNull(), problem, _DATA_EXCEPTION),)
