"""A Java pattern that a user wrote, run in linear time or with a limit.

Python's ``re`` holds the interpreter while it searches, and some patterns take it years: one text would stop the
whole worker. RE2 answers whether a text matches, in linear time. What RE2 cannot do (references to groups, looking
around, possessive quantifiers), and where a match and its groups are, is left to ``regex``, which lets other threads
run and gives up after ``LIMIT_S``.

Main type: ``JavaPattern``, made by ``penstock.config.java_regex.compile_java``. Immutable, usable from any thread.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import re2
import regex

from penstock.errors import PatternTimeoutException

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Seconds that one search of one text may take. Names of topics take microseconds: a pattern needs a thousand times
#: as long only if it tries the same characters over and over, so that a busy machine fails no good record.
LIMIT_S: Final = 0.05
_SHOWN: Final = 60
#: ``regex`` writes out what has to be there: ten letters of a pattern could take all memory.
_MOST_REPEATED: Final = 100_000
_LEAST: Final = re.compile(r"(?<!\\)\{([0-9]+),?[0-9]*\}")
_ESCAPE: Final = re.compile(r"\\(U[0-9a-fA-F]{8}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


class JavaPattern:
    """One compiled pattern.

    Args:
        java: The pattern as the user wrote it, for messages.
        translated: The same for Python's ``re`` with ``re.ASCII``.

    Attributes:
        pattern: What was given as ``translated``.
        groups: How many groups it has.
        groupindex: The numbers of its named groups.

    Raises:
        re.error: Python cannot do what the pattern asks for.
        OverflowError: A count is too large for Python.
        RecursionError: Groups are nested too deeply.
    """

    def __init__(self, java: str, translated: str) -> None:
        checked = re.compile(translated, re.ASCII)
        self.java = java
        self.pattern: str = checked.pattern
        self.groups: int = checked.groups
        self.groupindex: Mapping[str, int] = checked.groupindex
        self._linear = _linear(translated)
        if math.prod(max(int(low), 1) for low in _LEAST.findall(translated)) > _MOST_REPEATED:
            raise re.error(f"repetitions that ask for more than {_MOST_REPEATED} of something")
        folds_all = "(?iu:" in translated
        if folds_all and "(?i:" in translated:
            raise re.error("letters of ASCII and all letters without regard to case in one pattern")
        try:
            # The flag of the whole pattern decides which letters ``regex`` folds, whatever a group says.
            flag = regex.UNICODE if folds_all else regex.ASCII
            self._limited: Any = regex.compile(translated, flag | regex.VERSION0)
        except regex.error as error:
            raise re.error(str(error)) from error

    def matches(self, text: str) -> bool:
        """Whether the whole text matches, as Java's ``Matcher.matches``.

        Raises:
            PatternTimeoutException: RE2 cannot run the pattern, and the search took longer than ``LIMIT_S``.
        """
        if self._linear is not None and _is_encodable(text):
            return self._linear.fullmatch(text) is not None
        return self._within_limit(self._limited.fullmatch, text) is not None

    def find(self, text: str) -> re.Match[str] | None:
        """The first match in the text, as Java's ``Matcher.find``.

        Raises:
            PatternTimeoutException: The search took longer than ``LIMIT_S``.
        """
        found: re.Match[str] | None = self._within_limit(self._limited.search, text)
        return found

    def _within_limit(self, search: Any, text: str) -> Any:
        try:
            return search(text, timeout=LIMIT_S, concurrent=True)
        except TimeoutError:
            raise PatternTimeoutException(
                f"The regular expression {_shortened(self.java)} took longer than {LIMIT_S * 1000:g} ms for the text "
                f"'{_shortened(text)}'. Write it without repetitions inside of repetitions, or without references to "
                "groups, look-around, $ and (?i): what has none of these runs in linear time"
            ) from None

    def __reduce__(self) -> tuple[type[JavaPattern], tuple[str, str]]:
        return JavaPattern, (self.java, self.pattern)


def _linear(translated: str) -> Any:
    """The pattern for RE2; None where RE2 cannot run it, or would fold the case of other letters than Java."""
    if "(?i" in translated:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_ESCAPE.sub(_re2_escape, translated), options)
    except (re2.error, UnicodeEncodeError):
        return None


def _re2_escape(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped == "Z":
        return r"\z"
    return f"\\x{{{escaped[1:]}}}" if escaped[0] in "uU" and len(escaped) > 1 else found[0]


def _is_encodable(text: str) -> bool:
    """Whether RE2, which reads UTF-8, can be given the text: half of a surrogate pair has no UTF-8."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
