"""Time zones in text: offsets, and the names Java knows in English.

A name stands for one offset here, the one its zone has now; Java looks up what the zone had at that time.

Thread: constants and pure functions.
Source: java.text.SimpleDateFormat.subParseZoneString and subParseNumericZone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Final

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
