"""Compatibility of Avro schemas: tells if data of one can be read with another.

Main function: ``cannot_read``. Thread: pure functions.
Source: the Avro specification, "Schema Resolution"; org.apache.avro.SchemaCompatibility.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.converters.registry.avro.forms import MISSING, AvroType

#: The types from which a type can be read, besides itself.
_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}


def cannot_read(reader: AvroType, writer: AvroType) -> str | None:
    """Returns why data of a schema cannot be read with another one, or None if it can."""
    return _Comparison().reason(reader, writer, "the value")


class _Comparison:
    def __init__(self) -> None:
        #: Pairs of records in progress or compared before: recursion ends here.
        self._seen: set[tuple[int, int]] = set()

    def reason(self, reader: AvroType, writer: AvroType, place: str) -> str | None:
        if writer.kind == "union":
            found = (self.reason(reader, one, place) for one in writer.branches)
            return next((one for one in found if one is not None), None)
        if reader.kind == "union":
            if any(self.reason(one, writer, place) is None for one in reader.branches):
                return None
            return f"{place} is no {writer.shown} there, but one of {', '.join(one.shown for one in reader.branches)}"
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return None
            return f"{place} is of type {reader.shown} there, and {writer.shown} here"
        if reader.name is not None:
            return self._named(reader, writer, place)
        if reader.items is not None and writer.items is not None:
            return self.reason(reader.items, writer.items, f"an element of {place}")
        return None

    def _named(self, reader: AvroType, writer: AvroType, place: str) -> str | None:
        names = {reader.name, *reader.aliases}
        if writer.name not in names and _short(reader) != _short(writer):
            return f"{place} is called {reader.name} there, and {writer.name} here"
        if reader.kind == "fixed":
            return None if reader.size == writer.size else f"{place} has {reader.size} bytes there"
        if reader.kind == "enum":
            missing = [one for one in writer.symbols if one not in reader.symbols]
            known = not missing or reader.default_symbol is not None
            return None if known else f"{place} has no symbol {', '.join(missing)} there"
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return None
        self._seen.add(pair)
        written = {one.name: one for one in writer.fields}
        for field in reader.fields:
            other = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            if other is not None:
                why = self.reason(field.type, other.type, f"field {field.name} of {place}")
            else:
                why = None if field.default is not MISSING else f"{place} has a field {field.name} there, not here"
            if why is not None:
                self._seen.discard(pair)
                return why
        return None


def _short(found: AvroType) -> str:
    return (found.name or "").rpartition(".")[2]
