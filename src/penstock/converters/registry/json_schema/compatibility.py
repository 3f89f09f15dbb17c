"""Compatibility of JSON Schemas: tells if values of one can be read with another, by Confluent's rules.

Main function: ``cannot_read``. Thread: pure functions.
Source: io.confluent.kafka.schemaregistry.json.diff.SchemaDiff and the related classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.config.java_pattern import compile_java
from penstock.converters.registry.json_schema.parsing import Criteria, Criterion, schemas_by_name

Parsed = tuple[Any, Mapping[str, str]]

_COMBINED: Final = ("oneOf", "allOf")
#: Limits that may grow, and limits that may shrink.
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_ABSENT: Final = object()


def cannot_read(reader: Parsed, writer: Parsed) -> str | None:
    """Returns why values of a schema cannot be read with another one, or None if they can.

    Args:
        reader: The schema to read with, and the texts of its references by name.
        writer: The schema of the values, with its references.
    """
    criteria = [Criteria(schemas_by_name(references)) for _, references in (reader, writer)]
    return _Comparison(*criteria).whole(reader[0], writer[0])


class _Comparison:
    def __init__(self, readers: Criteria, writers: Criteria) -> None:
        self._readers = readers
        self._writers = writers
        #: Pairs of schemas in progress: recursion ends here.
        self._open: set[tuple[int, int]] = set()

    def whole(self, reader: Any, writer: Any) -> str | None:
        return self._nodes(reader, writer, "the value", self._readers.of_root, self._writers.of_root)

    def _nodes(
        self,
        reader: Any,
        writer: Any,
        place: str,
        of_reader: Callable[[Any], Criterion],
        of_writer: Callable[[Any], Criterion],
    ) -> str | None:
        """Two schemas in JSON; ``_ABSENT``: there is no schema."""
        if reader is _ABSENT or _takes_all(reader) or writer is False or reader == writer:
            return None
        if writer is _ABSENT or _takes_all(writer) or reader is False or not _has_criteria(reader, writer):
            return f"{place} is {_shown(reader)} there, and {_shown(writer)} here"
        return self._reason(of_reader(reader), of_writer(writer), place)

    def _parts(self, reader: Criterion, writer: Criterion, nodes: tuple[Any, Any], place: str) -> str | None:
        return self._nodes(
            *nodes,
            place,
            lambda node: self._readers.of(node, reader.resolver),
            lambda node: self._writers.of(node, writer.resolver),
        )

    def _reason(self, reader: Criterion, writer: Criterion, place: str) -> str | None:
        reader, writer = self._target(self._readers, reader), self._target(self._writers, writer)
        pair = (id(reader.node), id(writer.node))
        if reader.kind == writer.kind == "object" and pair in self._open:
            return None
        self._open.add(pair)
        try:
            return self._compared(reader, writer, place)
        finally:
            self._open.discard(pair)

    def _target(self, criteria: Criteria, found: Criterion) -> Criterion:
        while found.kind == "ref":
            found = criteria.target(found)
        return found

    def _compared(self, reader: Criterion, writer: Criterion, place: str) -> str | None:
        one, other = (found.kind in _COMBINED for found in (reader, writer))
        if one and other:
            return self._combined(reader, writer, place)
        pairs: list[tuple[Criterion, Criterion]] = []
        if one and (reader.kind == "oneOf" or len(reader.parts) == 1):
            pairs = [(part, writer) for part in reader.parts]
        elif other and (writer.kind == "allOf" or len(writer.parts) == 1):
            pairs = [(reader, part) for part in writer.parts]
        if any(self._reason(*pair, place) is None for pair in pairs):
            return None
        kinds = [_kind(found) for found in (reader, writer)]
        if kinds[0] != kinds[1]:
            connect = [found.node.get("connect.type") for found in (reader, writer)]
            return None if connect == ["bytes", "bytes"] else f"{place} is {kinds[0]} there, and {kinds[1]} here"
        return next((why for why in self._of_kind(kinds[0], reader, writer, place) if why is not None), None)

    def _combined(self, reader: Criterion, writer: Criterion, place: str) -> str | None:
        alike = reader.kind == writer.kind or len(writer.parts) == 1
        alike = alike or (len(reader.parts) == 1 and writer.kind == "allOf") or "anyOf" in reader.node
        if not alike:
            return f"{place} is {reader.kind} there, and {writer.kind} here"
        fewer = len(reader.parts) < len(writer.parts) if writer.kind == "oneOf" else False
        more = len(reader.parts) > len(writer.parts) if reader.kind == "allOf" else False
        fits = [
            [at for at, one in enumerate(reader.parts) if self._reason(one, part, place) is None]
            for part in writer.parts
        ]
        pairs = _most_pairs(fits)
        if fewer or more or pairs < min(len(reader.parts), len(writer.parts)):
            return f"{place} is {_shown(reader.node)} there, and {_shown(writer.node)} here"
        return None

    def _of_kind(self, kind: str, reader: Criterion, writer: Criterion, place: str) -> Iterator[str | None]:
        yield from _limits(reader.node, writer.node, place)
        if kind == "number" and reader.kind == "integer" and writer.kind == "number":
            yield f"{place} is an integer there, and a number here"
        if kind in ("enum", "const"):
            values = [one.node.get("enum", [one.node.get("const")]) for one in (reader, writer)]
            missing = [one for one in values[1] if one not in values[0]]
            yield f"{place} has no {', '.join(map(_shown, missing))} there" if missing else None
        elif kind == "array":
            yield from self._arrays(reader, writer, place)
        elif kind == "object":
            yield from self._objects(reader, writer, place)

    def _arrays(self, reader: Criterion, writer: Criterion, place: str) -> Iterator[str | None]:
        items = [one.node.get("items", _ABSENT) for one in (reader, writer)]
        if isinstance(items[0], list) or isinstance(items[1], list):
            yield None if items[0] == items[1] else f"{place} has other elements there"
            return
        yield self._parts(reader, writer, (items[0], items[1]), f"an element of {place}")

    def _objects(self, reader: Criterion, writer: Criterion, place: str) -> Iterator[str | None]:
        there, here = (one.node.get("properties", {}) for one in (reader, writer))
        required = [one.node.get("required", ()) for one in (reader, writer)]
        for name in {**there, **here}:
            what = f"field {name} of {place}"
            if name not in there:
                yield self._parts(reader, writer, (_rest(reader.node, name), here[name]), what)
                continue
            new = name in required[0] and name not in required[1]
            if new and not (isinstance(there[name], dict) and "default" in there[name]):
                yield f"{what} is required there"
            if name in here:
                yield self._parts(reader, writer, (there[name], here[name]), what)
                continue
            rest = _rest(writer.node, name)
            if rest is not False:
                yield self._parts(reader, writer, (there[name], rest), what)
        rests = [one.node.get("additionalProperties", True) for one in (reader, writer)]
        yield self._parts(reader, writer, (rests[0], rests[1]), f"any other field of {place}")
        dependencies = [one.node.get("dependencies", {}) for one in (reader, writer)]
        yield None if dependencies[0] == dependencies[1] or not dependencies[0] else f"{place} has dependencies there"


def _rest(node: Mapping[str, Any], name: str) -> Any:
    """Returns the schema of unlisted properties."""
    for pattern, part in node.get("patternProperties", {}).items():
        if compile_java(pattern, name="patternProperties").found_in(name):
            return part
    return node.get("additionalProperties", True)


def _takes_all(node: Any) -> bool:
    return node is True or node == {}


def _has_criteria(*nodes: Any) -> bool:
    return all(isinstance(node, dict) and not re.fullmatch(r"(not)?", ",".join(node)) for node in nodes)


def _kind(found: Criterion) -> str:
    if found.kind == "enum":
        return "enum" if "enum" in found.node else "const"
    return "number" if found.kind == "integer" else found.kind


def _limits(reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
    for names, sign in ((_UPPER, 1), (_LOWER, -1)):
        for name in names:
            there, here = reader.get(name), writer.get(name)
            if there is not None and (here is None or sign * here > sign * there):
                yield f"{name} of {place} is {there} there, and {here} here"
    for name in ("pattern", "multipleOf"):
        there, here = reader.get(name), writer.get(name)
        divides = name == "multipleOf" and there is not None and here is not None and here % there == 0
        if there is not None and there != here and not divides:
            yield f"{name} of {place} is {there} there, and {here} here"
    if reader.get("uniqueItems") and not writer.get("uniqueItems"):
        yield f"the elements of {place} are unique there"


def _most_pairs(fits: Sequence[Sequence[int]]) -> int:
    """Returns the size of the largest matching of a bipartite graph."""
    taken: dict[int, int] = {}

    def found(one: int, tried: set[int]) -> bool:
        for at in fits[one]:
            if at in tried:
                continue
            tried.add(at)
            if at not in taken or found(taken[at], tried):
                taken[at] = one
                return True
        return False

    return sum(found(one, set()) for one in range(len(fits)))


def _shown(node: Any) -> str:
    return "anything" if node is _ABSENT else json.dumps(node)[:200]
