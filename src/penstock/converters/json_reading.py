"""Reading JSON: the step that turns bytes into keys or values, by JsonConverter's lenient rules. Main type: ``ReadJson``.

Without schema the whole text becomes a VARIANT. With a schema the payload does too, and each value is then taken by its schema:
what JSON kind it really has decides (a string where a number should be is 0, and so on). The kinds of a whole struct are
compared at once with what the schema leads one to expect; only where they differ is each field looked at by itself.

Thread: builds expressions, on a pipeline thread.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.converters.json_envelope import BAD_SYNTAX, LACKS_ENVELOPE, Envelope, NoMessage, Refused
from penstock.converters.json_lenient import Lenient, layout_of, lenient_numbers
from penstock.converters.json_parsing import is_blank, parse
from penstock.data import Schema
from penstock.errors import DataException
from penstock.pipeline.step import NOTHING, Bag, Fault, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

_DATA_EXCEPTION: Final = DataException.java_name


@dataclass(frozen=True)
class ReadJson(Step):
    """Reads one side.

    Attributes:
        side: Key or value.
        hint: What was found out of these messages; None = they are plain JSON.
        content: The fixed schema of plain JSON, or None.
        defaults: Whether nulls are replaced by defaults.
    """

    side: SideName
    hint: Envelope | Refused | NoMessage | None
    content: Schema | None
    defaults: bool

    def plan(self, shape: Shape) -> StepPlan:
        hint = self.hint
        if isinstance(hint, NoMessage) or shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        if isinstance(hint, Refused):
            return self._refuse(shape, hint)
        schema = self.content if hint is None else hint.schema
        if hint is None and schema is None:
            return self._plan_plain(shape)
        return self._plan_typed(shape, schema, None if hint is None else hint.head)

    @property
    def _advice(self) -> str:
        return f"set {self.side}.converter.schemas.enable=false if your records are plain JSON"

    def _refuse(self, shape: Shape, hint: Refused) -> StepPlan:
        advice = self._advice if hint.envelope else None

        def make(bag: Bag, keep: Keep) -> Made:
            return Made({self.side: F.lit(None)}, (Fault(None, hint.message, hint.exception, advice),))

        return StepPlan(shape.with_side(self.side, NOTHING), make, writes=frozenset({self.side}))

    # ------------------------------------------------------------------ plain JSON
    def _plan_plain(self, shape: Shape) -> StepPlan:
        def make(bag: Bag, keep: Keep) -> Made:
            text = keep(bag.side(self.side).cast("string"))
            parsed = keep(F.when(F.is_valid_utf8(text), parse(text, "schemaless")))
            bad = text.isNotNull() & parsed.isNull() & ~_blank(text)
            return Made({self.side: parsed}, (Fault(bad, BAD_SYNTAX, _DATA_EXCEPTION),))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(None)), make, names, names)

    # ------------------------------------------------------------------ with a schema
    def _plan_typed(self, shape: Shape, schema: Schema | None, head: int | None) -> StepPlan:
        side = Side.of(schema, None if schema is None else layout_of(schema))
        names = frozenset({self.side})
        make = partial(self._make_content if head is None else self._make_payload, schema, head or 0)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _make_content(self, schema: Schema, head: int, bag: Bag, keep: Keep) -> Made:
        lenient = Lenient(self.defaults, lenient_numbers(schema))
        data = bag.side(self.side)
        text = keep(data.cast("string"))
        parsed = keep(F.when(F.is_valid_utf8(text), parse(text, lenient.numbers)))
        bad = Fault(text.isNotNull() & parsed.isNull() & ~_blank(text), BAD_SYNTAX, _DATA_EXCEPTION)
        expected = lenient.expected(schema)
        fast = None if expected is None else (F.schema_of_variant(parsed) == expected, parsed)
        return self._typed(lenient, schema, data, parsed, fast, keep, [bad])

    def _make_payload(self, schema: Schema | None, head: int, bag: Bag, keep: Keep) -> Made:
        """What comes before the payload is known; the rest of the message is read as ``{"payload":...}``."""
        lenient = Lenient(self.defaults, lenient_numbers(schema))
        data = bag.side(self.side)
        text = keep(F.concat(F.lit('{"payload":'), F.substring(data, head + 1, _ALL).cast("string")))
        parsed = keep(F.when(F.is_valid_utf8(text), parse(text, lenient.numbers)))
        kinds = keep(F.schema_of_variant(parsed))
        only = F.size(F.map_keys(parsed.try_cast("map<string,variant>"))) == 1
        clean = kinds.startswith("OBJECT<payload: ") & only
        expected = None if schema is None else lenient.expected(schema)
        exactly = None if expected is None else kinds == F.lit(f"OBJECT<payload: {expected}>")
        if exactly is not None:
            clean = exactly | clean
        faults = [
            Fault(text.isNotNull() & parsed.isNull(), BAD_SYNTAX, _DATA_EXCEPTION),
            Fault(parsed.isNotNull() & ~clean, LACKS_ENVELOPE, _DATA_EXCEPTION, self._advice),
        ]
        payload = F.variant_get(parsed, "$.payload", "variant")
        if schema is None:
            return Made({self.side: payload}, faults)
        fast = None if exactly is None else (exactly, parsed)
        return self._typed(lenient, schema, data, payload, fast, keep, faults, "$.payload")

    def _typed(
        self,
        lenient: Lenient,
        schema: Schema,
        data: Column,
        payload: Column,
        fast: tuple[Column, Column] | None,
        keep: Keep,
        faults: list[Fault],
        path: str = "$",
    ) -> Made:
        """Takes the value out of the payload: at once where all kinds are as expected, else each by itself."""
        problem = lenient.problem(payload, schema)
        value = lenient.read(payload, schema)
        if fast is not None:
            expected, document = fast
            whole = F.try_variant_get(document, path, spark_type(schema, layout_of(schema)).simpleString())
            value = F.when(expected, whole).otherwise(value)
            problem = None if problem is None else F.when(~expected, problem)
        if problem is not None:
            message = keep(F.when(data.isNotNull(), problem))
            faults = [*faults, Fault(message.isNotNull(), message, _DATA_EXCEPTION)]
        return Made({self.side: F.when(data.isNotNull(), value)}, faults)


def _blank(text: Column) -> Column:
    return F.is_valid_utf8(text) & is_blank(text)


_ALL: Final = 2_147_483_647
