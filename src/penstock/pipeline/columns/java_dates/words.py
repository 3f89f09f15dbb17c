"""The constants independent of the moment: English names of months and days, and fields that are constants in UTC.

Thread: constants and a pure function.
Source: java.text.DateFormatSymbols.
"""

from __future__ import annotations

from typing import Final

from penstock.pipeline.columns.java_dates.pattern import PatternToken

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
