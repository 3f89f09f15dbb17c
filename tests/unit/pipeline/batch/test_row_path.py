"""Records that go one by one: they part from the others, go through a chain, and meet them again in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api import ConnectRecord, SourceRecord, Transformation
from penstock.config import ConfigDef
from penstock.errors import DataException
from penstock.pipeline.batch.batches import Failures
from penstock.pipeline.batch.row_path import merged, parted, transformed
from penstock.pipeline.batch.segments import Classic, ColumnarSegment


class Doing(Transformation):
    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: Any) -> Any:
        return record.new_record(value=self._make(record.value)) if record.value != "drop" else None


def chain(*makers: Callable[[Any], Any]) -> ColumnarSegment:
    return ColumnarSegment(
        (), tuple(Classic(Doing(one), None, False, f"my.{at}", f"{at}") for at, one in enumerate(makers))
    )


def records(*values: object) -> list[ConnectRecord]:
    return [SourceRecord(None, None, "t", value) for value in values]


def test_rows_part_and_meet_again_in_their_order() -> None:
    live = records(*range(4))

    rest, odd = parted((live, [1, 3, 5, 7]), {3, 7})

    assert (rest[1], odd[1]) == ([1, 5], [3, 7])
    assert merged(rest, odd) == (live, [1, 3, 5, 7])
    assert parted((live, [1, 3, 5, 7]), set()) == ((live, [1, 3, 5, 7]), ([], []))
    assert merged(([], []), odd) == odd


def test_a_record_goes_through_the_whole_chain_or_fails_where_it_is() -> None:
    def refuse(value: Any) -> Any:
        if value == 2:
            raise DataException("no twos")
        return value

    failures = Failures()

    live, kept = transformed(chain(lambda value: value + 1, refuse), (records(0, 1, 2), [4, 5, 6]), failures)

    assert [one.value for one in live] == [1, 3]
    assert kept == [4, 6]
    assert {row: (one.executing_class, one.message) for row, one in failures.errors.items()} == {5: ("my.1", "no twos")}


def test_a_dropped_record_sees_no_more_of_the_chain() -> None:
    seen: list[object] = []

    def note(value: Any) -> Any:
        seen.append(value)
        return value

    live, kept = transformed(chain(lambda value: value, note), (records("drop", "keep"), [0, 1]), Failures())

    assert (len(live), kept, seen) == (1, [1], ["keep"])


def test_a_chain_without_transforms_leaves_everything_as_it_is() -> None:
    rows = (records(1), [0])
    assert transformed(ColumnarSegment(()), rows, Failures()) is rows
