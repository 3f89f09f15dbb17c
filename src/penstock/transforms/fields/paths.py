"""Paths to fields, and the setting ``field.syntax.version``.

V1: the whole text is the name of a field at the top. V2: dots separate the steps of a path; a step in backticks may
contain dots, and a backtick before a dot is escaped with a backslash.

Main types: ``FieldPath``; ``define_syntax`` and ``parse_path`` for transforms that have the setting.

Thread: immutable values; pure functions.
Source: org.apache.kafka.connect.transforms.field.SingleFieldPath and FieldSyntaxVersion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from penstock.config import CaseInsensitiveValidString, Importance, setting
from penstock.data import Field, Schema, Struct, Type
from penstock.errors import ConfigException, DataException
from penstock.transforms.definition import NullPointerError, require_map, require_struct

if TYPE_CHECKING:
    from collections.abc import Sequence

SYNTAX_CONFIG: Final = "field.syntax.version"
NESTED: Final = "nested field access"


class NoStepsError(ValueError):
    """An empty path of version 2, in which Java finds no last step."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


def field_syntax() -> Any:
    """The field ``field_syntax_version: str | None`` of an `AbstractConfig`."""
    return setting(
        default="V1",
        validator=CaseInsensitiveValidString("V1", "V2"),
        importance=Importance.HIGH,
        doc="Defines the version of the syntax to access fields. If set to `V1`, then the field paths are limited to "
        "access the elements at the root level of the struct or map. If set to `V2`, the syntax will support accessing "
        "nested elements. To access nested elements, dotted notation is used. If dots are already included in the "
        "field name, then backtick pairs can be used to wrap field names containing dots. E.g. to access the subfield "
        '`baz` from a field named "foo.bar" in a struct/map the following format can be used to access its elements: '
        '"`foo.bar`.baz".',
    )


def parse_path(text: str | None, version: object) -> FieldPath:
    """Parses a path in the syntax that a transform is configured for.

    Raises:
        ConfigException: A backtick is not closed.
        NullPointerError: The text is null.
    """
    if text is None:
        raise NullPointerError("The path of a field is null")
    if str(version).upper() == "V1":
        return FieldPath(text, (text,))
    return FieldPath(text, tuple(split_path(text)))


def split_path(path: str) -> Sequence[str]:
    r"""The steps of a path of version 2.

    >>> split_path("a.`b.c`.d"), split_path(r"`a\`.b`"), split_path("a.")
    (['a', 'b.c', 'd'], ['a`.b'], ['a', ''])

    Raises:
        ConfigException: A backtick is not closed.
    """
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            step, at = _quoted(path, at)
            steps.append(step)
            continue
        dot = path.find(".", at)
        if dot < 0:
            steps.append(path[at:])
            break
        steps.append(path[at:dot])
        at = dot + 1
    if path.endswith("."):
        steps.append("")
    return steps


def _quoted(path: str, opening: int) -> tuple[str, int]:
    """The step in backticks that starts at ``opening``, and the start of the next step."""
    step = ""
    start = at = opening + 1
    while True:
        at = path.find("`", at)
        if at < 0:
            _incomplete(path, opening)
        escaped = path[at - 1] == "\\"
        if at == len(path) - 1:
            if escaped:
                _incomplete(path, opening)
            return step + path[start:at], at + 1
        if path[at + 1] != ".":
            # Not a closing backtick, but a part of the name.
            at += 1
        elif escaped:
            step += path[start : at - 1] + "`"
            at += 1
            start = at
        else:
            return step + path[start:at], at + 2


def _incomplete(path: str, opening: int) -> NoReturn:
    raise ConfigException(
        f"Incomplete backtick pair in path: [{path}], "
        f"consider adding a backslash before backtick at position {opening} to escape it"
    )


@dataclass(frozen=True)
class FieldPath:
    """The path to a field.

    Attributes:
        text: The path as written.
        steps: The names from the top down; empty only for an empty path of version 2, which cannot be used.
    """

    text: str
    steps: tuple[str, ...]

    def ensure_steps(self) -> None:
        """Raises if the path has no steps.

        Raises:
            NoStepsError: The path is empty.
        """
        if not self.steps:
            raise NoStepsError(f'fromIndex(0) > toIndex(-1): the path "{self.text}" names no field')

    def fields(self, schema: Schema) -> list[Field] | None:
        """The fields along the path, from the top down; None if one of them does not exist.

        Raises:
            DataException: A step leads into a value that is not a struct.
            NoStepsError: The path is empty.
        """
        self.ensure_steps()
        found: list[Field] = []
        current = schema
        for step in self.steps:
            if current.type is not Type.STRUCT:
                raise DataException("Cannot look up fields on non-struct type")
            field = current.field(step)
            if field is None:
                return None
            found.append(field)
            current = field.schema
        return found

    def of_struct(self, value: Struct, *, defaults: bool) -> object:
        """The value at the end of the path; None if a struct on the way is null.

        A null on the way is always replaced by its default; ``defaults`` only applies to the last step.
        """
        for step in self.steps[:-1]:
            inner = value.get(step)
            if inner is None:
                return None
            value = require_struct(inner, None, NESTED)
        return value.get(self.steps[-1]) if defaults else value.get_without_default(self.steps[-1])

    def of_map(self, value: Mapping[object, object]) -> object:
        """The value at the end of the path; None if a map on the way is null or missing.

        Raises:
            DataException: A step leads into a value that is not a map.
            NoStepsError: The path is empty.
        """
        self.ensure_steps()
        for step in self.steps[:-1]:
            inner = value.get(step)
            if inner is None:
                return None
            value = require_map(inner, NESTED)
        return value.get(self.steps[-1])
