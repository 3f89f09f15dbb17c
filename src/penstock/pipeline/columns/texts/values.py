"""Java's text of many values without schemas, kind by kind: what ``to_java_text`` prints, in a third of the time.

Maps with the same keys are printed together, one key after the other: the order in which Java prints keys is asked for
once, and the values of a key go kind by kind again.

Main function: ``java_texts``. Thread: any; pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np

from penstock.data.text import PLAIN_FROM, PLAIN_TO, hash_map_order, java_double, to_java_text

#: Fewer maps with the same keys are printed one by one.
_TOGETHER: Final = 4
_BOOLEANS: Final[Mapping[object, str]] = {True: "true", False: "false"}


def java_texts(values: Sequence[Any]) -> Sequence[str]:
    """The texts of values of any kinds that a parser of JSON makes, in their order.

    >>> java_texts([{"source": 1, "line": None}, {"source": 1e7, "line": [True]}, "text"])
    ['{line=null, source=1}', '{line=[true], source=1.0E7}', 'text']

    Raises:
        RecursionError: A value is nested too deeply.
    """
    kinds = {*map(type, values)}
    if len(kinds) == 1:
        return _PRINTERS.get(kinds.pop(), _others)(values)
    found = [""] * len(values)
    for kind in kinds:
        rows = [row for row, value in enumerate(values) if type(value) is kind]
        mine = _PRINTERS.get(kind, _others)([values[row] for row in rows])
        for row, text in zip(rows, mine, strict=True):
            found[row] = text
    return found


def _others(values: Sequence[Any]) -> Sequence[str]:
    return list(map(to_java_text, values))


def _texts(values: Sequence[str]) -> Sequence[str]:
    return values


def _integers(values: Sequence[int]) -> Sequence[str]:
    return list(map(str, values))


def _booleans(values: Sequence[bool]) -> Sequence[str]:
    return [_BOOLEANS[value] for value in values]


def _nulls(values: Sequence[None]) -> Sequence[str]:
    return ["null"] * len(values)


def _doubles(values: Sequence[float]) -> Sequence[str]:
    sizes = np.abs(np.array(values))
    plain = ((sizes >= PLAIN_FROM) & (sizes < PLAIN_TO)).all()
    return list(map(repr if plain else java_double, values))


def _lists(values: Sequence[list[Any]]) -> Sequence[str]:
    items = java_texts([item for value in values for item in value])
    found: list[str] = []
    at = 0
    for value in values:
        end = at + len(value)
        found.append("[" + ", ".join(items[at:end]) + "]")
        at = end
    return found


def _maps(values: Sequence[dict[str, Any]]) -> Sequence[str]:
    keys = list(map(tuple, values))
    sets = {*keys}
    if len(sets) == 1:
        return _alike(sets.pop(), values)
    found = [""] * len(values)
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for row, names in enumerate(keys):
        rows_of.setdefault(names, []).append(row)
    for names, rows in rows_of.items():
        mine = [values[row] for row in rows]
        texts = _others(mine) if len(mine) < _TOGETHER else _alike(names, mine)
        for row, text in zip(rows, texts, strict=True):
            found[row] = text
    return found


def _alike(names: tuple[str, ...], values: Sequence[dict[str, Any]]) -> Sequence[str]:
    """Maps with these keys in this order."""
    if not names:
        return ["{}"] * len(values)
    columns = dict(zip(names, zip(*map(dict.values, values), strict=True), strict=True))
    parts: list[Iterable[str]] = []
    for index, name in enumerate(hash_map_order(names)):
        parts += [repeat(f"{', ' if index else '{'}{name}="), java_texts(columns[name])]
    # Half the time of a template.
    return list(map("".join, zip(*parts, repeat("}"), strict=False)))


_PRINTERS: Final[Mapping[type, Callable[[Sequence[Any]], Sequence[str]]]] = {
    str: _texts,
    int: _integers,
    bool: _booleans,
    type(None): _nulls,
    float: _doubles,
    list: _lists,
    dict: _maps,
}
