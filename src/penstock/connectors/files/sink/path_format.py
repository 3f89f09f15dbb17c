"""Java's patterns of dates in paths, as in ``path.format``. Main type: ``PathFormat``. Pure; any thread.

Source: the documentation of Joda-Time, "DateTimeFormat", whose patterns Confluent's partitioners take.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Final

from penstock.errors import ConfigException

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MONTHS: Final = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
}
_DAYS: Final = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
}
#: Letters for numbers.
_NUMBERS: Final[dict[str, Callable[[datetime.datetime], int]]] = {
    "y": lambda at: at.year,
    "Y": lambda at: at.year,
    "u": lambda at: at.year,
    "x": lambda at: at.isocalendar()[0],
    "w": lambda at: at.isocalendar()[1],
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "e": lambda at: at.isoweekday(),
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "K": lambda at: at.hour % 12,
    "h": lambda at: at.hour % 12 or 12,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
}


class PathFormat:
    """A pattern, compiled.

    Args:
        pattern: For example ``'year'=YYYY/'month'=MM/'day'=dd``.
        locale: The language of names of months and days: ``en``, ``de-DE`` and so on.

    Raises:
        ConfigException: The pattern has an unknown letter, or needs names in an unsupported language.

    >>> at = datetime.datetime(2026, 3, 5, 7, tzinfo=datetime.UTC)
    >>> PathFormat("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH").text(at)
    'year=2026/month=03/day=05/hour=07'
    >>> PathFormat("EEE, d MMM yy").text(at)
    'Thu, 5 Mar 26'
    """

    def __init__(self, pattern: str, locale: str = "en") -> None:
        self._parts: list[tuple[str, int] | str] = []
        self._language = re.split(r"[-_]", locale)[0].lower() or "en"
        end = 0
        for found in _TOKEN.finditer(pattern):
            if found.start() != end:
                break
            end = found.end()
            if found[1] is not None:
                self._parts.append(found[1].replace("''", "'") or "'")
            elif found[2]:
                self._parts.append(self._letter(pattern, found[2], len(found[0])))
            else:
                self._parts.append(found[0])
        if end != len(pattern):
            raise ConfigException("path.format", pattern, "has a quote without a partner")

    def text(self, at: datetime.datetime) -> str:
        """The formatted text of a time."""
        return "".join(one if isinstance(one, str) else self._part(at, *one) for one in self._parts)

    def _letter(self, pattern: str, letter: str, count: int) -> tuple[str, int]:
        is_name = letter == "E" or (letter == "M" and count > 2)
        if is_name and self._language not in _MONTHS:
            raise ConfigException(
                "path.format", pattern, f"needs names of the locale {self._language}; there are {', '.join(_MONTHS)}. "
                "Write numbers: MM for the month"
            )  # fmt: skip
        if not is_name and letter not in _NUMBERS and letter not in "aSzZG":
            raise ConfigException(
                "path.format",
                pattern,
                f"has the letter {letter}, which stands for nothing; text stands in quotes: 'year'=yyyy",
            )
        return letter, count

    def _part(self, at: datetime.datetime, letter: str, count: int) -> str:
        match letter:
            case "E":
                name = _DAYS[self._language].split()[at.weekday()]
                return name if count > 3 else name[:3]
            case "M" if count > 2:
                name = _MONTHS[self._language].split()[at.month - 1]
                return name if count > 3 else name[:3]
            case "y" | "Y" | "u" | "x" if count == 2:
                return f"{_NUMBERS[letter](at) % 100:02d}"
            case "S":
                return f"{at.microsecond:06d}"[:count].ljust(count, "0")
            case "a":
                return "AM" if at.hour < 12 else "PM"
            case "G":
                return "AD"
            case "z":
                return at.tzname() or ""
            case "Z":
                text = at.strftime("%z")
                return text if count == 1 else f"{text[:3]}:{text[3:]}" if count == 2 else str(at.tzinfo)
        return str(_NUMBERS[letter](at)).zfill(count)
