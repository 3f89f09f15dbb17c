"""XML files: each element of one name is a row. Main type: ``XmlReader``. The task's thread.

Attributes are fields with a leading underscore, child elements are fields by their names, repeated ones are lists, and
the text of an element with either is its field ``_VALUE``. Names are without their namespaces. All values are text.

Source: Spark's reader of XML, whose ``rowTag``, ``attributePrefix`` and ``valueTag`` these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from xml.etree import ElementTree

import pyarrow as pa

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.json_lines import table_of
from penstock.connectors.files.source.readers.reader import (
    BLOCK_ROWS,
    BadFileException,
    FileRows,
    FormatReader,
    Input,
    parts_of,
    unit_of,
)
from penstock.connectors.files.source.readers.text import open_text

_READ_BYTES: Final = 1 << 16
_PREFIX: Final = "_"
_VALUE: Final = "_VALUE"
Parser: TypeAlias = "ElementTree.XMLPullParser[Any]"


class XmlReader(FormatReader):
    """XML; a block has a fixed number of rows, and the text before a position is parsed again.

    Args:
        row_tag: The name of the elements that are rows; empty: those directly below the root.
    """

    def __init__(self, row_tag: str = "") -> None:
        self._row_tag = row_tag

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``.

        Raises:
            BadFileException: The file is no XML; rows before the error have been returned.
        """
        begin, skipped = unit_of(place)
        known = _Known()
        for number, rows in enumerate(self._blocks(file)):
            # Also for skipped blocks, so that types are the same again.
            table = known.table(rows)
            if number >= begin:
                yield from parts_of(table, number, skipped if number == begin else 0)

    def _blocks(self, file: Input) -> Iterator[list[ElementTree.Element]]:
        # The encoding is in the file itself.
        text = open_text(file, "utf-8")
        rows: list[ElementTree.Element] = []
        fault: BadFileException | None = None
        try:
            parser: Parser = ElementTree.XMLPullParser(["start", "end"])
            open_elements: list[ElementTree.Element] = []
            while fault is None:
                data = text.read(_READ_BYTES)
                events, fault = _parsed(parser, data)
                for event, element in events:
                    if event == "start":
                        open_elements.append(element)
                        continue
                    open_elements.pop()
                    if self._is_row(element, len(open_elements), open_elements):
                        rows.append(element)
                        if open_elements:
                            open_elements[-1].remove(element)
                    elif not any(self._is_inside(open_elements)):
                        element.clear()
                    if len(rows) == BLOCK_ROWS:
                        yield rows
                        rows = []
                if not data:
                    break
        finally:
            text.close()
        if rows:
            yield rows
        if fault is not None:
            raise fault

    def _is_row(self, element: ElementTree.Element, depth: int, above: list[ElementTree.Element]) -> bool:
        if not self._row_tag:
            return depth == 1
        return _name(element.tag) == self._row_tag and not any(self._is_inside(above))

    def _is_inside(self, above: list[ElementTree.Element]) -> Iterator[bool]:
        """True for each element above that is a row."""
        if not self._row_tag:
            yield len(above) > 1
            return
        for one in above:
            yield _name(one.tag) == self._row_tag


@dataclass(slots=True)
class _Known:
    """The columns of the rows of a file so far.

    Attributes:
        types: The types of the columns.
        repeated: The paths of repeated elements.
    """

    types: dict[str, pa.DataType] = field(default_factory=dict)
    repeated: set[tuple[str, ...]] = field(default_factory=set)

    def table(self, elements: list[ElementTree.Element]) -> pa.Table:
        """Converts the rows to columns; types widen, and elements that were a list once stay lists."""
        for one in elements:
            self._look(one, ())
        rows: list[dict[str, Any]] = []
        for one in elements:
            value = self._value(one, ())
            rows.append(value if isinstance(value, dict) else {} if value is None else {_VALUE: value})
        table = table_of(rows, self.types, {})
        self.types |= {one.name: one.type for one in table.schema if not pa.types.is_null(one.type)}
        return table

    def _look(self, element: ElementTree.Element, path: tuple[str, ...]) -> None:
        counts = Counter(_name(one.tag) for one in element)
        self.repeated |= {(*path, name) for name, count in counts.items() if count > 1}
        for one in element:
            if len(one):
                self._look(one, (*path, _name(one.tag)))

    def _value(self, element: ElementTree.Element, path: tuple[str, ...]) -> Any:
        text = (element.text or "").strip() or None
        if not len(element) and not element.attrib:
            return text
        found: dict[str, Any] = {f"{_PREFIX}{_name(name)}": value for name, value in element.attrib.items()}
        for one in element:
            name = _name(one.tag)
            value = self._value(one, (*path, name))
            if (*path, name) in self.repeated:
                found.setdefault(name, []).append(value)
            else:
                found[name] = value
        if text is not None:
            found[_VALUE] = text
        return found


def _parsed(parser: Parser, data: bytes) -> tuple[list[Any], BadFileException | None]:
    """The events of more bytes (none at the end) before the first error, and that error."""
    found: list[Any] = []
    try:
        if data:
            parser.feed(data)
        else:
            parser.close()
        # One by one: the error comes after the events before it.
        found.extend(parser.read_events())
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        return found, BadFileException(f"is no XML: {error}")
    return found, None


def _name(tag: str) -> str:
    """A name without its namespace."""
    return tag.rpartition("}")[2]
