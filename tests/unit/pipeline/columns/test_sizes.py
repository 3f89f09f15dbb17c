"""How large rows are, and where tables are cut: every kind of column, sliced and in chunks."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.columns.sizes import cut_at, nbytes_of, slices_of

BIG, SMALL = "x" * 100_000, "y"
#: Each column has nearly all its bytes in row 2 of 6.
COLUMNS: dict[str, pa.Array] = {
    "string": pa.array([SMALL, None, BIG, SMALL, "", SMALL]),
    "large_string": pa.array([SMALL, None, BIG, SMALL, "", SMALL], pa.large_string()),
    "binary": pa.array([b"y", None, bytes(100_000), b"y", b"", b"y"]),
    "dictionary": pa.array([SMALL, None, BIG, SMALL, SMALL, SMALL]).dictionary_encode(),
    "struct": pa.array([{"a": SMALL}, None, {"a": BIG}, {"a": None}, {"a": ""}, {"a": SMALL}]),
    "list": pa.array([[SMALL], None, [BIG, SMALL], [], [None], [SMALL]]),
    "long list": pa.array([[1], None, list(range(20_000)), [], [1], [2]], pa.list_(pa.int64())),
    "large_list": pa.array([[SMALL], None, [BIG], [], [SMALL], [SMALL]], pa.large_list(pa.string())),
    "map": pa.array(
        [[("k", SMALL)], None, [("k", BIG)], [], [("k", SMALL)], [("k", SMALL)]], pa.map_(pa.string(), pa.string())
    ),
    "headers": pa.array(
        [[{"key": "h", "value": b"y"}], None, [{"key": "h", "value": bytes(100_000)}], [], [], []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    "list of dictionaries": pa.array(
        [[{"a": SMALL}], None, [{"a": BIG}], [], [], []],
        pa.list_(pa.struct([("a", pa.string())])),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("shape", ["whole", "sliced", "chunks"])
def test_the_large_row_is_a_part_by_itself_whatever_its_type(name: str, shape: str) -> None:
    column: Any = COLUMNS[name]
    if shape == "sliced":
        column = pa.concat_arrays([column, column]).slice(6, 6)
    if shape == "chunks":
        column = pa.chunked_array([column.slice(0, 1), column.slice(1, 3), column.slice(4)])
    table = pa.table({"other": pa.array(range(6)), "column": column})
    assert cut_at(table, 10_000) == [0, 2, 3]
    assert cut_at(table, 10_000_000) == [0]
    parts = slices_of(table, cut_at(table, 10_000))
    assert pa.concat_tables(parts).equals(table)


def test_a_text_that_all_rows_share_counts_for_each_of_them() -> None:
    table = pa.table({"text": pa.array([BIG] * 10).dictionary_encode()})
    assert table.nbytes < 200_000
    assert nbytes_of(table) > 1_000_000
    assert cut_at(table, 300_000) == [0, 2, 4, 6, 8]
    nested = pa.table({"list": pa.array([[BIG]] * 10, pa.list_(pa.dictionary(pa.int32(), pa.string())))})
    assert cut_at(nested, 300_000) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_small_and_as_few_as_can_be(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 5_000, 200)
    table = pa.table({"key": [b"k" * int(size // 3) for size in sizes], "value": ["v" * int(size) for size in sizes]})
    starts = cut_at(table, 20_000, 30)
    parts = slices_of(table, starts)
    assert sum(part.num_rows for part in parts) == 200
    assert all(part.num_rows <= 30 for part in parts)
    assert all(part.num_rows == 1 or part.nbytes <= 20_000 for part in parts)
    for start, end in pairwise(starts):
        wider = table.slice(start, end - start + 1)
        assert wider.num_rows > 30 or wider.nbytes > 19_000, "one more row would have fitted"


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_rows_without_bytes_are_cut_by_their_number(rows: int) -> None:
    table = pa.table({"nothing": pa.nulls(rows)})
    assert cut_at(table, 1, 3) == list(range(0, max(rows, 1), 3))
    assert cut_at(table, 1) == [0]


def test_where_every_row_is_too_large_each_is_a_part() -> None:
    table = pa.table({"text": [BIG] * 4})
    assert cut_at(table, 1) == [0, 1, 2, 3]
