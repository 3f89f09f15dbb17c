"""Reading JSON: the step that turns bytes into keys or values, by JsonConverter's rules. Main type: ``ReadJson``.

Without a schema the whole text becomes a VARIANT. With a schema the payload becomes a VARIANT, and each value is
converted by its schema and its actual JSON kind (a string instead of a number is 0, and so on). The kinds of a whole
struct are compared with the expected kinds at once; only if they differ is each field checked separately.

Thread: builds expressions, on a pipeline thread.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.converters.json.envelope import (
    BAD_SYNTAX,
    LACKS_ENVELOPE,
    Envelope,
    NoMessage,
    UnreadableMessages,
    advice_on,
)
from penstock.converters.json.spark.layouts import in_range, layout_of, lenient_numbers, widened
from penstock.converters.json.spark.lenient import Lenient, missing
from penstock.converters.json.spark.parsing import StringMessages, parse_exactly, parse_quickly, text_of
from penstock.data import Schema
from penstock.errors import DataException
from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.columns.layout import spark_type
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW,
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
    unnamed,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_DATA_EXCEPTION: Final = DataException.java_name
_SYNTAX, _SHAPE, _VALUE = 1, 2, 3


@dataclass(frozen=True)
class ReadJson(Step):
    """Reads keys or values.

    Attributes:
        side: Key or value.
        hint: The findings about these messages; None = they are plain JSON.
        content: The fixed schema of plain JSON, or None.
        defaults: True if nulls are replaced by defaults.
    """

    side: SideName
    hint: Envelope | UnreadableMessages | NoMessage | None
    content: Schema | None
    defaults: bool

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. The hint decides: no message, a rejected message, plain JSON, or the schema of an envelope."""
        hint = self.hint
        if isinstance(hint, NoMessage) or shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        if isinstance(hint, UnreadableMessages):
            return self._refuse(shape, hint)
        schema = self.content if hint is None else hint.schema
        if hint is None and schema is None:
            return self._plan_plain(shape)
        return self._plan_typed(shape, schema)

    def _refuse(self, shape: Shape, hint: UnreadableMessages) -> StepPlan:
        fault = StepFault(None, hint.message, hint.exception, advice_on(hint.message, self.side))

        def make(bag: RecordColumns, keep: NameColumn) -> Made:
            return Made({self.side: F.lit(None)}, (fault,))

        return StepPlan(shape.with_side(self.side, NOTHING), make, writes=frozenset({self.side}))

    def _fault(self, condition: Column, message: str) -> StepFault:
        return StepFault(condition, message, _DATA_EXCEPTION, advice_on(message, self.side))

    # ------------------------------------------------------------------ plain JSON
    def _plan_plain(self, shape: Shape) -> StepPlan:
        def make(bag: RecordColumns, keep: NameColumn) -> Made:
            text = text_of(shape, bag, self.side, keep)
            quick = parse_quickly(text, keep)
            there = text.column.isNotNull()
            exact = rare(text.column, lambda x: parse_exactly(text.having(x), "schemaless"))
            value = keep(F.when(quick.exact, quick.value).when(there, exact))
            bad = there & value.isNull() & ~text.is_blank
            return Made({self.side: value}, (self._fault(bad, BAD_SYNTAX),))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(None)), make, names, names)

    # ------------------------------------------------------------------ with a schema
    def _plan_typed(self, shape: Shape, schema: Schema | None) -> StepPlan:
        if shape.side(self.side) not in (RAW, RAW_TEXT):
            return StepPlan(shape)  # Has been read before the plan.
        side = Side.of(schema, None if schema is None else layout_of(schema))
        names = frozenset({self.side})
        make = partial(self._make_content if self.hint is None else self._make_payload, shape, schema)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _make_content(self, shape: Shape, schema: Schema | None, bag: RecordColumns, keep: NameColumn) -> Made:
        """A fixed schema: the message is the payload."""
        text = text_of(shape, bag, self.side, keep)

        def by_itself(x: StringMessages, lenient: Lenient) -> Column:
            parsed = F.when(x.is_blank, missing()).otherwise(parse_exactly(x, lenient.numbers))
            return rare(parsed, lambda payload: _judged(payload.isNull(), None, payload, lenient, schema))

        return self._typed(text, schema, "$", by_itself, keep)

    def _make_payload(self, shape: Shape, schema: Schema | None, bag: RecordColumns, keep: NameColumn) -> Made:
        """Reads the payload: removes the bytes before it, and parses the rest as ``{"payload":...}``."""
        rest = text_of(shape, bag, self.side, unnamed)
        text = rest.having(keep(F.concat(F.lit('{"payload":'), rest.column)))

        def by_itself(x: StringMessages, lenient: Lenient) -> Column:
            def judged(document: Column) -> Column:
                alone = F.size(F.map_keys(document.try_cast("map<string,variant>"))) == 1
                clean = alone & F.schema_of_variant(document).startswith("OBJECT<payload: ")
                payload = F.try_variant_get(document, "$.payload", "variant")
                return rare(payload, lambda one: _judged(document.isNull(), ~clean, one, lenient, schema))

            return rare(parse_exactly(x, lenient.numbers), judged)

        return self._typed(text, schema, "$.payload", by_itself, keep)

    def _typed(
        self,
        text: StringMessages,
        schema: Schema | None,
        path: str,
        by_itself: Callable[[StringMessages, Lenient], Column],
        keep: NameColumn,
    ) -> Made:
        """Reads the value as a whole if all kinds are as expected, otherwise each part separately."""
        lenient = Lenient(self.defaults, lenient_numbers(schema))
        usual = lenient.usual(schema)
        there = text.column.isNotNull()
        slow = rare(text.column, lambda x: by_itself(text.having(x), lenient))
        if usual is None:
            found = keep(F.when(there, slow))
            value = found.getField("value")
        else:
            inside = usual if path == "$" else usual.inside("payload")
            quick = parse_quickly(text, keep)
            kind = spark_type(schema, layout_of(schema))
            fits = quick.exact_but_decimals & inside.holds(quick.kinds)
            wide = widened(kind)
            whole = keep(F.when(fits, F.try_variant_get(quick.value, path, wide.simpleString())))
            if wide != kind:
                fine = in_range(whole, kind)
                whole = keep(whole.try_cast(kind) if fine is None else F.when(fine, whole.try_cast(kind)))
            found = keep(F.when(there & whole.isNull(), slow))
            value = keep(F.coalesce(whole, found.getField("value")))
        fault = found.getField("fault")
        return Made(
            {self.side: value},
            (
                self._fault(fault == _SYNTAX, BAD_SYNTAX),
                self._fault(fault == _SHAPE, LACKS_ENVELOPE),
                StepFault(fault == _VALUE, found.getField("problem"), _DATA_EXCEPTION),
            ),
        )


def _judged(syntax: Column, shape: Column | None, payload: Column, lenient: Lenient, schema: Schema | None) -> Column:
    """``struct<value, fault, problem>`` of one payload."""
    value = payload if schema is None else lenient.read(payload, schema)
    found = None if schema is None else lenient.problem(payload, schema)
    problem = F.lit(None).cast("string") if found is None else found
    fault = F.when(syntax, F.lit(_SYNTAX))
    if shape is not None:
        fault = fault.when(shape, F.lit(_SHAPE))
    fault = fault.when(problem.isNotNull(), F.lit(_VALUE))
    return F.struct(value.alias("value"), fault.alias("fault"), problem.alias("problem"))
