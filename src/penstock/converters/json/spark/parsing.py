"""JSON text to VARIANT exactly as Java's JsonConverter reads it.

Spark's ``parse_json`` differs in four ways from Jackson in JsonConverter's configuration: Spark reads a number with a
decimal point as a decimal (Connect: a double) and a large integer as a decimal (Connect wraps it to 64 bits), keeps
minus zero, and rejects leading zeros. Spark's result shows whether a text may contain one of these (cheaper than
regular expressions over all texts). Such a text is split into strings, numbers and the rest, its numbers are rewritten,
and it is parsed again.

Main type: ``StringMessages``. Main functions: ``parse_quickly`` and ``parse_exactly``.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import functions as F

from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.plan.step import RAW_TEXT, NameColumn, RecordColumns, Shape, SideName

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The treatment of numbers: as in schemaless data; exact; as marked strings of their text.
Numbers = Literal["schemaless", "typed", "text"]

#: Marks a number that is kept as text; JSON texts cannot contain raw control characters.
NUMBER_MARK: Final = "\x03"

_BLANK: Final = "^[ \\t\\r\\n]*$"
_TOKENS: Final = '(?s)"[^"]*"|-?[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|[^"0-9-]+|.'
_BACKSLASH: Final = "\x01"
_QUOTE: Final = "\x02"
_TWO_64: Final = "18446744073709551616"
_TWO_63: Final = "9223372036854775808"


@dataclass(frozen=True)
class StringMessages:
    """Messages as a column of strings.

    Attributes:
        column: The strings. Used several times: name it first.
        checked: True if all of them are known to be UTF-8.
    """

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


def text_of(shape: Shape, bag: RecordColumns, side: SideName, keep: NameColumn) -> StringMessages:
    """The messages of keys or values."""
    return StringMessages(keep(bag.side(side).cast("string")), shape.side(side) == RAW_TEXT)


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
