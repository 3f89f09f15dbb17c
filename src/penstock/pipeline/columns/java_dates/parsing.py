"""Text as moments: lenient ``SimpleDateFormat.parse`` in UTC and en_US.

Main type: ``DateParser``. A pattern becomes one regular expression with a group for each field, and arithmetic over the
groups. The fields that determine the date depend only on the pattern (Java's rule is "the latest ones set"), so they
are chosen once. ``fields`` and ``zones`` hold the two halves.

Thread: immutable; columns are built on a pipeline thread.
Source: java.text.SimpleDateFormat.parse, java.text.CalendarBuilder, java.util.GregorianCalendar.computeTime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.columns.expressions import apart
from penstock.pipeline.columns.java_dates.arithmetic import COLUMNS, PLAIN, Arithmetic, Named, Value
from penstock.pipeline.columns.java_dates.fields import (
    DateFields,
    day_of,
    group_pattern,
    is_two_digit_year,
    value_of_column,
    value_of_text,
)
from penstock.pipeline.columns.java_dates.pattern import PatternToken, compile_pattern, quoted
from penstock.pipeline.columns.java_dates.usual import read_usual

if TYPE_CHECKING:
    from pyspark.sql import Column

_SEPARATOR: Final = "\x01"
#: The number of years before now at which the window of two-digit years begins.
CENTURY: Final = 80


@dataclass(frozen=True)
class DateParser:
    """Reads text by a pattern.

    Attributes:
        pattern: The pattern.
        century_start: Where the hundred years begin that two-digit years stand for: milliseconds since 1970.
        century_year: The year of that.
    """

    pattern: str
    century_start: int = 0
    century_year: int = 1970

    @cached_property
    def _tokens(self) -> tuple[PatternToken, ...]:
        return compile_pattern(self.pattern)

    @cached_property
    def _fields(self) -> tuple[PatternToken, ...]:
        return tuple(token for token in self._tokens if token.letter)

    @cached_property
    def _expression(self) -> str:
        parts: list[str] = []
        for index, token in enumerate(self._tokens):
            following = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
            parts.append(group_pattern(token, following) if token.letter else quoted(token.text))
        return "".join(parts)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._expression)

    # ------------------------------------------------------------------ one value
    def parse(self, text: str) -> int | None:
        """The moment in milliseconds since 1970; None where the text does not fit the pattern.

        >>> DateParser("yyyy-MM-dd").parse("2017-13-45"), DateParser("HH:mm").parse("soon")
        (1518566400000, None)
        """
        match = self._compiled.match(_ascii_digits(text))
        if match is None:
            return None
        raw = {
            f"f{index}": value_of_text(token, group)
            for index, (token, group) in enumerate(zip(self._fields, match.groups(), strict=True))
        }
        short = {index: is_two_digit_year(group) for index, group in enumerate(match.groups())}
        result: int = self._moment(PLAIN, raw, short)
        return result

    # ------------------------------------------------------------------ columns
    def column(self, text: Column) -> Column:
        """The moment of each text; null where it does not fit the pattern. ``text`` is used several times."""
        if not self._fields:
            fits = text.startswith("".join(token.text for token in self._tokens))
            return F.when(fits, F.lit(0).cast("bigint"))
        usual = read_usual(self._tokens, text)
        if usual is None:
            return apart(text, self._lenient)
        return F.coalesce(usual, F.when(text.isNotNull(), apart(text, self._lenient)))

    def _lenient(self, text: Column) -> Column:
        plain = F.octet_length(text) == F.length(text)
        digits = F.when(plain, text).otherwise(apart(text, ascii_digits_column))
        groups = "".join(f"{_SEPARATOR}${index + 1}" for index in range(len(self._fields)))
        # Where the pattern does not fit, the second branch leaves every group empty.
        taken = F.regexp_replace(digits, f"(?s)^(?:{self._expression}.*|.*)$", groups)

        def moment(parts: Column) -> Column:
            texts = {f"f{index}": F.get(parts, F.lit(index + 1)) for index in range(len(self._fields))}
            values = {
                f"f{index}": value_of_column(token, texts[f"f{index}"]) for index, token in enumerate(self._fields)
            }
            short = {index: is_two_digit_year(texts[f"f{index}"]) for index in range(len(self._fields))}
            result: Column = self._moment(COLUMNS, values, short)
            return result

        return apart(F.split(taken, _SEPARATOR), moment)

    # ------------------------------------------------------------------ both
    def _moment(self, math: Arithmetic, raw: Named, short: dict[int, Value]) -> Value:
        """The moment of the fields' numbers; ``short`` says which of the texts are two digits."""
        values = dict(raw)
        ambiguous: Value | None = None
        for index, token in enumerate(self._fields):
            if token.letter in "yY" and token.count <= 2:
                # Two digits are a year of the hundred that begin with century_start.
                start = self.century_year % 100
                year = values[f"f{index}"]
                base = year + (self.century_year - start)
                full = math.choose(year < start, base + 100, base)
                doubtful = short[index] & (year == start)
                ambiguous = doubtful if ambiguous is None else ambiguous | doubtful
                values[f"f{index}"] = math.choose(short[index], full, year)
        if ambiguous is not None:
            values["ambiguous"] = ambiguous
        return math.let(values, lambda known: self._resolved(math, known, ambiguous is not None))

    def _resolved(self, math: Arithmetic, known: Named, doubtful: bool) -> Value:
        fields = DateFields.of(self._fields, known, math)
        moment = self._sum(math, fields)
        if not doubtful:
            return moment
        later = self._sum(math, fields.a_century_later())
        return math.choose(known["ambiguous"] & (moment < self.century_start), later, moment)

    def _sum(self, math: Arithmetic, fields: DateFields) -> Value:
        clock = fields.clock()
        days = day_of(math, fields)
        return math.moment(days, clock)


def _ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(int(char)) if char.isdecimal() and not char.isascii() else char for char in text)


_DECIMALS: Final = "".join(chr(code) for code in range(0x80, 0x10000) if chr(code).isdecimal())


def ascii_digits_column(text: Column) -> Column:
    """Text with every decimal digit of Unicode as the one of ASCII."""
    return F.translate(text, _DECIMALS, "".join(str(int(char)) for char in _DECIMALS))
