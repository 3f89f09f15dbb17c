"""Java's regular expressions in the syntax of Python's `re`; `java_pattern` runs them.

Configurations hold Java patterns (`topics.regex`, topic creation groups, allow lists). Most of the syntax is
shared; what differs is written anew: quoting, POSIX and Unicode classes, nested classes and intersections,
named groups, inline flags in the middle, line ends, and syntax that Java refuses and Python takes as text.

Main functions: `translate`, `compile_java`. Pure functions, usable from any thread.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NoReturn

from penstock.config.java_char_classes import HORIZONTAL, LINE_ENDS, VERTICAL, property_class
from penstock.config.java_pattern import JavaPattern
from penstock.errors import ConfigException

_ANY: Final = r"[\s\S]"
_DOT: Final = f"[^{LINE_ENDS}]"
_FINAL_LINE_END: Final = rf"(?=(?:\r\n|[{LINE_ENDS}])?\Z)"
_LINE_BREAK: Final = rf"(?:\r\n|[{VERTICAL}])"
_CONTROLS: Final = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x07", "e": r"\x1b"}
_CONTROL_CODES: Final = {r"\t": 9, r"\n": 10, r"\f": 12, r"\r": 13}
# Classes that keep their meaning inside and outside of brackets; Java's \s has the vertical tab as Python's has.
_SETS: Final = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r", "h": HORIZONTAL, "v": VERTICAL}
# Java repeats these, Python only inside of a group.
_ANCHORS: Final = ("^", r"\A", r"\Z")
_BLANKS: Final = tuple(" \t\n\x0b\f\r")
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
#: Java keeps the counts of ``{n,m}`` in 32 bits.
_MAX_COUNT: Final = 2**31 - 1
_COUNT: Final = re.compile(r"\{([0-9]+)(,?)([0-9]*)")
_FLAGS: Final = re.compile(r"([idmsuxU]*)(?:-([idmsuxU]*))?")
_COMMENT: Final = re.compile(r"#[^\n\r\u0085\u2028\u2029]*")


class JavaRegexError(ValueError):
    """A pattern that Java refuses; the text is that of Java's PatternSyntaxException."""

    def __init__(self, description: str, pattern: str, index: int) -> None:
        near = f" near index {index}" if index >= 0 else ""
        mark = f"\n{' ' * index}^" if 0 <= index < len(pattern) else ""
        super().__init__(f"{description}{near}\n{pattern}{mark}")


def compile_java(pattern: str, *, name: str = "regex", what: str = "Invalid regex") -> JavaPattern:
    """Compiles a Java pattern.

    Args:
        pattern: The pattern as Java would take it.
        name: The setting it belongs to, for the message.
        what: How the message begins.

    Raises:
        ConfigException: The pattern is wrong, or uses what Python cannot do; with the position.
    """
    try:
        return _compile(pattern)
    except JavaRegexError as error:
        raise ConfigException(name, pattern, f"{what}: {error}") from error


def translate(pattern: str, *, name: str = "regex") -> str:
    r"""The Python pattern that matches what a Java pattern matches; to be compiled with `re.ASCII`.

    Raises:
        ConfigException: As `compile_java`.

    >>> translate(r"\Qa.b\E-(?<n>\p{Lower}++)[a-z&&[^x]]")
    'a\\.b\\-(?P<n>[a-z]++)(?:(?=[a-z])[^x])'
    """
    return compile_java(pattern, name=name).pattern


@lru_cache(maxsize=512)
def _compile(pattern: str) -> JavaPattern:
    translated = _Translator(pattern).translate()
    try:
        return JavaPattern(pattern, translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f"Not supported here: {error}", pattern, -1) from error


class _Translator:
    """A recursive descent over one pattern that writes the Python pattern as it goes."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._groups = 0
        self._names: set[str] = set()
        self._flags: frozenset[str] = frozenset()

    def translate(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._pattern):
            self._fail("Unmatched closing ')'", self._at - 1)
        return translated

    def _fail(self, description: str, index: int | None = None) -> NoReturn:
        raise JavaRegexError(description, self._pattern, self._at if index is None else index)

    def _peek(self, length: int = 1) -> str:
        return self._pattern[self._at : self._at + length]

    def _accept(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _alternatives(self) -> str:
        """Everything up to the closing bracket or the end; flags set inside end with it."""
        outer = self._flags
        parts: list[str] = []
        while self._at < len(self._pattern) and self._peek() != ")":
            parts.append("|" if self._accept("|") else self._quantified())
        self._flags = outer
        return "".join(parts)

    def _quantified(self) -> str:
        if "x" in self._flags and self._skip_comment():
            return ""
        atom = self._atom()
        if "x" in self._flags:
            while self._skip_comment():
                pass
        if atom is None:
            return ""
        count = self._quantifier()
        return f"(?:{atom}){count}" if count and atom in _ANCHORS else atom + count

    def _skip_comment(self) -> bool:
        if self._peek() in _BLANKS:
            self._at += 1
            return True
        if comment := _COMMENT.match(self._pattern, self._at):
            self._at = comment.end()
            return True
        return False

    def _quantifier(self) -> str:
        char = self._peek()
        if char in ("*", "+", "?"):
            self._at += 1
            count = char
        elif char == "{":
            count = self._counted()
        else:
            return ""
        if self._peek() in ("?", "+"):
            count += self._peek()
            self._at += 1
        return count

    def _counted(self) -> str:
        found = _COUNT.match(self._pattern, self._at)
        if found is None:
            self._fail("Illegal repetition", self._at + 1)
        low, comma, high = found.groups()
        end = found.end()
        if not self._pattern.startswith("}", end):
            self._fail("Unclosed counted closure", end)
        most = int(high or low)
        if max(int(low), most) > _MAX_COUNT or most < int(low):
            self._fail("Illegal repetition range", end)
        self._at = end + 1
        return f"{{{low}{comma}{high}}}"

    def _atom(self) -> str | None:
        """One thing that can be repeated; None for flags and empty quotes, which match nothing themselves."""
        char = self._peek()
        if char in "*+?":
            self._fail(f"Dangling meta character '{char}'")
        if char == "{":
            self._fail("Illegal repetition", self._at + 1)
        if char == "(":
            return self._group()
        if char == "[":
            return self._bracket()
        if char == "\\":
            return self._escape()
        self._at += 1
        if char == ".":
            return self._dot()
        if char == "^":
            return self._with_flag("^")
        if char == "$":
            return self._dollar()
        return self._literal(char)

    def _dot(self) -> str:
        if "s" in self._flags:
            return _ANY
        return r"[^\n]" if "d" in self._flags else _DOT

    def _dollar(self) -> str:
        if "m" in self._flags:
            return "(?m:$)" if "d" in self._flags else rf"(?=[{LINE_ENDS}]|\Z)"
        return r"(?=\n?\Z)" if "d" in self._flags else _FINAL_LINE_END

    def _with_flag(self, anchor: str) -> str:
        return f"(?m:{anchor})" if "m" in self._flags else anchor

    def _literal(self, char: str) -> str:
        return self._cased(re.escape(char), cased=char.lower() != char.upper())

    def _cased(self, text: str, *, cased: bool = True) -> str:
        if not cased or "i" not in self._flags:
            return text
        # Without (?u) Java folds ASCII letters only, as re.ASCII does.
        return f"(?iu:{text})" if "u" in self._flags else f"(?i:{text})"

    def _group(self) -> str | None:
        self._at += 1
        opening = "("
        if self._accept("?"):
            if self._accept("<"):
                opening = self._after_angle()
            elif self._peek() in (":", "=", "!", ">"):
                opening = f"(?{self._peek()}"
                self._at += 1
            else:
                return self._inline_flags()
        else:
            self._groups += 1
        return self._closed(opening)

    def _closed(self, opening: str) -> str:
        body = self._alternatives()
        if not self._accept(")"):
            self._fail("Unclosed group", len(self._pattern))
        return f"{opening}{body})"

    def _after_angle(self) -> str:
        if self._peek() in ("=", "!"):
            opening = f"(?<{self._peek()}"
            self._at += 1
            return opening
        name = self._name("named capturing group")
        if name in self._names:
            self._fail(f"Named capturing group <{name}> is already defined", self._at - 1)
        self._names.add(name)
        self._groups += 1
        return f"(?P<{name}>"

    def _name(self, what: str) -> str:
        found = _NAME.match(self._pattern, self._at)
        if found is None:
            self._fail("capturing group name does not start with a Latin letter")
        self._at = found.end()
        if not self._accept(">"):
            self._fail(f"{what} is missing trailing '>'")
        return found[0]

    def _inline_flags(self) -> str | None:
        found = _FLAGS.match(self._pattern, self._at)
        assert found is not None  # every part of the expression is optional
        self._at = found.end()
        flags = (self._flags | set(found[1])) - set(found[2] or "")
        if "U" in flags:
            self._fail("Inline flag U (UNICODE_CHARACTER_CLASS) is not supported here", found.start())
        if self._accept(")"):
            self._flags = flags
            return None
        if not self._accept(":"):
            self._fail("Unknown inline modifier")
        outer, self._flags = self._flags, flags
        group = self._closed("(?:")
        self._flags = outer
        return group

    def _escape(self) -> str | None:
        self._at += 1
        char = self._peek()
        if not char:
            self._fail("Unexpected internal error", self._at)
        if self._accept("Q"):
            return self._quoted()
        if char == "k":
            return self._named_reference()
        if char in "123456789":
            return self._numbered_reference()
        if char in "bBAZzGR":
            return self._boundary(char)
        content, is_set = self._escaped_item()
        if is_set:
            return f"[{content}]"
        return self._cased(content)

    def _quoted(self) -> str | None:
        end = self._pattern.find("\\E", self._at)
        stop = len(self._pattern) if end < 0 else end
        text = self._pattern[self._at : stop]
        self._at = stop if end < 0 else end + 2
        if not text:
            return None
        # A quantifier after the quote belongs to its last character alone, as in Java.
        return self._cased(re.escape(text[:-1])) + self._cased(re.escape(text[-1]))

    def _named_reference(self) -> str:
        self._at += 1
        if not self._accept("<"):
            self._fail("\\k is not followed by '<' for named capturing group")
        name = self._name("named capturing group")
        if name not in self._names:
            self._fail(f"named capturing group <{name}> does not exist", self._at - 1)
        return self._cased(f"(?P={name})")

    def _numbered_reference(self) -> str:
        number = int(self._peek())
        self._at += 1
        while (digit := self._peek()) and digit in "0123456789" and number * 10 + int(digit) <= self._groups:
            number = number * 10 + int(digit)
            self._at += 1
        # Java takes a reference to a group that does not exist: it never matches.
        return self._cased(f"(?:\\{number})") if number <= self._groups else "(?!)"

    def _boundary(self, char: str) -> str:
        self._at += 1
        if char == "G" or (char == "b" and self._peek(3) == "{g}"):
            self._fail(f"\\{char} is not supported here", self._at - 1)
        if char in "bB":
            # The one place where Java 17 goes beyond ASCII by itself.
            return f"(?u:\\{char})"
        if char == "z":
            return r"\Z"
        if char == "Z":
            return _FINAL_LINE_END
        return _LINE_BREAK if char == "R" else f"\\{char}"

    def _escaped_item(self) -> tuple[str, bool]:
        """What an escape stands for, as a part of a bracket expression; and if it is a set of characters.

        A set that is negated comes as the ranges of its complement.
        """
        start = self._at
        char = self._peek()
        self._at += 1
        if char in _SETS:
            return _SETS[char], True
        if char.lower() in _SETS:
            return _complement(_SETS[char.lower()]), True
        if char in "pP":
            return self._property(negated=char == "P"), True
        if char in _CONTROLS:
            return _CONTROLS[char], False
        if char == "c":
            control = self._peek()
            if not control:
                self._fail("Illegal control escape sequence")
            self._at += 1
            return f"\\x{ord(control) ^ 64:02x}", False
        if char in "xu0":
            return self._code_point(char), False
        if char.isascii() and char.isalpha():
            self._fail("Illegal/unsupported escape sequence", start)
        return re.escape(char), False

    def _code_point(self, kind: str) -> str:
        forms = {
            "0": (r"([0-3]?[0-7]{1,2})", 8, "Illegal octal escape sequence"),
            "x": (r"(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{2}))", 16, "Illegal hexadecimal escape sequence"),
            "u": (r"([0-9a-fA-F]{4})", 16, "Illegal Unicode escape sequence"),
        }
        form, base, description = forms[kind]
        found = re.compile(form).match(self._pattern, self._at)
        point = int(next(filter(None, found.groups())), base) if found else -1
        if found is None or point > 0x10FFFF:
            self._fail(description)
        self._at = found.end()
        return f"\\U{point:08x}"

    def _property(self, *, negated: bool) -> str:
        if self._accept("{"):
            end = self._pattern.find("}", self._at)
            if end < 0:
                self._fail("Unclosed character family", len(self._pattern) - 1)
            name = self._pattern[self._at : end]
            self._at = end + 1
        else:
            name = self._peek()
            self._at += 1
        content = property_class(name)
        if content is None:
            self._fail(f"Unknown character property name {{{name}}}", self._at - 1)
        return _complement(content) if negated else content

    def _bracket(self) -> str:
        """A class in brackets; unions and intersections of classes become alternatives and lookaheads."""
        self._at += 1
        negated = self._accept("^")
        operands = [self._union(first=True)]
        while self._accept("&&"):
            operands.append(self._union(first=False))
        if not self._accept("]"):
            self._fail("Unclosed character class", len(self._pattern) - 1)
        used = [operand for operand in operands if operand]
        if not used:
            self._fail("Unclosed character class", len(self._pattern) - 1)
        simple = len(used) == 1 and used[0].startswith("[") and not used[0].startswith("[^")
        if negated:
            text = f"[^{used[0][1:]}" if simple else f"(?:(?!{_all_of(used)}){_ANY})"
        else:
            text = _all_of(used)
        return self._cased(text)

    def _union(self, *, first: bool) -> str:
        """One operand of an intersection: characters, ranges and nested classes."""
        plain: list[str] = []
        nested: list[str] = []
        while self._at < len(self._pattern) and self._peek(2) != "&&":
            if self._peek() == "]" and not (first and not plain and not nested):
                break
            if self._peek() == "[":
                nested.append(self._bracket())
            elif not ("x" in self._flags and self._skip_comment()):
                plain.append(self._class_item())
        content = "".join(plain)
        parts = [*([f"[{content}]"] if content else []), *nested]
        if len(parts) > 1:
            return f"(?:{'|'.join(parts)})"
        return parts[0] if parts else ""

    def _class_item(self) -> str:
        low, is_set = self._class_char()
        if is_set or self._peek() != "-" or self._peek(2)[1:] in ("]", "["):
            return low
        start = self._at
        self._at += 1
        if not self._peek():
            self._fail("Illegal character range")
        high, is_set = self._class_char()
        if is_set:
            self._fail("Illegal character range", self._at - 1)
        if _ordinal(high) < _ordinal(low):
            self._fail("Illegal character range", start + 1)
        return f"{low}-{high}"

    def _class_char(self) -> tuple[str, bool]:
        if not self._accept("\\"):
            char = self._peek()
            self._at += 1
            return re.escape(char), False
        if not self._peek():
            self._fail("Unexpected internal error", self._at)
        if self._accept("Q"):
            end = self._pattern.find("\\E", self._at)
            if end < 0:
                self._fail("Unclosed character class", len(self._pattern) - 1)
            text = self._pattern[self._at : end]
            self._at = end + 2
            return re.escape(text), len(text) != 1
        if self._peek() in "bBAZzGRkE123456789":
            self._fail("Illegal/unsupported escape sequence")
        return self._escaped_item()


def _all_of(operands: list[str]) -> str:
    """An expression for one character that is in every operand."""
    if len(operands) == 1:
        return operands[0]
    return f"(?:{''.join(f'(?={operand})' for operand in operands[:-1])}{operands[-1]})"


def _ordinal(item: str) -> int:
    """The character that an item of a bracket expression stands for."""
    if item.startswith(("\\U", "\\x")):
        return int(item[2:], 16)
    return _CONTROL_CODES.get(item, ord(item[-1]))


@lru_cache(maxsize=64)
def _complement(content: str) -> str:
    """The ranges of all characters that a bracket expression's content leaves out."""
    inside = re.compile(f"[{content}]", re.ASCII)
    parts: list[str] = []
    start: int | None = 0
    for found in inside.finditer("".join(map(chr, range(0x110000)))):
        point = found.start()
        if start is not None and start < point:
            parts.append(f"\\U{start:08x}-\\U{point - 1:08x}")
        start = point + 1
    if start is not None and start < 0x110000:
        parts.append(f"\\U{start:08x}-\\U0010ffff")
    return "".join(parts)
