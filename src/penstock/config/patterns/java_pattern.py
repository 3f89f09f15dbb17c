"""A Java pattern from a user, run in linear time or with a time limit.

Python's ``re`` holds the interpreter lock while it searches, and some patterns need years: one text would stop the
whole worker. RE2 decides in linear time if a text matches. Patterns that RE2 does not support (references to
groups, look-around, possessive quantifiers), and the positions of matches and groups, need ``regex``, which lets other
threads run and gives up after ``LIMIT_S``.

``written_out`` computes the size of a pattern after its counted repetitions are expanded, as the engine that compiles
it expands them. ``(?:(?:a{1000}){1000}){1000}`` is short, but compiling it would take the engine hours and all memory,
in one call during which no other thread can run.

Main type: ``JavaPattern``, made by ``penstock.config.patterns.translation.compile_java``. Usable from any thread.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import re2
import regex

from penstock.errors import PatternTimeoutException

if TYPE_CHECKING:
    import re

#: The processor time in seconds that one search of one text may take. Topic names take microseconds: a pattern needs a
#: thousand times as long only if it tries the same characters over and over.
LIMIT_S: Final = 0.05
#: ``regex`` measures the time of all threads of the process. A search that ran out of time because of other threads
#: starts again with twice the time, at most this many times.
_TRIES: Final = 4
_SHOWN: Final = 60
#: The number of remembered texts that took too long, if they are no longer than this.
_MOST_REMEMBERED: Final = 1_000
_LONGEST_REMEMBERED: Final = 1_000


@dataclass(frozen=True)
class Translated:
    """A Java pattern for the engines.

    Attributes:
        limited: The pattern for ``regex``.
        linear: The pattern for RE2; None = RE2 does not support it.
        only_whole: True if ``linear`` can only match a whole text.
        folds: True if references to groups ignore the case of ASCII letters.
        uncertain: Groups that in Java may keep the text of an attempt that failed later.
    """

    limited: str
    linear: str | None
    only_whole: bool = False
    folds: bool = False
    uncertain: frozenset[int] = frozenset()


class JavaPattern:
    """One compiled pattern.

    Args:
        java: The pattern as the user wrote it, for messages.
        translated: The pattern for the engines.

    Attributes:
        pattern: The pattern that ``regex`` runs.
        groups: The number of groups.
        groupindex: The numbers of its named groups.
        uncertain_groups: Groups whose text may differ from Java's.

    Raises:
        regex.error: The engine does not support the pattern.
        OverflowError: A count is too large for the engine.
        RecursionError: Groups are nested too deeply.
    """

    def __init__(self, java: str, translated: Translated) -> None:
        self.java = java
        self._translated = translated
        flag = regex.ASCII if translated.folds else regex.UNICODE
        self._limited: Any = regex.compile(translated.limited, flag | regex.VERSION0)
        self._linear = _linear(translated.linear)
        self.pattern: str = translated.limited
        self.groups: int = self._limited.groups
        self.groupindex: Mapping[str, int] = self._limited.groupindex
        self.uncertain_groups = translated.uncertain
        self._too_long: dict[str, None] = {}

    def matches(self, text: str) -> bool:
        """True if the whole text matches, like Java's ``Matcher.matches``.

        Raises:
            PatternTimeoutException: RE2 cannot run the pattern, and the search took longer than ``LIMIT_S``.
        """
        if self._linear is not None and _is_encodable(text):
            return self._linear.fullmatch(text) is not None
        return self._within_limit(self._limited.fullmatch, text) is not None

    def found_in(self, text: str) -> bool:
        """True if a part of the text matches.

        Raises:
            PatternTimeoutException: As ``matches``.
        """
        if self._linear is not None and not self._translated.only_whole and _is_encodable(text):
            return self._linear.search(text) is not None
        return self.find(text) is not None

    def find(self, text: str) -> re.Match[str] | None:
        """The first match in the text, like Java's ``Matcher.find``.

        Raises:
            PatternTimeoutException: The search took longer than ``LIMIT_S``.
        """
        found: re.Match[str] | None = self._within_limit(self._limited.search, text)
        return found

    def _within_limit(self, search: Callable[..., Any], text: str) -> Any:
        """Runs a search within the time limit. A text that took too long once is not searched again."""
        if text not in self._too_long:
            for attempt in range(_TRIES):
                begun = time.thread_time()
                try:
                    return search(text, timeout=LIMIT_S * 2**attempt, concurrent=True)
                except TimeoutError:
                    if time.thread_time() - begun >= LIMIT_S / 2:
                        break
            if len(text) <= _LONGEST_REMEMBERED:
                if len(self._too_long) >= _MOST_REMEMBERED:
                    self._too_long.clear()
                self._too_long[text] = None
        raise PatternTimeoutException(
            f"The regular expression {_shortened(self.java)} took longer than {LIMIT_S * 1000:g} ms for the text "
            f"'{_shortened(text)}'. Write it without repetitions inside of repetitions, or without references to "
            "groups, look-around, possessive quantifiers and \\b: what has none of these runs in linear time"
        )

    def __reduce__(self) -> tuple[type[JavaPattern], tuple[str, Translated]]:
        return JavaPattern, (self.java, self._translated)


def _linear(expression: str | None) -> Any:
    """The pattern for RE2; None if RE2 does not support it."""
    if expression is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        return None


def _is_encodable(text: str) -> bool:
    """True if the text can be encoded for RE2, which reads UTF-8: half a surrogate pair has no UTF-8."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


#: Patterns of this size compile in some tenths of a second. Java's engine counts instead of expanding.
LARGEST: Final = 200_000

_PIECE: Final = re.compile(
    r"""
      \\.                                     # an escaped character, or the beginning of a longer escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]              # a set
    | \[.*                                    # one that does not end
    | \{(?P<least>\d+)(?:,\d*)?\}             # a repetition
    | (?P<open>\() | (?P<close>\)) | (?P<either>\|)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def written_out(pattern: str) -> int:
    """The size of a pattern in Python's syntax: the number of its characters and sets, each counted as often as it has
    to repeat.

    >>> written_out("ab{3}"), written_out("(?:a[b-z]){10}"), written_out(r"(?:(?:a{9}){9}){9}\\{5}")
    (4, 60, 1092)
    """
    sizes, last = [0], [0]
    for piece in _PIECE.finditer(pattern):
        if piece["open"]:
            sizes.append(0)
            last.append(0)
        elif piece["close"] and len(sizes) > 1:
            inside = sizes.pop() + 2
            last.pop()
            sizes[-1] += inside
            last[-1] = inside
        elif piece["least"] is not None:
            # After a possessive or lazy sign it repeats the quantified part; the size does not shrink.
            more = last[-1] * (max(1, int(piece["least"][:10])) - 1)
            sizes[-1] += more
            last[-1] += more
        else:
            sizes[-1] += 1
            last[-1] = 1
    return sum(sizes)
