"""Checks of single configuration values, with Java's messages; `str(validator)` documents the accepted values.

All validators are immutable and usable from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.config.parse import class_path, find_class, invalid, java_text
from penstock.data.text import bucket_of
from penstock.errors import ConfigException


class Validator(Protocol):
    """A check of one parsed value. Source: ConfigDef.Validator of Kafka 4.3."""

    def ensure_valid(self, name: str, value: object) -> None:
        """Returns if the value is accepted.

        Raises:
            ConfigException: The value is rejected.
        """


@dataclass(frozen=True)
class Range:
    """A number with a lower and an upper bound, each optional; rejects null.

    Source: ConfigDef.Range of Kafka 4.3.

    >>> print(Range.at_least(1), Range.between(0, 3))
    [1,...] [0,...,3]
    """

    minimum: float | None = None
    maximum: float | None = None

    @classmethod
    def at_least(cls, minimum: float) -> Range:
        """A number with no upper bound."""
        return cls(minimum, None)

    @classmethod
    def between(cls, minimum: float, maximum: float) -> Range:
        """A number in bounds, both included."""
        return cls(minimum, maximum)

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects null and numbers out of bounds."""
        if value is None:
            raise invalid(name, value, "Value must be non-null")
        if not isinstance(value, int | float):
            raise invalid(name, value, "Value must be a number")
        if self.minimum is not None and value < self.minimum:
            raise invalid(name, value, f"Value must be at least {java_text(self.minimum)}")
        if self.maximum is not None and value > self.maximum:
            raise invalid(name, value, f"Value must be no more than {java_text(self.maximum)}")

    def __str__(self) -> str:
        if self.minimum is None:
            return "[...]" if self.maximum is None else f"[...,{java_text(self.maximum)}]"
        if self.maximum is None:
            return f"[{java_text(self.minimum)},...]"
        return f"[{java_text(self.minimum)},...,{java_text(self.maximum)}]"


class ValidString:
    """One of the listed texts, case-sensitive; rejects null unless it is listed.

    Source: ConfigDef.ValidString of Kafka 4.3.
    """

    def __init__(self, *valid: str) -> None:
        self.valid = valid

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects every text that is not listed."""
        if value not in self.valid:
            raise invalid(name, value, f"String must be one of: {', '.join(self.valid)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.valid)}]"


def has_repeated(items: Sequence[object]) -> bool:
    """True if two items are equal; in linear time for hashable items such as texts.

    >>> has_repeated(["a", "b", "a"]), has_repeated([["a"], ["b"]]), has_repeated([])
    (True, False, False)
    """
    try:
        return len(set(items)) < len(items)
    except TypeError:
        # A connector's own default may contain anything.
        return any(item in items[:index] for index, item in enumerate(items))


class CaseInsensitiveValidString:
    """One of the listed texts in any letter case; rejects null.

    Source: ConfigDef.CaseInsensitiveValidString of Kafka 4.3.

    The texts are listed in upper case and in the order of a Java HashSet, as in Java's message.

    >>> print(CaseInsensitiveValidString("poll", "interval", "connector"))
    (case insensitive) [INTERVAL, POLL, CONNECTOR]
    """

    def __init__(self, *valid: str) -> None:
        texts = dict.fromkeys(text.upper() for text in valid)
        self.valid = tuple(sorted(texts, key=bucket_of(len(texts))))

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects every text that is not listed."""
        if not isinstance(value, str) or value.upper() not in self.valid:
            raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(self.valid)}")

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.valid)}]"


class ValidList:
    """A list without empty and repeated items, of listed or of arbitrary texts.

    Source: ConfigDef.ValidList of Kafka 4.3.

    `ConfigDef.parse` removes repeated items before this check, `ConfigDef.validate` does not.
    """

    def __init__(self, valid: Sequence[str] = (), *, empty_allowed: bool = True, null_allowed: bool = False) -> None:
        self._string = ValidString(*valid)
        self._empty_allowed = empty_allowed
        self._null_allowed = null_allowed

    @classmethod
    def of(cls, *valid: str) -> ValidList:
        """Any number of the listed texts."""
        return cls(valid)

    @classmethod
    def non_empty_of(cls, *valid: str) -> ValidList:
        """At least one of the listed texts."""
        return cls(valid, empty_allowed=False)

    @classmethod
    def any_non_duplicate(cls, *, empty_allowed: bool, null_allowed: bool) -> ValidList:
        """Any texts without repetition (Java: `anyNonDuplicateValues`)."""
        return cls((), empty_allowed=empty_allowed, null_allowed=null_allowed)

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects empty, repeated and unlisted items, and null and empty lists unless they are allowed."""
        if value is None:
            if self._null_allowed:
                return
            raise ConfigException(f"Configuration '{name}' values must not be null.")
        if not isinstance(value, list | tuple):
            raise invalid(name, value, "Expected a comma separated list.")
        if not value and not self._empty_allowed:
            accepted = str(self._string) if self._string.valid else "any non-empty value"
            raise ConfigException(f"Configuration '{name}' must not be empty. Valid values include: {accepted}")
        if has_repeated(value):
            raise ConfigException(f"Configuration '{name}' values must not be duplicated.")
        for item in value:
            if item == "":
                raise ConfigException(f"Configuration '{name}' values must not be empty.")
            if self._string.valid:
                self._string.ensure_valid(name, item)

    def __str__(self) -> str:
        empty = "empty config allowed" if self._empty_allowed else "empty not allowed"
        null = "null config allowed" if self._null_allowed else "null not allowed"
        return f"{self._string} ({empty}) ({null})"


class AnyNonDuplicate(ValidList):
    """A list of any texts, none of them empty or repeated. Source: ConfigDef.ValidList of Kafka 4.3."""

    def __init__(self, *, empty_allowed: bool = True, null_allowed: bool = False) -> None:
        super().__init__((), empty_allowed=empty_allowed, null_allowed=null_allowed)


class NonNull:
    """Any value except null. Source: ConfigDef.NonNullValidator of Kafka 4.3."""

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects null."""
        if value is None:
            raise invalid(name, value, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


class NonEmptyString:
    """Null, or a text with at least one character. Source: ConfigDef.NonEmptyString of Kafka 4.3."""

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects the empty text."""
        if value == "":
            raise invalid(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class NonEmptyStringWithoutControlChars:
    """Null, or a text with at least one character and without control characters: a connector's name.

    Source: ConfigDef.NonEmptyStringWithoutControlChars of Kafka 4.3.
    """

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects the empty text and ISO control characters, whose codes the message lists."""
        if not isinstance(value, str):
            return
        if not value:
            raise invalid(name, value, "String may not be empty")
        found = [str(ord(char)) for char in value if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0]
        if found:
            raise invalid(
                name,
                value,
                f"String may not contain control sequences but had the following ASCII chars: {', '.join(found)}",
            )

    def __str__(self) -> str:
        return "non-empty string without ISO control characters"


@dataclass(frozen=True)
class ListSize:
    """A list of at most this many items. Source: ConfigDef.ListSize of Kafka 4.3."""

    maximum: int

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects longer lists."""
        if isinstance(value, list | tuple) and len(value) > self.maximum:
            raise invalid(name, value, f"exceeds maximum list size of [{self.maximum}].")

    def __str__(self) -> str:
        return f"List containing maximum of {self.maximum} elements"


@dataclass(frozen=True)
class SubclassOf:
    """Null, or a subclass of a given class, for settings of type CLASS. Source: Penstock's own.

    >>> SubclassOf(Exception).ensure_valid("error.class", ValueError)
    """

    base: type

    def ensure_valid(self, name: str, value: object) -> None:
        """Rejects classes that do not extend the base, and texts that name no importable class."""
        if value is None:
            return
        cls = find_class(name, value) if isinstance(value, str) else value
        if not isinstance(cls, type) or not issubclass(cls, self.base):
            raise invalid(name, value, f"Class must extend {class_path(self.base)}")

    def __str__(self) -> str:
        return f"class that extends {class_path(self.base)}"


class CompositeValidator:
    """Several checks; the first one that rejects the value sets the message.

    Source: ConfigDef.CompositeValidator of Kafka 4.3.
    """

    def __init__(self, *validators: Validator) -> None:
        self._validators = validators

    def ensure_valid(self, name: str, value: object) -> None:
        """Runs the checks in order."""
        for validator in self._validators:
            validator.ensure_valid(name, value)

    def __str__(self) -> str:
        return ", ".join(map(str, self._validators))


class LambdaValidator:
    """A check by a function, with the text that documents it.

    Source: ConfigDef.LambdaValidator of Kafka 4.3.
    """

    def __init__(self, check: Callable[[str, object], None], description: str = "") -> None:
        self._check = check
        self._description = description

    def ensure_valid(self, name: str, value: object) -> None:
        """Calls the function, which raises ConfigException to reject the value."""
        self._check(name, value)

    def __str__(self) -> str:
        return self._description
