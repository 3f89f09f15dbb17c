"""Bulk frames: what an author may say."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.bulk import BulkFrame
from penstock.data import STRING_SCHEMA
from penstock.errors import DataException

GIVEN: dict[str, Any] = {
    "data": lambda session: session,
    "topic": "t",
    "source_partition": {"a": 1},
    "source_offset": {"b": 2},
    "run": "first.run-1_2",
}


def test_a_bulk_frame_says_of_its_rows_what_a_source_frame_says() -> None:
    frame = BulkFrame(**GIVEN, key_schema=STRING_SCHEMA, timestamp=5, partition=1, value_fields=["x"])
    same = frame.as_source_frame()
    assert (same.data, same.topic, same.key_schema, same.timestamp, same.partition) == (
        GIVEN["data"],
        "t",
        STRING_SCHEMA,
        5,
        1,
    )
    assert (same.source_partition, same.source_offset, same.value_fields) == ({"a": 1}, {"b": 2}, ("x",))
    assert BulkFrame(**GIVEN).transactions


@pytest.mark.parametrize("run", ["", "with blank", "a/b", "x" * 101, "é", None, 5])
def test_a_run_without_a_name_that_can_be_an_id_is_refused(run: object) -> None:
    with pytest.raises(DataException, match="The run of a BulkFrame is"):
        BulkFrame(**{**GIVEN, "run": run})


def test_data_that_cannot_be_made_again_is_refused() -> None:
    with pytest.raises(DataException, match="The data of a BulkFrame is a list; it is a function"):
        BulkFrame(**{**GIVEN, "data": []})
