"""Java's regular expressions: ``compile_java`` makes a ``JavaPattern``, which runs in linear time or with a time limit.

Configurations contain Java patterns (`topics.regex`, topic creation groups, allow lists). Python's ``re`` holds the
interpreter lock while it searches, and some patterns need years: one text would stop the whole worker. So a pattern is
parsed by Java's rules and rewritten for RE2, which decides in linear time if a text matches, and for ``regex``, which
lets other threads run and gives up after ``LIMIT_S``. ``regex`` runs patterns that RE2 does not support (references to
groups, look-around, possessive quantifiers), and finds the positions of matches and groups. Character sets are written
out, so that an engine's own rules for letters and cases do not matter. A pattern that would mean something else here
than in Java is rejected.

Usable from any thread. Source: java.util.regex.Pattern.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NoReturn

import re2
import regex

from penstock.config.char_classes import ALL, LINE_ENDS, NONE, CharSet
from penstock.config.pattern_pieces import (
    LAST_LINE_END,
    LINE_BEGINNING,
    LINE_BREAK,
    LINE_END,
    WORD_BOUNDARY,
    CharacterReader,
    Count,
    JavaRegexError,
    PatternPiece,
    either,
    in_order,
    of_set,
)
from penstock.errors import ConfigException, PatternTimeoutException

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
    """One compiled pattern; the engine may raise regex.error, OverflowError or RecursionError.

    Attributes:
        pattern: The pattern that ``regex`` runs.
        uncertain_groups: Groups whose text may differ from Java's.
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
    """The number of characters and sets of a pattern, each counted as often as it has to repeat.

    The engine that compiles a pattern expands it so: ``(?:(?:a{1000}){1000}){1000}`` would take it hours and all
    memory, in one call during which no other thread can run.

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


_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
#: Java stores the counts of ``{n,m}`` in 32 bits.
_MAX_COUNT: Final = 2**31 - 1
_COUNT: Final = re.compile(r"\{([0-9]+)(,?)([0-9]*)")
_FLAGS: Final = re.compile(r"([idmsuxUc]*)(?:-([idmsuxUc]*))?")
#: ``regex`` expands required repetitions: ten letters of a pattern could take all memory.
_MOST_REPEATED: Final = 100_000
#: A pattern of this length compiles in a second or two.
_LONGEST: Final = 300_000


def compile_java(pattern: str, *, name: str = "regex", what: str = "Invalid regex") -> JavaPattern:
    r"""Compiles a Java pattern.

    Args:
        pattern: The pattern in Java's syntax.
        name: The setting that contains it, for the message.
        what: The beginning of the message.

    Raises:
        ConfigException: The pattern is wrong or cannot be supported; the message gives the position.

    >>> compile_java(r"\Qa.b\E-(?<n>\p{Lower}++)[a-z&&[^x]]").pattern
    'a\\.b\\-(?P<n>[a-z]++)[a-wy-z]'
    """
    try:
        return _compile(pattern)
    except JavaRegexError as error:
        raise ConfigException(name, pattern, f"{what}: {error}") from error


@lru_cache(maxsize=512)
def _compile(pattern: str) -> JavaPattern:
    if len(pattern) > LARGEST:
        raise JavaRegexError(f"Not supported here: a pattern that takes more than {LARGEST} characters", pattern, -1)
    try:
        return _Translator(pattern).translate()
    except (regex.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f"Not supported here: {error}", pattern, -1) from error


class _Translator:
    """A recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self._java = pattern
        self._reader = CharacterReader(pattern)
        self._groups = 0
        self._numbers: dict[str, int] = {}
        self._open: list[int] = []
        self._written = 0
        # The position: the number of enclosing groups, and True inside a look-behind.
        self._depth = 0
        self._behind = False
        self._only_whole = False
        self._folds = False
        self._boundary = False
        # Where groups begin, where repeated groups begin and end, and where groups are referenced.
        self._begun: list[int] = []
        self._loops: list[tuple[int, int]] = []
        self._referred: list[tuple[int, int]] = []
        self._following: set[int] = set()
        self._uncertain: set[int] = set()

    def translate(self) -> JavaPattern:
        piece = self._alternatives()
        if not self._reader.ended:
            self._reader.fail("Unmatched closing ')'", self._reader.at - 1)
        self._check_references()
        if self._folds and self._boundary:
            self._refuse("a reference to a group without regard to case, and \\b")
        if written_out(piece.limited) > LARGEST:
            self._refuse(f"a pattern that takes more than {LARGEST} characters when its repetitions are written out")
        return JavaPattern(
            self._java,
            Translated(piece.limited, piece.linear, self._only_whole, self._folds, frozenset(self._uncertain)),
        )

    def _refuse(self, what: str) -> NoReturn:
        raise JavaRegexError(f"Not supported here: {what}", self._java, -1)

    def _check_references(self) -> None:
        if any(number <= self._groups for number in self._following):
            self._refuse("a reference to a group that follows it")
        for number, place in self._referred:
            if number in self._uncertain:
                self._refuse(
                    f"a reference to group {number}, which is in look-around, an independent group or a repetition: "
                    "in Java it may hold what it took in a try that failed"
                )
            # `regex` does not retry a repetition at a place where it failed before, even if the group now holds another
            # text.
            if number <= self._groups and any(
                begin < place and self._begun[number - 1] < end for begin, end in self._loops
            ):
                self._refuse(f"a reference to group {number}, and a repeated group that is between them or around one")

    # ------------------------------------------------------------------ sequences and quantifiers
    def _alternatives(self) -> PatternPiece:
        """Everything up to the closing bracket or the end; flags set inside end there."""
        reader, outer = self._reader, self._reader.flags
        ways: list[list[PatternPiece]] = [[]]
        while True:
            reader.skip_comments()
            if reader.ended or reader.peek() == ")":
                break
            if reader.accept("|"):
                ways.append([])
            elif (piece := self._quantified()) is not None:
                ways[-1].append(piece)
        reader.flags = outer
        return either([in_order(way) for way in ways])

    def _quantified(self) -> PatternPiece | None:
        reader = self._reader
        start = reader.at
        piece = self._atom()
        if piece is None:
            return None
        if not piece.is_group:
            self._written += len(piece.limited)
            if self._written > _LONGEST:
                reader.unsupported(
                    f"a pattern that takes more than {_LONGEST} characters when its classes are written out"
                )
        reader.skip_comments()
        count = self._quantifier()
        if count is None:
            return piece
        if (piece.is_group or not piece.is_one) and (count.high is None or count.high > 1):
            self._loops.append((start, reader.at))
        return self._repeated(piece, count)

    def _quantifier(self) -> Count | None:
        reader = self._reader
        char = reader.peek()
        if char and char in "*+?":
            reader.at += 1
            count = Count(char, int(char == "+"), 1 if char == "?" else None)
        elif char == "{":
            count = self._counted()
        else:
            return None
        reader.skip_comments()
        kind = reader.peek() if reader.peek() in ("?", "+") else ""
        reader.at += len(kind)
        return replace(count, kind=kind)

    def _counted(self) -> Count:
        reader = self._reader
        found = reader.take(_COUNT)
        if found is None:
            reader.fail("Illegal repetition", reader.at + 1)
        if reader.peek() != "}":
            reader.fail("Unclosed counted closure")
        low, most = int(found[1]), int(found[3] or found[1])
        if max(low, most) > _MAX_COUNT or most < low:
            reader.fail("Illegal repetition range")
        reader.at += 1
        # RE2 treats counts with a leading 0 as text.
        high = str(most) if found[3] else ""
        return Count(f"{{{low}{found[2]}{high}}}", low, None if found[2] and not high else most)

    def _repeated(self, piece: PatternPiece, count: Count) -> PatternPiece:
        weight = piece.weight * max(count.low, 1)
        if weight > _MOST_REPEATED:
            self._reader.unsupported(f"repetitions that ask for more than {_MOST_REPEATED} of something")
        self._check_behind(piece, count)
        late = self._repeated_groups(piece, count) if piece.is_group else piece.late
        limited, linear = piece.limited, piece.linear
        if self._is_forgotten(piece, count):
            limited, linear = f"(?>{limited})", None
        elif not piece.is_one:
            limited, linear = f"(?:{limited})", None if linear is None else f"(?:{linear})"
        quantifier = f"{count.text}{count.kind}"
        same = piece.fixed and count.low == count.high
        return replace(
            piece,
            limited=f"{limited}{quantifier}",
            linear=None if linear is None or count.kind == "+" else f"{linear}{quantifier}",
            least=piece.least * count.low,
            weight=weight,
            fixed=same,
            late=late,
            is_group=False,
            is_one=False,
        )

    @staticmethod
    def _is_forgotten(piece: PatternPiece, count: Count) -> bool:
        """True if Java matches each repetition independently and does not backtrack into it."""
        if not piece.is_group:
            return piece.breaks
        return count.kind == "+" or (piece.breaks and piece.fixed and not count.is_optional)

    def _repeated_groups(self, group: PatternPiece, count: Count) -> frozenset[int]:
        """Records repeated groups whose text cannot be known; returns the groups that are set late."""
        if count.kind == "+":
            self._uncertain |= group.groups
            return frozenset()
        if count.is_optional:
            return group.late
        if not group.least:
            self._uncertain |= group.groups
            if not group.fixed and (count.low > 1 or count.high is not None):
                # In Java an empty repetition is the last one, however many may follow.
                self._reader.unsupported("a number of repetitions of what may take nothing, in several ways")
        if not group.fixed:
            self._uncertain |= group.late
            return frozenset()
        self._uncertain |= group.groups - {group.own}
        return frozenset({group.own} if group.own is not None and not count.kind else ())

    def _check_behind(self, piece: PatternPiece, count: Count) -> None:
        if not self._behind:
            return
        if piece.is_group and not piece.fixed and not count.is_optional and count.kind != "+":
            self._fail_behind()
        if count.high is None or count.kind == "+":
            self._reader.unsupported("a repetition without an end, or a possessive one, in look-behind")

    def _fail_behind(self) -> NoReturn:
        self._reader.fail("Look-behind group does not have an obvious maximum length", self._reader.at - 1)

    # ------------------------------------------------------------------ repeatable elements
    def _atom(self) -> PatternPiece | None:
        """One element that can be repeated; None for flags, which match nothing themselves."""
        reader = self._reader
        char = reader.peek()
        if char in "*+?":
            reader.fail(f"Dangling meta character '{char}'")
        if char == "{":
            return PatternPiece("", "")  # Java repeats an empty match.
        if char == "(":
            return self._group()
        if char == "[":
            return of_set(reader.bracket())
        reader.at += 1
        if char == "\\":
            return self._escape()
        if char == ".":
            return of_set(self._any_but_line_ends())
        if char == "^":
            return self._beginning()
        if char == "$":
            if "m" not in reader.flags:
                return self._last_line_end()
            return self._at_the_end(r"(?=\n|\Z)" if "d" in reader.flags else LINE_END)
        return of_set(reader.single(ord(char)))

    def _any_but_line_ends(self) -> CharSet:
        if "s" in self._reader.flags:
            return ALL
        return ~CharSet.from_text("\n") if "d" in self._reader.flags else ~LINE_ENDS

    def _beginning(self) -> PatternPiece:
        if "m" not in self._reader.flags:
            return PatternPiece(r"\A", r"\A")
        return PatternPiece(r"(?:\A|(?<=\n))(?!\Z)" if "d" in self._reader.flags else LINE_BEGINNING)

    def _last_line_end(self) -> PatternPiece:
        return self._at_the_end(r"(?=\n?\Z)" if "d" in self._reader.flags else LAST_LINE_END)

    def _at_the_end(self, limited: str) -> PatternPiece:
        """An anchor for the end of the text, where a match of the whole text ends anyway."""
        reader = self._reader
        reader.skip_comments()
        if self._depth or not (reader.ended or reader.peek() == "|"):
            return PatternPiece(limited)
        self._only_whole = True
        return PatternPiece(limited, "")

    def _escape(self) -> PatternPiece:
        reader = self._reader
        char = reader.peek()
        if char == "k":
            return self._named_reference()
        if char and char in "123456789":
            return self._numbered_reference()
        if char and char in "bBAZzGRX":
            return self._boundary_escape(char)
        found = reader.escaped()
        return of_set(found if isinstance(found, CharSet) else reader.single(found))

    def _boundary_escape(self, char: str) -> PatternPiece:
        reader = self._reader
        reader.at += 1
        if char in "GX" or (char == "b" and reader.peek(3) == "{g}"):
            reader.unsupported(f"\\{char}")
        if char in "bB":
            self._boundary = True
            return PatternPiece(WORD_BOUNDARY if char == "b" else f"(?!{WORD_BOUNDARY})")
        if char == "A":
            return PatternPiece(r"\A", r"\A")
        if char == "z":
            return PatternPiece(r"\Z", r"\z")
        return LINE_BREAK if char == "R" else self._last_line_end()

    # ------------------------------------------------------------------ references
    def _named_reference(self) -> PatternPiece:
        reader = self._reader
        reader.at += 1
        if not reader.accept("<"):
            reader.fail("\\k is not followed by '<' for named capturing group")
        name = self._name("named capturing group")
        if name not in self._numbers:
            reader.fail(f"named capturing group <{name}> does not exist", reader.at - 1)
        if self._behind:
            self._fail_behind()
        return self._reference(self._numbers[name])

    def _numbered_reference(self) -> PatternPiece:
        reader = self._reader
        number = int(reader.peek())
        reader.at += 1
        while (digit := reader.peek()) and digit in "0123456789" and number * 10 + int(digit) <= self._groups:
            number = number * 10 + int(digit)
            reader.at += 1
        if self._behind:
            self._fail_behind()
        if number <= self._groups:
            return self._reference(number)
        # Java accepts a reference to a group that does not exist, or not yet: it never matches.
        if self._depth:
            self._following.add(number)
        self._referred.append((number, reader.at))
        return replace(of_set(NONE), least=0)

    def _reference(self, number: int) -> PatternPiece:
        reader = self._reader
        if number in self._open:
            reader.unsupported("a reference to a group inside of it")
        self._referred.append((number, reader.at))
        if "i" not in reader.flags:
            return PatternPiece(f"(?:\\{number})")
        if "u" in reader.flags:
            reader.unsupported("a reference to a group with the flags i and u")
        self._folds = True
        return PatternPiece(f"(?i:\\{number})")

    # ------------------------------------------------------------------ groups
    def _group(self) -> PatternPiece | None:
        reader = self._reader
        reader.at += 1
        if not reader.accept("?"):
            return self._capturing("(")
        if reader.accept("<"):
            if reader.peek() not in ("=", "!"):
                return self._named_group()
            return self._around("<", behind=True)
        if reader.peek() in ("=", "!"):
            return self._around("", behind=False)
        if reader.accept(">"):
            return self._independent()
        if reader.accept(":"):
            return self._grouped("(?:", self._closed())
        if reader.peek() in ("$", "@"):
            reader.fail("Unknown group type")
        return self._inline_flags()

    def _closed(self) -> PatternPiece:
        """The content of a group, up to its closing bracket."""
        self._depth += 1
        piece = self._alternatives()
        if not self._reader.accept(")"):
            self._reader.fail("Unclosed group", self._reader.end)
        self._depth -= 1
        return piece

    def _grouped(self, opening: str, inside: PatternPiece) -> PatternPiece:
        linear = None if inside.linear is None else f"(?:{inside.linear})"
        return replace(
            inside, limited=f"{opening}{inside.limited})", linear=linear, is_group=True, is_one=True, own=None
        )

    def _capturing(self, opening: str) -> PatternPiece:
        self._groups += 1
        self._begun.append(self._reader.at)
        number = self._groups
        self._open.append(number)
        inside = self._closed()
        self._open.pop()
        piece = self._grouped(opening, inside)
        return replace(piece, groups=piece.groups | {number}, own=number)

    def _named_group(self) -> PatternPiece:
        reader = self._reader
        name = self._name("named capturing group")
        if name in self._numbers:
            reader.fail(f"Named capturing group <{name}> is already defined", reader.at - 1)
        self._numbers[name] = self._groups + 1
        return self._capturing(f"(?P<{name}>")

    def _name(self, what: str) -> str:
        reader = self._reader
        found = reader.take(_NAME)
        if found is None:
            reader.fail("capturing group name does not start with a Latin letter")
        if not reader.accept(">"):
            reader.fail(f"{what} is missing trailing '>'")
        return found[0]

    def _around(self, direction: str, *, behind: bool) -> PatternPiece:
        """A look-ahead or look-behind."""
        reader, outer = self._reader, self._behind
        kind = reader.peek()
        reader.at += 1
        self._behind = behind
        inside = self._closed()
        self._behind = outer
        self._uncertain |= inside.groups
        text = f"(?{direction}{kind}{inside.limited})"
        return PatternPiece(text, None, weight=inside.weight, groups=inside.groups)

    def _independent(self) -> PatternPiece:
        if self._behind:
            self._reader.unsupported("an independent group in look-behind")
        inside = self._closed()
        self._uncertain |= inside.groups
        return replace(inside, limited=f"(?>{inside.limited})", linear=None, is_one=True, own=None)

    def _inline_flags(self) -> PatternPiece | None:
        reader = self._reader
        start = reader.at
        found = reader.take(_FLAGS)
        assert found is not None  # Every part of the expression is optional.
        flags = (reader.flags | set(found[1])) - set(found[2] or "")
        for letter, name in (("U", "UNICODE_CHARACTER_CLASS"), ("c", "CANON_EQ")):
            if letter in flags:
                reader.fail(f"Inline flag {letter} ({name}) is not supported here", start)
        if reader.accept(")"):
            reader.flags = flags
            return None
        if not reader.accept(":"):
            reader.fail("Unknown inline modifier")
        outer, reader.flags = reader.flags, flags
        piece = self._grouped("(?:", self._closed())
        reader.flags = outer
        return piece
