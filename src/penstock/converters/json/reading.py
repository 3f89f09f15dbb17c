"""The step that turns bytes of JSON into keys or values in Spark, by JsonConverter's rules.

The whole text, or with a schema the payload, becomes a VARIANT. The kinds of a whole struct are compared with the
expected kinds at once; only if they differ is each field converted by its schema and its actual JSON kind.

Spark's ``parse_json`` differs in four ways from Jackson in JsonConverter's configuration: Spark reads a number with a
decimal point as a decimal (Connect: a double) and a large integer as a decimal (Connect wraps it to 64 bits), keeps
minus zero, and rejects leading zeros. Spark's result shows whether a text may contain one of these (cheaper than
regular expressions over all texts). Such a text is split into strings, numbers and the rest, its numbers are rewritten,
and it is parsed again.

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
from penstock.converters.json.lenient import (
    NUMBER_MARK,
    Lenient,
    Numbers,
    in_range,
    layout_of,
    lenient_numbers,
    missing,
    widened,
)
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


_BLANK: Final = "^[ \\t\\r\\n]*$"
_TOKENS: Final = '(?s)"[^"]*"|-?[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|[^"0-9-]+|.'
_BACKSLASH: Final = "\x01"
_QUOTE: Final = "\x02"
_TWO_64: Final = "18446744073709551616"
_TWO_63: Final = "9223372036854775808"


@dataclass(frozen=True)
class StringMessages:
    """Messages as a column of strings, which is used several times: name it first. ``checked``: all are UTF-8."""

    column: Column
    checked: bool

    def if_utf8(self, value: Column) -> Column:
        """A value computed from the text; null if the text is not UTF-8."""
        return value if self.checked else F.when(F.is_valid_utf8(self.column), value)

    def having(self, column: Column) -> StringMessages:
        """Another column, which is UTF-8 in the same rows."""
        return StringMessages(column, self.checked)

    @property
    def is_blank(self) -> Column:
        """True if a text is UTF-8 and contains only white space; Jackson reads no value from it."""
        blank = self.column.rlike(_BLANK)
        return blank if self.checked else F.is_valid_utf8(self.column) & blank


def text_of(shape: Shape, record: RecordColumns, side: SideName, keep: NameColumn) -> StringMessages:
    """The messages of keys or values."""
    return StringMessages(keep(record.side(side).cast("string")), shape.side(side) == RAW_TEXT)


@dataclass(frozen=True)
class Parsed:
    """The result of Spark's parser, which is mostly right.

    Attributes:
        value: The VARIANT; null if the text is not JSON for Spark.
        kinds: The result of ``schema_of_variant``.
        exact: True if Java reads the same value.
        exact_but_decimals: True if Java reads the same value, apart from decimals, which are doubles in Java. Large
            integers are decimals too, and the kind of a mixed array hides them: callers have to check the kinds.
    """

    value: Column
    kinds: Column
    exact: Column
    exact_but_decimals: Column


def parse_quickly(messages: StringMessages, keep: NameColumn) -> Parsed:
    """Parses a text unchanged."""
    text = messages.column
    value = keep(messages.if_utf8(F.try_parse_json(text)))
    kinds = keep(F.schema_of_variant(value))
    # A decimal is a number with a point, or a large integer; the kind of a mixed array hides it, as does the kind of an
    # array with numbers that have an exponent.
    hidden = kinds.contains("VARIANT") | (kinds.contains("DOUBLE") & kinds.contains("ARRAY"))
    plain = ~kinds.contains("DECIMAL") & ~hidden
    # It also matches inside strings, which only costs time.
    suspect = text.contains("-0")
    minus_zero = F.when(suspect, text.rlike("-0[0.]*[eE]")).otherwise(F.lit(False))
    minus_decimal_zero = F.when(suspect, text.rlike("-0[0.]*(?![0-9.])")).otherwise(F.lit(False))
    return Parsed(
        value,
        kinds,
        F.coalesce(plain & ~minus_zero, F.lit(False)),
        F.coalesce(value.isNotNull() & ~minus_decimal_zero, F.lit(False)),
    )


def parse_exactly(text: StringMessages, numbers: Numbers) -> Column:
    """The VARIANT of the first JSON value of a text, as Java reads it; null if there is none. Slow."""
    return text.if_utf8(F.try_parse_json(_rewritten(text.column, numbers)))


def _rewritten(text: Column, numbers: Numbers) -> Column:
    masked = F.replace(F.replace(text, F.lit("\\\\"), F.lit(_BACKSLASH)), F.lit('\\"'), F.lit(_QUOTE))

    def token(part: Column) -> Column:
        trimmed = F.regexp_replace(part, "^(-?)0+(?=[0-9])", "$1")
        return F.when(part.rlike("^-?[0-9]"), rare(trimmed, lambda x: _number(x, numbers))).otherwise(part)

    joined = F.array_join(F.transform(F.regexp_extract_all(masked, F.lit(_TOKENS), F.lit(0)), token), "")
    unmasked = F.replace(F.replace(joined, F.lit(_QUOTE), F.lit('\\"')), F.lit(_BACKSLASH), F.lit("\\\\"))
    # Raw control characters are invalid JSON; they must not pass for the marker.
    return F.when(~text.rlike("[\\x01-\\x03]"), unmasked)


def _number(trimmed: Column, numbers: Numbers) -> Column:
    if numbers == "text":
        return F.concat(F.lit(f'"\\u{ord(NUMBER_MARK):04x}'), trimmed, F.lit('"'))
    exponent = F.when(trimmed.contains("."), F.concat(trimmed, F.lit("E0"))).otherwise(trimmed)
    whole = trimmed.rlike("^-?[0-9]+$")
    double = F.when(trimmed.rlike("[eE]"), trimmed).otherwise(exponent)
    positive = F.when(trimmed.rlike("^-0(?:\\.0*)?(?:[eE].*)?$"), F.substring(double, 2, 1_000_000)).otherwise(double)
    if numbers == "typed":
        return F.when(whole, trimmed).otherwise(positive)
    return F.when(whole & (F.length(trimmed) >= 19), wrapped(trimmed)).when(whole, trimmed).otherwise(positive)


def wrapped(text: Column) -> Column:
    """The text of an integer after wrapping to 64 bits. Only integers of up to 38 digits; others stay."""
    number = text.try_cast("decimal(38,0)")
    base = F.lit(_TWO_64).cast("decimal(38,0)")
    rest = F.pmod(number, base)
    signed = F.when(rest >= F.lit(_TWO_63).cast("decimal(38,0)"), rest - base).otherwise(rest)
    return F.coalesce(signed.cast("string"), text)


_DATA_EXCEPTION: Final = DataException.java_name
_SYNTAX, _SHAPE, _VALUE = 1, 2, 3


@dataclass(frozen=True)
class ReadJson(Step):
    """Reads keys or values.

    Attributes:
        hint: The findings about these messages; None = they are plain JSON.
        content: The fixed schema of plain JSON, or None.
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

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made({self.side: F.lit(None)}, (fault,))

        return StepPlan(shape.with_side(self.side, NOTHING), make, writes=frozenset({self.side}))

    def _fault(self, condition: Column, message: str) -> StepFault:
        return StepFault(condition, message, _DATA_EXCEPTION, advice_on(message, self.side))

    def _plan_plain(self, shape: Shape) -> StepPlan:
        def make(record: RecordColumns, keep: NameColumn) -> Made:
            text = text_of(shape, record, self.side, keep)
            quick = parse_quickly(text, keep)
            there = text.column.isNotNull()
            exact = rare(text.column, lambda x: parse_exactly(text.having(x), "schemaless"))
            value = keep(F.when(quick.exact, quick.value).when(there, exact))
            bad = there & value.isNull() & ~text.is_blank
            return Made({self.side: value}, (self._fault(bad, BAD_SYNTAX),))

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(None)), make, names, names)

    def _plan_typed(self, shape: Shape, schema: Schema | None) -> StepPlan:
        if shape.side(self.side) not in (RAW, RAW_TEXT):
            return StepPlan(shape)  # Has been read before the plan.
        side = Side.of(schema, None if schema is None else layout_of(schema))
        names = frozenset({self.side})
        make = partial(self._make_content if self.hint is None else self._make_payload, shape, schema)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _make_content(self, shape: Shape, schema: Schema | None, record: RecordColumns, keep: NameColumn) -> Made:
        """A fixed schema: the message is the payload."""
        text = text_of(shape, record, self.side, keep)

        def by_itself(x: StringMessages, lenient: Lenient) -> Column:
            parsed = F.when(x.is_blank, missing()).otherwise(parse_exactly(x, lenient.numbers))
            return rare(parsed, lambda payload: _judged(payload.isNull(), None, payload, lenient, schema))

        return self._typed(text, schema, "$", by_itself, keep)

    def _make_payload(self, shape: Shape, schema: Schema | None, record: RecordColumns, keep: NameColumn) -> Made:
        """Reads the payload: removes the bytes before it, and parses the rest as ``{"payload":...}``."""
        rest = text_of(shape, record, self.side, unnamed)
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
