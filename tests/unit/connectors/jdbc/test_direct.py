"""The decision whether rows go straight into a table of PostgreSQL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.jdbc.sink.direct import CopyTarget, DirectLoads
from penstock.connectors.jdbc.sink.settings import InsertMode

BY_ID = frozenset([frozenset(["id"])])


def test_the_catalog_of_the_server_becomes_a_table() -> None:
    columns = [("id", "bigint", True), ("a", "text", False), ("b", "text", False)]
    found = CopyTarget.of(columns, [(7, "id"), (8, "a"), (8, "b")])
    assert found.types == {"id": "bigint", "a": "text", "b": "text"}
    assert found.identities == {"id"}
    assert found.unique == {frozenset(["id"]), frozenset(["a", "b"])}


@pytest.mark.parametrize(
    ("sent", "column", "takes"),
    [
        (pa.int64(), "bigint", True),
        (pa.int64(), "integer", False),
        (pa.int64(), "timestamp with time zone", False),
        (pa.int8(), "smallint", True),
        (pa.string(), "character varying", True),
        (pa.string(), "jsonb", False),
        (pa.string(), "uuid", False),
        (pa.string(), "shop.state", False),
        (pa.decimal128(10, 2), "numeric", True),
        (pa.timestamp("ms", "UTC"), "timestamp with time zone", True),
        (pa.timestamp("ms", "UTC"), "timestamp without time zone", False),
        (pa.date32(), "timestamp without time zone", False),
        (pa.list_(pa.string()), "text[]", False),
    ],
)
def test_only_columns_that_read_what_is_sent_take_it(sent: pa.DataType, column: str, takes: bool) -> None:
    table = CopyTarget({"id": "bigint", "x": column}, unique=BY_ID)
    assert table.takes(pa.schema([("id", pa.int64()), ("x", sent)]), ["id"], InsertMode.UPSERT) is takes


@pytest.mark.parametrize(
    ("mode", "keys", "takes"),
    [
        (InsertMode.UPSERT, ["id"], True),
        (InsertMode.UPSERT, ["x"], False),
        (InsertMode.UPSERT, ["id", "x"], False),
        (InsertMode.UPDATE, ["id"], False),
        (InsertMode.INSERT, [], True),
    ],
)
def test_keys_have_to_be_those_of_a_unique_index_unless_rows_are_inserted(
    mode: InsertMode, keys: list[str], takes: bool
) -> None:
    table = CopyTarget({"id": "bigint", "x": "text"}, unique=BY_ID)
    assert table.takes(pa.schema([("id", pa.int64()), ("x", pa.string())]), keys, mode) is takes


@pytest.mark.parametrize("table", [CopyTarget({}), CopyTarget({"id": "bigint"}, frozenset(["id"]), BY_ID)])
def test_a_view_and_an_identity_take_none(table: CopyTarget) -> None:
    assert not table.takes(pa.schema([("id", pa.int64())]), ["id"], InsertMode.UPSERT)


def test_tries_become_rarer_while_they_fail_and_are_usual_again_when_one_works() -> None:
    loads = DirectLoads(CopyTarget({}))

    def left_out() -> int:
        count = 0
        while not loads.are_worth_it():
            count += 1
        return count

    seen = []
    for _ in range(12):
        seen.append(left_out())
        loads.failed()
    assert seen == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256]
    assert left_out() == 256
    loads.worked()
    assert left_out() == 0
    loads.failed()
    assert left_out() == 1
