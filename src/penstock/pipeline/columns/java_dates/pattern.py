"""Patterns of ``SimpleDateFormat``: what is a field, what is text.

The constants that do not depend on the moment are here too: English names of months and days, fields that are constants
in UTC, and the names of time zones. A name stands for one offset here, the one its zone has now; Java looks up what the
zone had at that time.

Thread: pure functions, safe from any thread.
Source: java.text.SimpleDateFormat (compile, subParseZoneString, subParseNumericZone), java.text.DateFormatSymbols.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


_HOURS: Final = "(?:[01][0-9]|2[0-3])"
_MINUTES: Final = "[0-5][0-9]"
ISO_ZONES: Final = {1: f"Z|[+-]{_HOURS}", 2: f"Z|[+-]{_HOURS}{_MINUTES}", 3: f"Z|[+-]{_HOURS}:{_MINUTES}"}
_OFFSET: Final = re.compile(r"(?i)^(?:GMT)?([+-])([0-9]{1,2}):?([0-9]{2})?$")


@lru_cache(maxsize=1)
def zone_names() -> dict[str, int]:
    """Names, in the order in which they are tried, with their minutes ahead of UTC."""
    text = resources.files(__package__).joinpath("zones.txt").read_text("utf-8")
    rows = (line.rpartition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {name.lower(): int(minutes) for name, _, minutes in rows}


@lru_cache(maxsize=1)
def zone_expression() -> str:
    """The regular expression of ``z`` and ``Z``, for Java and Python."""
    names = "|".join(re.sub(r"([^A-Za-z0-9 ])", r"\\\1", name) for name in zone_names())
    short = f"(?:{_HOURS}|[0-9](?=:)):{_MINUTES}"
    return f"(?>[+-]{_HOURS}{_MINUTES}|(?i:GMT)(?:(?![+-])|[+-]{short})|(?i:(?!GMT)(?:{names})))"


def zone_minutes(text: str) -> int:
    """Minutes ahead of UTC."""
    found = _OFFSET.match(text)
    if found is None:
        return zone_names().get(text.lower(), 0)
    sign, hours, minutes = found.groups()
    ahead = int(hours) * 60 + int(minutes or 0)
    return -ahead if sign == "-" else ahead


def zone_minutes_column(text: Column) -> Column:
    """The same for a column (``bigint``)."""
    digits = F.regexp_extract(text, "(?i)^(?:GMT)?[+-]([0-9:]+)$", 1)
    plain = F.replace(digits, F.lit(":"), F.lit(""))
    # One or two digits are only hours, three or four have minutes.
    full = F.when(F.length(plain) <= 2, F.concat(plain, F.lit("00"))).otherwise(plain)
    number = full.try_cast("bigint")
    ahead = F.call_function("div", number, F.lit(100)) * 60 + number % 100
    negative = F.contains(text, F.lit("-"))
    # One literal: a map of hundreds of them would be looked at by every rule of the optimizer.
    names = ";".join(f"{name}={minutes}" for name, minutes in zone_names().items())
    known = F.str_to_map(F.lit(names), F.lit(";"), F.lit("="))
    named = F.coalesce(F.try_element_at(known, F.lower(text)).try_cast("bigint"), F.lit(0).cast("bigint"))
    return F.when(F.length(digits) == 0, named).when(negative, -ahead).otherwise(ahead)


MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def constant_text(token: PatternToken) -> str | None:
    """The text of what does not depend on the moment."""
    match token.letter:
        case "":
            return token.text
        case "z":
            return "UTC" if token.count < 4 else "Coordinated Universal Time"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
        case _:
            return None


LETTERS: Final = frozenset("GyMdkHmsSEDFwWahKzZYuXL")


class DatePatternError(ValueError):
    """A pattern that Java refuses, with Java's text."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


@dataclass(frozen=True, slots=True)
class PatternToken:
    """A field (``letter``, as often as ``count``) or, without a letter, ``text`` that stands for itself."""

    letter: str = ""
    count: int = 0
    text: str = ""


#: A regular expression that is several times as long is made of a pattern, and Spark plans each of its fields.
_LONGEST: Final = 1_000


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> tuple[PatternToken, ...]:
    """The parts of a pattern.

    Raises:
        DatePatternError: a letter that means nothing, a quote without end, an impossible ``X``; too many letters.

    >>> [token.letter * token.count or token.text for token in compile_pattern("yyyy-MM'T'''HH")]
    ['yyyy', '-', 'MM', "T'", 'HH']
    """
    if len(pattern) > _LONGEST:
        raise DatePatternError(f"A pattern has {_LONGEST} characters at most, and this one has {len(pattern)}")
    tokens: list[PatternToken] = []
    at, quoted = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            if pattern[at + 1 : at + 2] == "'":
                _add_text(tokens, "'")
                at += 2
                continue
            quoted = not quoted
            if quoted:
                # Parts of one letter on both sides of a quoted text are two fields.
                tokens.append(PatternToken())
        elif quoted or not (char.isascii() and char.isalpha()):
            _add_text(tokens, char)
        elif char not in LETTERS:
            raise DatePatternError(f"Illegal pattern character '{char}'")
        elif tokens and tokens[-1].letter == char:
            tokens[-1] = PatternToken(char, tokens[-1].count + 1)
        else:
            tokens.append(PatternToken(char, 1))
        at += 1
    if quoted:
        raise DatePatternError("Unterminated quote")
    for token in tokens:
        if token.letter == "X" and token.count > 3:
            raise DatePatternError(f"invalid ISO 8601 format: length={token.count}")
    return tuple(token for token in tokens if token.letter or token.text)


def _add_text(tokens: list[PatternToken], text: str) -> None:
    if tokens and not tokens[-1].letter:
        tokens[-1] = PatternToken(text=tokens[-1].text + text)
    else:
        tokens.append(PatternToken(text=text))


def quoted(text: str) -> str:
    """Text that stands for itself, in Java's and in Python's expressions."""
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}" for char in text)
