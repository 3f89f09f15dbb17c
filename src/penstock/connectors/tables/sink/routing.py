"""Tables of records: by topic, by a list, or by a field of the value. Main type: `Router`. Pure; any thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame
from penstock.api.arrow import is_text, one_array
from penstock.config.patterns.java_pattern import JavaPattern
from penstock.errors import DataException

#: A valid part of a table's name: one that needs no escapes in a catalog and an object store.
_NAME: Final = re.compile(r"[^\x00-\x20/\\?#%*:|\"<>]{1,200}")

#: Called with rows that go to no table, with the reason.
Report = Callable[[SinkFrame, np.ndarray, DataException], None]


@dataclass(frozen=True, slots=True)
class Router:
    """The rules for the tables of records.

    Attributes:
        name_format: The format of a topic's table name.
        tables: The tables, if they are listed.
        field: The field with the table; empty for none.
        dynamic: True if the value of the field is the name.
        patterns: The pattern for the value, for tables that have one.
    """

    name_format: str
    tables: Sequence[str] = ()
    field: str = ""
    dynamic: bool = False
    patterns: Mapping[str, JavaPattern] | None = None

    def only_table(self, topic: str) -> str | None:
        """The only table for the records of a topic, unless transforms change the topic; None if there are several."""
        if self.field or len(self.tables) > 1:
            return None
        return self.tables[0] if self.tables else self._of_topic(topic)

    def all_tables(self, topics: Sequence[str]) -> list[str]:
        """The tables that are known without the records."""
        return list(dict.fromkeys(self.tables or ([] if self.dynamic else map(self._of_topic, topics))))

    def route(self, frame: SinkFrame, report: Report) -> Iterator[tuple[str, SinkFrame]]:
        """Yields each table with its rows."""
        if not self.field:
            if self.tables:
                yield from ((one, frame) for one in self.tables)
            else:
                yield from self._by(frame, one_array(frame.table.column("topic")), self._of_topic)
            return
        try:
            cells = one_array(frame.fields([self.field]).column(0))
        except DataException as error:
            report(frame, np.arange(frame.num_rows), error)
            return
        if not is_text(cells.type):
            cells = cells.cast(pa.string()) if not pa.types.is_nested(cells.type) else pa.nulls(len(cells), pa.string())
        if self.dynamic:
            yield from self._dynamic(frame, cells, report)
            return
        texts = cells.dictionary_encode()
        for table, pattern in (self.patterns or {}).items():
            matches = [pattern.matches(str(one)) for one in texts.dictionary.to_pylist()]
            mask = pa.array(matches, pa.bool_()).take(texts.indices).fill_null(False)
            chosen = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if len(chosen):
                yield table, frame.take(chosen)

    def _dynamic(self, frame: SinkFrame, cells: pa.Array, report: Report) -> Iterator[tuple[str, SinkFrame]]:
        texts = pc.utf8_lower(cells).dictionary_encode(null_encoding="encode")
        bad = [one is None or not is_name(one) for one in texts.dictionary.to_pylist()]
        mask = pa.array(bad, pa.bool_()).take(texts.indices).to_numpy(zero_copy_only=False)
        if mask.any():
            error = DataException(
                f'The field "{self.field}" (route.field) is not the name of a table: it is null, empty, longer than '
                "200 characters, or has characters such as / and spaces"
            )
            report(frame, np.flatnonzero(mask), error)
            frame, cells = frame.take(np.flatnonzero(~mask)), cells.filter(pa.array(~mask))
        yield from self._by(frame, pc.utf8_lower(cells), str)

    def _by(self, frame: SinkFrame, values: pa.Array, name_of: Callable[[str], str]) -> Iterator[tuple[str, SinkFrame]]:
        if not frame.num_rows:
            return
        there = pc.unique(values).to_pylist()
        for one in there:
            if len(there) == 1:
                yield name_of(one), frame
            else:
                yield name_of(one), frame.take(np.flatnonzero(pc.equal(values, one).to_numpy(zero_copy_only=False)))

    def _of_topic(self, topic: str) -> str:
        return self.name_format.replace("${topic}", topic)


def is_name(text: str) -> bool:
    """True for a text that can be the name of a table, with dots between its parts.

    >>> is_name("db.orders"), is_name("../orders"), is_name(""), is_name("a..b")
    (True, False, False, False)
    """
    return all(_NAME.fullmatch(one) for one in text.split("."))
