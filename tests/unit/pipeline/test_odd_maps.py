"""Maps with keys that are no strings are seen wherever they are, and nothing else is taken for one."""

import pytest

from penstock.api import ConnectRecord, SourceRecord
from penstock.data import STRING_SCHEMA
from penstock.pipeline.grouping import group_records
from penstock.pipeline.odd_maps import merged, odd_rows, split
from penstock.pipeline.step import SideName


def raising(seq: int, side: SideName, error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("key", "value", "odd"),
    [
        (None, {1: 2}, True),
        (None, {"a": [{"b": {None: 1}}]}, True),
        ({True: 1}, "text", True),
        (None, {"a": [1, {"b": "\x00map"}]}, False),
        ([1, "a"], {"a": 1, "b": {}}, False),
        (None, None, False),
    ],
)
def test_maps_are_seen_at_any_depth(key: object, value: object, odd: bool) -> None:
    typed = SourceRecord(None, None, "t", "text", value_schema=STRING_SCHEMA)
    records = [typed, SourceRecord(None, None, "t", {"a": 1}), SourceRecord(None, None, "t", value, key=key)]

    groups = group_records(records, None, sink=False, on_bad=raising)

    assert odd_rows(groups) == ({2} if odd else set())


def test_rows_are_put_together_in_their_order() -> None:
    records: list[ConnectRecord] = [SourceRecord(None, None, "t", number) for number in range(4)]

    rest, odd = split(records, [1, 3, 5, 7], frozenset((3, 7)))

    assert (rest[1], odd[1]) == ([1, 5], [3, 7])
    assert merged(rest, odd) == (records, [1, 3, 5, 7])
    assert split(records, None, frozenset((0,)))[1] == ([records[0]], [0])
