"""The limits on the nesting of values and schemas, and the settings that allow this depth.

Python, Spark and Arrow go through nested data by recursion, each with its own limit, and exceeding one fails a whole
batch. So a value that is nested too deeply is rejected individually before that.

Schemaless data: ``MAX_LEVELS``, which is where Java's JSON parser stops. Python gets room for it (``make_room``), and
the JVM larger stacks (``driver_jvm.JVM_OPTIONS``). Data with a schema: Spark's time for a plan grows with some power of
the depth of its columns. Beyond ``PLAN_LEVELS`` a batch goes record by record where its task can
(``penstock.pipeline.batch.groups``), and beyond ``MAX_SCHEMA_LEVELS`` its records are refused where it cannot.

Thread: any.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from penstock.data import Schema, Struct, Type
from penstock.errors import DataException

MAX_LEVELS: Final = 1_000
PLAN_LEVELS: Final = 8
MAX_SCHEMA_LEVELS: Final = 20
#: A level takes two calls to read or write. A thread's stack of 8 MiB holds as many of the largest ones through C
#: (``sorted`` with a function that sorts); with more, code that recurses without end would kill the process.
_MAX_CALLS: Final = 3_000
TOO_DEEP_SCHEMA: Final = (
    f"The schema has more than {MAX_SCHEMA_LEVELS} levels of nesting, which is too much for columns: a struct and an "
    "array count one each, a map counts two. Deeper data can go without a schema"
)
_CONTAINERS: Final = frozenset((dict, list, tuple, Struct))
_NESTED: Final = frozenset((Type.ARRAY, Type.MAP, Type.STRUCT))


def make_room() -> None:
    """Lets Python's functions recurse as deeply as values may be nested."""
    if sys.getrecursionlimit() < _MAX_CALLS:
        sys.setrecursionlimit(_MAX_CALLS)


def anywhere(schema: Schema | None, holds: Callable[[Schema], bool]) -> bool:
    """True if something holds for a schema, or for one inside it.

    >>> inner = Schema(Type.INT8)
    >>> anywhere(Schema(Type.ARRAY, value_schema=inner), inner.__eq__), anywhere(None, inner.__eq__)
    (True, False)
    """
    if schema is None:
        return False
    if holds(schema):
        return True
    match schema.type:
        case Type.ARRAY:
            return anywhere(schema.value_schema, holds)
        case Type.MAP:
            return anywhere(schema.key_schema, holds) or anywhere(schema.value_schema, holds)
        case Type.STRUCT:
            return any(anywhere(field.schema, holds) for field in schema.fields)
        case _:
            return False


def is_deep(value: object, most: int = MAX_LEVELS) -> bool:
    """True if a schemaless value is nested deeper than the given level, or contains itself.

    >>> is_deep({"a": [1]}, 1), is_deep({"a": [1]}, 2)
    (True, False)
    """
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(most):
        if not level:
            return False
        level = [item for one in level for item in _items(one) if type(item) in _CONTAINERS]
    return bool(level)


def _items(container: object) -> list[object]:
    if isinstance(container, dict):
        return list(container.values())
    if isinstance(container, Struct):
        return list(container.values)
    return list(container) if isinstance(container, (list, tuple)) else []


def value_too_deep() -> DataException:
    """The error of a schemaless value that is nested too deeply."""
    return DataException(f"A schemaless value has more than {MAX_LEVELS} levels of nesting, or contains itself")


def check_schema(schema: Schema | None) -> None:
    """Returns when values of a schema can be columns.

    Raises:
        DataException: It is nested too deeply.
    """
    if exceeds(schema, MAX_SCHEMA_LEVELS):
        raise DataException(TOO_DEEP_SCHEMA)


def exceeds(schema: Schema | None, most: int = PLAN_LEVELS) -> bool:
    """True if a schema is nested deeper than the given level."""
    return schema is not None and schema.type in _NESTED and not _fits(schema, most)


@lru_cache(maxsize=1024)
def _fits(schema: Schema, most: int) -> bool:
    level = [(schema, most)]
    while level:
        one, left = level.pop()
        left -= 2 if one.type is Type.MAP else 1
        if left < 0:
            return False
        level += [(part, left) for part in _parts(one) if part is not None and part.type in _NESTED]
    return True


def _parts(schema: Schema) -> list[Schema | None]:
    match schema.type:
        case Type.STRUCT:
            return [field.schema for field in schema.fields]
        case Type.MAP:
            return [schema.key_schema, schema.value_schema]
        case _:
            return [schema.value_schema]
