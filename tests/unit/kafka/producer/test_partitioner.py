"""Partitions as the Java producer chooses them: by name, by key, and for about a batch of rows at a time."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.kafka.producer.partitioner import Partitioner, murmur2


def binary(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def int32(values: Sequence[int | None]) -> pa.Array:
    return pa.array(values, pa.int32())


def rows_of(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int64)


def murmur2_of(key: bytes) -> int:
    """The hash of one key, a step at a time."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def listed(chosen: int | np.ndarray, rows: int) -> list[int]:
    return [chosen] * rows if isinstance(chosen, int) else chosen.tolist()


KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_are_those_that_kafka_tests_for():
    hashes = murmur2(binary(list(KNOWN)))
    assert hashes.dtype == np.int32
    assert hashes.tolist() == list(KNOWN.values())
    assert [murmur2(binary([key])).tolist() for key in KNOWN] == [[known] for known in KNOWN.values()]


@given(st.lists(st.one_of(st.binary(max_size=24), st.binary(max_size=150)), max_size=12), st.integers(0, 3), st.data())
@examples(50)
def test_hashes_of_any_keys_and_of_any_slice_of_them_are_those_of_the_definition(
    keys: list[bytes], skipped: int, data: st.DataObject
):
    length = data.draw(st.integers(0, len(keys)))
    hashes = murmur2(binary(keys).slice(min(skipped, len(keys)), length))
    assert hashes.tolist() == [murmur2_of(key) for key in keys[skipped : skipped + length]]


@pytest.mark.parametrize("longest", [3, 8, 40, 200])
def test_hashes_of_many_keys_are_those_of_the_definition(longest: int):
    dice = random.Random(longest)
    keys = [dice.randbytes(dice.randint(0, longest)) for _ in range(700)]
    assert murmur2(binary(keys).slice(13)).tolist() == [murmur2_of(key) for key in keys[13:]]


def test_hashes_of_many_keys_of_one_length_are_those_of_the_definition():
    dice = random.Random(1)
    keys = [dice.randbytes(100) for _ in range(60)]
    assert murmur2(binary(keys)).tolist() == [murmur2_of(key) for key in keys]


def test_no_keys_have_no_hashes():
    assert murmur2(binary([])).tolist() == []
    assert murmur2(binary([b"a"]).slice(1)).tolist() == []


def test_keys_may_all_be_empty():
    assert murmur2(binary([b"", b""])).tolist() == [275646681, 275646681]


def test_a_long_key_beside_many_short_ones_takes_memory_for_itself_alone():
    dice = random.Random(2)
    keys = [dice.randbytes(8) for _ in range(10_000)]
    keys[5000] = dice.randbytes(200_001)
    array = binary(keys)
    tracemalloc.start()
    try:
        hashes = murmur2(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert hashes[[0, 5000, 9999]].tolist() == [murmur2_of(keys[at]) for at in (0, 5000, 9999)]


def test_a_topic_of_one_partition_leaves_no_choice():
    partitioner = Partitioner(batch_size=1)
    assert partitioner.choose("t", 1, named=None, keys=binary([b"a", None]), sizes=rows_of(5, 5)) == 0
    assert partitioner.choose("t", 1, named=int32([None]), keys=None, sizes=rows_of(5)) == 0
    assert partitioner.choose("t", 1, named=None, keys=None, sizes=rows_of()) == 0


def test_a_partition_named_in_a_topic_of_one_is_left_to_the_caller_to_refuse():
    chosen = Partitioner(batch_size=1).choose(
        "t", 1, named=int32([None, 7, None]), keys=binary([b"a", b"a", None]), sizes=rows_of(5, 5, 5)
    )
    assert listed(chosen, 3) == [0, 7, 0]


def test_a_key_chooses_the_partition_also_an_empty_one():
    keys = [b"21", b"foobar", b"", b"abc"]
    chosen = Partitioner(batch_size=1).choose("t", 7, named=None, keys=binary(keys), sizes=rows_of(9, 9, 9, 9))
    assert isinstance(chosen, np.ndarray)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [(murmur2_of(key) & 0x7FFFFFFF) % 7 for key in keys] == [3, 0, 2, 4]


def test_keys_that_choose_the_same_partition_give_one_answer_for_all():
    chosen = Partitioner(batch_size=1).choose("t", 7, named=None, keys=binary([b"abc"] * 3), sizes=rows_of(9, 9, 9))
    assert type(chosen) is int
    assert chosen == 4


def test_a_named_partition_goes_before_a_key_and_is_not_checked():
    partitioner = Partitioner(batch_size=1)
    keys = binary([b"21", b"foobar", b"abc"])
    some = partitioner.choose("t", 7, named=int32([6, None, 99]), keys=keys, sizes=rows_of(9, 9, 9))
    assert listed(some, 3) == [6, 0, 99]
    every = partitioner.choose("t", 7, named=int32([6, 5, -1]), keys=keys, sizes=rows_of(9, 9, 9))
    assert listed(every, 3) == [6, 5, -1]
    assert partitioner.choose("t", 7, named=int32([3, 3]), keys=None, sizes=rows_of(9, 9)) == 3


def test_rows_without_key_stay_at_a_partition_until_a_batch_has_gone_there():
    partitioner = Partitioner(batch_size=100)
    first = partitioner.choose("t", 3, named=None, keys=None, sizes=rows_of(40, 40))
    assert type(first) is int
    chosen = listed(partitioner.choose("t", 3, named=None, keys=None, sizes=rows_of(19, 1, 99, 1, 100, 300, 0)), 7)
    assert chosen[:2] == [first, first]
    assert chosen[2] == chosen[3]
    assert [at for at in range(1, 7) if chosen[at] != chosen[at - 1]] == [2, 4, 5, 6]


def test_the_next_call_goes_on_at_another_partition_when_a_batch_is_full():
    partitioner = Partitioner(batch_size=100)
    chosen = [partitioner.choose("t", 2, named=None, keys=None, sizes=rows_of(60, 60)) for _ in range(4)]
    assert chosen in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_no_rows_change_nothing():
    partitioner = Partitioner(batch_size=100)
    before = partitioner.choose("t", 9, named=None, keys=None, sizes=rows_of(60))
    assert listed(partitioner.choose("t", 9, named=None, keys=None, sizes=rows_of()), 0) == []
    assert listed(partitioner.choose("t", 9, named=int32([]), keys=binary([]), sizes=rows_of()), 0) == []
    assert partitioner.choose("t", 9, named=None, keys=None, sizes=rows_of(39)) == before


def test_rows_with_a_key_or_a_partition_do_not_count_for_those_without():
    partitioner = Partitioner(batch_size=100)
    stays = partitioner.choose("t", 5, named=None, keys=None, sizes=rows_of(1))
    chosen = partitioner.choose(
        "t",
        5,
        named=int32([None, 4, None, 4, None]),
        keys=binary([b"abc", b"abc", None, None, None]),
        sizes=rows_of(500, 500, 50, 500, 49),
    )
    assert listed(chosen, 5) == [(KNOWN[b"abc"] & 0x7FFFFFFF) % 5, 4, stays, 4, stays]
    assert partitioner.choose("t", 5, named=None, keys=binary([None]), sizes=rows_of(1)) != stays


def test_round_robin_gives_each_row_to_the_next_partition_whatever_its_key():
    partitioner = Partitioner(batch_size=100, kind="round robin")
    keys = binary([b"a", b"a", b"a", b"a"])
    first = partitioner.choose("t", 3, named=None, keys=keys, sizes=rows_of(9, 9, 9, 9))
    assert listed(first, 4) == [0, 1, 2, 0]
    named = partitioner.choose("t", 3, named=int32([None, 2, None]), keys=None, sizes=rows_of(9, 9, 9))
    assert listed(named, 3) == [1, 2, 2]
    assert listed(partitioner.choose("u", 3, named=None, keys=None, sizes=rows_of(9, 9)), 2) == [0, 1]


def test_ignored_keys_are_as_if_there_were_none():
    partitioner = Partitioner(batch_size=100, kind="keyless")
    stays = partitioner.choose("t", 50, named=None, keys=binary([b"a", b"b", b"c"]), sizes=rows_of(30, 30, 30))
    assert type(stays) is int
    chosen = partitioner.choose("t", 50, named=int32([None, 50]), keys=binary([b"a", b"b"]), sizes=rows_of(9, 9))
    assert listed(chosen, 2) == [stays, 50]


def test_each_topic_has_its_own_partition():
    partitioner = Partitioner(batch_size=100, random=random.Random(4))
    chosen = {
        topic: partitioner.choose(topic, 1000, named=None, keys=None, sizes=rows_of(60)) for topic in ("a", "b", "c")
    }
    assert len(set(chosen.values())) == 3
    assert partitioner.choose("a", 1000, named=None, keys=None, sizes=rows_of(40)) == chosen["a"]
    assert partitioner.choose("a", 1000, named=None, keys=None, sizes=rows_of(1)) != chosen["a"]
    assert partitioner.choose("b", 1000, named=None, keys=None, sizes=rows_of(1)) == chosen["b"]


def test_a_topic_that_loses_partitions_or_gets_more_is_no_problem():
    partitioner = Partitioner(batch_size=100, random=random.Random(5))
    sizes = rows_of(*[60] * 40)
    for count in (50, 3, 1, 2, 1000, 2, 1, 7):
        chosen = listed(partitioner.choose("t", count, named=None, keys=None, sizes=sizes), 40)
        assert set(chosen) <= set(range(count))


def test_a_batch_size_of_zero_changes_the_partition_at_each_row():
    chosen = Partitioner(batch_size=0).choose("t", 4, named=None, keys=None, sizes=rows_of(*[1] * 50))
    assert isinstance(chosen, np.ndarray)
    assert (np.diff(chosen) != 0).all()


def test_all_other_partitions_are_equally_likely():
    partitioner = Partitioner(batch_size=1, random=random.Random(6))
    chosen = listed(partitioner.choose("t", 4, named=None, keys=None, sizes=rows_of(*[1] * 4000)), 4000)
    changes = Counter(pairwise(chosen))
    assert len(changes) == 12
    assert min(changes.values()) > 260


class RowAtATime:
    """What a partitioner does, for a row at a time."""

    def __init__(self, batch_size: int, dice: random.Random) -> None:
        self.batch_size = batch_size
        self.dice = dice
        self.sticky: dict[str, tuple[int, int]] = {}

    def choose(self, topic: str, count: int, named: int | None, key: bytes | None, size: int) -> int:
        if named is not None:
            return named
        if count == 1:
            return 0
        if key is not None:
            return (murmur2_of(key) & 0x7FFFFFFF) % count
        partition, sent = self.sticky.get(topic) or (count, 0)
        if partition >= count:
            partition, sent = self.dice.randrange(count), 0
        elif sent >= self.batch_size:
            others = [one for one in range(count) if one != partition]
            partition, sent = others[self.dice.randrange(count - 1)], 0
        self.sticky[topic] = (partition, sent + size)
        return partition


row = st.tuples(st.none() | st.integers(0, 9), st.none() | st.binary(max_size=9), st.integers(0, 120))
keyless = st.tuples(st.none(), st.none(), st.integers(0, 120))
calls = st.tuples(
    st.sampled_from(["a", "b"]), st.integers(1, 6), st.one_of(st.lists(row, max_size=12), st.lists(keyless))
)


@given(st.lists(calls, max_size=8), st.integers(1, 200))
@examples(50)
def test_columns_get_the_partitions_that_their_rows_would_get_one_at_a_time(
    several: list[tuple[str, int, list[tuple[int | None, bytes | None, int]]]], batch_size: int
):
    partitioner = Partitioner(batch_size=batch_size, random=random.Random(7))
    reference = RowAtATime(batch_size, random.Random(7))
    for topic, count, rows in several:
        chosen = partitioner.choose(
            topic,
            count,
            named=int32([9, *(named for named, _, _ in rows)]).slice(1),
            keys=binary([b"before", *(key for _, key, _ in rows)]).slice(1),
            sizes=rows_of(*(size for _, _, size in rows)),
        )
        assert listed(chosen, len(rows)) == [reference.choose(topic, count, *one) for one in rows]
