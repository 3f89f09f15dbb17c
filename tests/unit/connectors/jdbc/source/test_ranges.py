"""Plans of ranges, what follows when, and that no kill at any step loses a row. Without a database."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.connectors.jdbc.source.connector import JdbcSource
from penstock.connectors.jdbc.source.position import RowPosition, partition_of, table_of
from penstock.connectors.jdbc.source.ranges import (
    Key,
    KeyRange,
    RangeOffset,
    RangePlan,
    RangeStep,
    chosen,
    how_many,
    is_plan,
    next_step,
    plan_partition,
    range_of,
)
from penstock.errors import BadRequestException
from penstock.stores.offsets import value_bytes

NUMBERS = st.tuples(st.integers(-(2**63), 2**63 - 1))
TEXTS = st.tuples(st.text(string.printable, max_size=4))
COMPOUND = st.tuples(st.sampled_from("abc"), st.integers(0, 5))
KEYS = st.one_of(*(st.lists(one, max_size=60) for one in (NUMBERS, TEXTS, COMPOUND)))


def has(limits: KeyRange, key: Key) -> bool:
    """True if a row is in a range, as the database compares."""
    return (limits.low is None or key > limits.low) and (limits.high is None or key <= limits.high)


def plan_of(keys: list[Key], count: int) -> RangePlan:
    bounds = chosen(sorted(keys), count)
    return RangePlan("p", tuple("abc"[: len(keys[0])]), bounds, RowPosition(None, 7), len(keys))


@examples(40)
@given(KEYS.filter(bool), KEYS, st.integers(2, 20))
def test_ranges_are_disjoint_and_cover_every_key_also_those_of_no_sample(
    sample: list[Key], others: list[Key], count: int
) -> None:
    plan = plan_of(sample, count)
    assert len(plan.ranges) <= count
    width = len(sample[0])
    kind = type(sample[0][0])
    for key in [*sample, *(one for one in others if len(one) == width and isinstance(one[0], kind))]:
        assert sum(has(one, key) for one in plan.ranges) == 1


@examples(40)
@given(st.lists(NUMBERS, min_size=50, max_size=300, unique=True), st.integers(2, 12))
def test_ranges_of_any_spread_have_about_as_many_rows_each(keys: list[Key], count: int) -> None:
    plan = plan_of(keys, count)
    sizes = [sum(has(one, key) for key in keys) for one in plan.ranges]
    assert max(sizes) <= len(keys) / count + 2


@examples(40)
@given(KEYS.filter(bool), st.integers(2, 9), st.integers(0, 10**12))
def test_a_plan_comes_back_from_its_offset(keys: list[Key], count: int, moment: int) -> None:
    plan = plan_of(keys, count)
    plan = RangePlan(plan.id, plan.key, plan.bounds, RowPosition(moment * 1000, 3), plan.rows)
    offset = plan.offset()
    assert value_bytes(offset), "it can be stored"
    assert RangePlan.of(offset) == plan
    place = RangeOffset(3, keys[0])
    assert RangeOffset.of(place.offset()) == place


def test_very_long_keys_make_fewer_ranges() -> None:
    bounds = chosen([(f"{n:04}" + "x" * 5000,) for n in range(1000)], 500)
    assert 1 < len(bounds) < 50
    assert chosen([], 5) == ()
    assert chosen([("a",)], 5) == ()


@pytest.mark.parametrize("rows", [0, 1, 199_999])
def test_a_small_table_is_not_cut(rows: int) -> None:
    assert how_many(rows, 100_000) == 1


# ---------------------------------------------------------------- kills
class Life:
    """A table, its ranges and their tasks, step by step; what is not committed is lost with a kill."""

    CHUNK = 3

    def __init__(self, keys: list[Key], count: int) -> None:
        self.keys = sorted(keys)
        self.count = count
        self.delivered: Counter[Key] = Counter()
        self.position: object | None = None
        self.plan: Mapping[str, object] | None = None
        self.ranges: dict[int, Mapping[str, object]] = {}
        self.plans = 0
        self.kills = 0
        self.open: set[int] = set()

    def step(self, *, killed: bool) -> RangeStep:
        """What the table's own task does; its word is lost if it is killed."""
        plan = None if self.plan is None else RangePlan.of(self.plan)
        places = [] if plan is None else [self.ranges.get(number) for number in range(len(plan.bounds) + 1)]
        step = next_step(self.position, plan, places)
        if killed:
            return step
        match step:
            case RangeStep.CUT:
                self.plans += 1
                bounds = chosen(self.keys, self.count)
                names = tuple("abc"[: len(self.keys[0])])
                self.plan = RangePlan(f"p{self.plans}", names, bounds, RowPosition(None, 1), len(self.keys)).offset()
            case RangeStep.FINISH:
                assert plan is not None
                self.position = plan.end.offset()
            case RangeStep.FORGET_RANGES:
                self.ranges.clear()
            case RangeStep.FORGET_PLAN:
                self.plan = None
        return step

    def read(self, number: int, *, killed: bool) -> None:
        """One chunk of a range, if its task may read it."""
        if self.plan is None or self.position is not None:
            return
        plan = RangePlan.of(self.plan)
        limits = plan.ranges[number % len(plan.ranges)]
        number %= len(plan.ranges)
        place = RangeOffset.of(self.ranges.get(number))
        if place.done:
            return
        if place.key is not None:
            limits = KeyRange(place.key, limits.high)
        rows = [key for key in self.keys if has(limits, key)][: self.CHUNK]
        self.delivered.update(rows)
        self.kills += killed
        if not killed:
            last = RangeOffset(place.rows + len(rows), rows[-1]) if rows else None
            self.ranges[number] = (last or RangeOffset(place.rows, place.key, done=True)).offset()


ACTIONS = st.lists(st.tuples(st.one_of(st.just(-1), st.integers(0, 8)), st.booleans()), max_size=150)


@examples(80)
@given(KEYS.filter(bool), st.integers(2, 9), ACTIONS)
def test_a_kill_at_every_step_loses_nothing_and_repeats_at_most_a_chunk(
    keys: list[Key], count: int, actions: list[tuple[int, bool]]
) -> None:
    life = Life(sorted(set(keys)), count)
    for number, killed in actions:
        if number < 0:
            life.step(killed=killed)
        else:
            life.read(number, killed=killed)
    for _ in range(20 * len(life.keys) + 60):
        if life.step(killed=False) is RangeStep.READ:
            break
        for number in range(count):
            life.read(number, killed=False)
    assert (life.position, life.plan, life.ranges) == ({"incrementing": 1}, None, {})
    assert set(life.delivered) == set(life.keys)
    assert sum(life.delivered.values()) - len(life.delivered) <= life.kills * Life.CHUNK


def test_a_position_that_a_user_has_set_ends_the_snapshot_whatever_was_read() -> None:
    plan = RangePlan("p", ("k",), ((5,),), RowPosition(None, 9), 10)
    half = [RangeOffset(3, (5,), done=True).offset(), RangeOffset(2, (7,)).offset()]
    assert next_step(None, plan, half) is RangeStep.WAIT
    assert next_step({"incrementing": 4}, plan, half) is RangeStep.FORGET_RANGES
    assert next_step({"incrementing": 4}, plan, [None, None]) is RangeStep.FORGET_PLAN
    assert next_step({"incrementing": 4}, None, []) is RangeStep.READ
    assert next_step(None, None, []) is RangeStep.CUT


# ---------------------------------------------------------------- offsets that users change
PLAN = RangePlan("p", ("id",), ((5,),), RowPosition(None, 9), 10)


PROPS = {"connection.url": "jdbc:postgresql://h/d", "topic.prefix": "t-", "mode": "incrementing"}


def altered(partition: Mapping[str, object], offset: Mapping[str, object] | None) -> bool:
    return JdbcSource().alter_offsets(PROPS, {frozenset(partition.items()): offset})


def test_offsets_of_a_snapshot_can_be_set_and_removed() -> None:
    assert altered(PLAN.partition("s.t", 1), RangeOffset(3, (7,)).offset())
    assert altered(PLAN.partition("s.t", 1), None)
    assert altered(plan_partition("s.t"), PLAN.offset())
    assert altered(plan_partition("s.t"), None)
    assert altered(partition_of("s.t"), {"incrementing": 5})
    assert range_of(PLAN.partition("s.t", 1)) == ("p", 1)
    assert range_of(partition_of("s.t")) is None
    assert is_plan(plan_partition("s.t"))
    assert table_of(PLAN.partition("s.t", 1)) == "s.t"


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        (PLAN.partition("s.t", 1), {"incrementing": 5}, "'rows', a number, 'key'.*Remove it"),
        (PLAN.partition("s.t", 1), {"rows": "3", "done": False}, "Remove it"),
        (PLAN.partition("s.t", 1), {"rows": 3, "key": "[", "done": False}, "Remove it"),
        (plan_partition("s.t"), {"incrementing": 5}, "made by the connector.*Remove it"),
        (plan_partition("s.t"), {**PLAN.offset(), "ranges": 7}, "made by the connector"),
        (plan_partition("s.t"), {**PLAN.offset(), "bounds": "[[1, 2]]"}, "made by the connector"),
        ({"protocol": "1", "table": "s.t", "snapshot": "p"}, {"rows": 3, "done": False}, '"range", its number'),
        ({"protocol": "1", "table": "s.t", "snapshot": "p", "range": -1}, {"rows": 3, "done": False}, "its number"),
        (partition_of("s.t"), RangeOffset(3, (7,)).offset(), "has 'incrementing'"),
    ],
)
def test_other_offsets_are_refused_with_what_to_do(
    partition: dict[str, object], offset: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadRequestException, match=text):
        altered(partition, offset)
