"""Sources of many things, without a worker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from testkit.doubles.contexts import FakeSourceConnectorContext, FakeSourceContext, StoredOffsets
from testkit.waiting import await_true
from tests.generated import examples

from penstock.api import (
    Chunk,
    PartitionedSource,
    PartitionedTask,
    RetryPolicy,
    SourceFrame,
    SourceRecord,
    TransactionContext,
)
from penstock.api.partitioned import PARTITIONS_CONFIG, share_out
from penstock.data import (
    INT64_SCHEMA,
    OPTIONAL_FLOAT64_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    SchemaBuilder,
)
from penstock.errors import ConnectException, RetriableException


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def offsets(kept: Mapping[str, dict[str, Any]]) -> StoredOffsets:
    """Committed offsets by the name of their partition."""
    return StoredOffsets(lambda partition: kept.get(str(partition["name"])))


class Numbers(PartitionedTask):
    """Counts up to a limit in each partition, two rows a chunk."""

    idle_s = 0.01
    poll_limit_s = 0.02
    retry_policy = RetryPolicy(first_s=0.01, jitter=0)

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.broken: dict[str, Exception] = {}
        self.closed: list[str] = []
        self.read_from: list[tuple[str, object]] = []

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        name, reached = partition["name"], offset["n"] if offset else 0
        self.read_from.append((name, reached))
        try:
            while reached < self.limits[name]:
                if name in self.broken:
                    raise self.broken[name]
                end = min(reached + 2, self.limits[name])
                yield Chunk(rows(*range(reached + 1, end + 1)), "t", offset_columns=["n"], key=["n"])
                reached = end
        finally:
            self.closed.append(name)


def started(limits: dict[str, int], kept: Mapping[str, dict[str, Any]] | None = None) -> Numbers:
    task = Numbers(limits)
    task.initialize(FakeSourceContext(offsets(kept or {})))
    task.start({PARTITIONS_CONFIG: json.dumps([{"name": name} for name in limits])})
    return task


def seen(frame: SourceFrame | None) -> tuple[str, list[int], Mapping[str, object]] | None:
    if frame is None:
        return None
    assert isinstance(frame.data, pa.Table)
    numbers = [row["n"] for row in frame.data.column("value").to_pylist()]
    return str(frame.source_partition["name"]), numbers, frame.source_offset


def test_partitions_take_turns_chunk_by_chunk() -> None:
    task = started({"a": 5, "b": 2}, {"a": {"n": 1}})
    assert [seen(task.poll()) for _ in range(4)] == [
        ("a", [2, 3], {"n": 3}),
        ("b", [1, 2], {"n": 2}),
        ("a", [4, 5], {"n": 5}),
        None,
    ]
    task.limits["b"] = 3
    assert seen(task.poll()) == ("b", [3], {"n": 3})
    assert task.read_from[:2] == [("a", 1), ("b", 0)]
    task.stop()


def test_the_position_of_each_row_is_in_its_columns_and_the_key_is_of_columns() -> None:
    frame = started({"a": 2}).poll()
    assert frame is not None
    assert frame.offset_after is not None
    assert [frame.offset_after(row) for row in (0, 1)] == [{"n": 1}, {"n": 2}]
    assert isinstance(frame.data, pa.Table)
    assert frame.data.column("key").to_pylist() == [{"n": 1}, {"n": 2}]
    assert frame.key_schema == SchemaBuilder.struct().field("n", OPTIONAL_INT64_SCHEMA).build()


def test_a_partition_that_fails_waits_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    task = started({"a": 2, "b": 2})
    task.broken["a"] = ConnectException("a is locked")
    assert seen(task.poll()) == ("b", [1, 2], {"n": 2})
    for _ in range(5):
        assert task.poll() is None
    assert caplog.text.count("Cannot read {'name': 'a'}, trying again: a is locked") == 1
    del task.broken["a"]
    found = None
    while found is None:
        found = seen(task.poll())
    assert found == ("a", [1, 2], {"n": 2})
    task.stop()


def test_when_all_fail_so_does_poll_and_what_may_pass_comes_first() -> None:
    task = started({"a": 1, "b": 1})
    task.broken = {"a": RetriableException("away"), "b": ConnectException("gone")}
    task.retry_policy = RetryPolicy(first_s=30, jitter=0)
    with pytest.raises(RetriableException, match="away") as raised:
        task.poll()
    # The worker waits for the first that is due, and so does not take a poll without a try for one that worked.
    assert raised.value.retry_after_s == pytest.approx(30, abs=5)


def test_reads_are_closed_in_the_middle_when_the_task_stops() -> None:
    task = started({"a": 9})
    task.poll()
    assert task.closed == []
    task.stop()
    assert task.closed == ["a"]


def test_only_so_many_reads_are_open_at_once() -> None:
    task = started(dict.fromkeys("abcdef", 4))
    for _ in range(6):
        task.poll()
    assert len({name for name, _ in task.read_from}) == PartitionedTask.most_open
    task.stop()


def test_a_stop_ends_a_poll_at_once() -> None:
    task = started({"a": 0})
    task.poll_limit_s = 30.0  # type: ignore[misc]
    threading.Timer(0.05, task.context.stopping.set).start()
    began = time.monotonic()
    assert task.poll() is None
    assert time.monotonic() - began < 5


class Moving(Numbers):
    """Moves past the first number without a row."""

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        if offset is None:
            yield Chunk(None, offset={"n": 1})
            offset = {"n": 1}
        yield from super().read(partition, offset)


class Requests(TransactionContext):
    def __init__(self) -> None:
        self.commits = 0

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self.commits += 1

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        raise AssertionError


def test_a_chunk_without_rows_moves_the_position_and_ends_the_poll_and_its_transaction() -> None:
    task = Moving({"a": 3})
    requests = Requests()
    context = FakeSourceContext(offsets({}), requests)
    task.initialize(context)
    task.poll_limit_s = 30.0  # type: ignore[misc]
    task.start({PARTITIONS_CONFIG: '[{"name": "a"}]'})
    assert task.poll() is None
    assert context.moved == [({"name": "a"}, {"n": 1})]
    assert requests.commits == 1
    assert seen(task.poll()) == ("a", [2, 3], {"n": 3})
    with pytest.raises(ConnectException, match="has no position"):
        Chunk(None).position({})
    with pytest.raises(ConnectException, match="has no rows"):
        Chunk(None, offset={"n": 1}).frame({})


def test_a_chunk_says_its_position_and_names_columns_that_are_there() -> None:
    with pytest.raises(ConnectException, match="has no position"):
        Chunk(rows(1), "t").frame({})
    with pytest.raises(ConnectException, match="offset_columns names m, which the table has not; it has n"):
        Chunk(rows(1), "t", offset_columns=["m"]).frame({})
    with pytest.raises(ConnectException, match="no column m; it has n"):
        Chunk(rows(1), "t", {"n": 1}, key=["m"]).frame({})


def test_columns_may_have_the_names_of_parts_of_a_record() -> None:
    table = pa.table({"key": [1], "topic": ["x"], "value": [2.5]})
    schema = SchemaBuilder.struct().field("key", INT64_SCHEMA)
    schema = schema.field("topic", OPTIONAL_STRING_SCHEMA).field("value", OPTIONAL_FLOAT64_SCHEMA)
    frame = SourceFrame.of(
        table, "t", source_partition={}, source_offset={"n": 1}, key=["key"], value_schema=schema.build()
    )
    assert isinstance(frame.data, pa.Table)
    assert frame.data.to_pylist() == [{"value": {"key": 1, "topic": "x", "value": 2.5}, "key": {"key": 1}}]


def test_a_task_refuses_what_its_connector_has_not_made() -> None:
    for text in (None, "{}", "[1]", "x"):
        task = Numbers({})
        task.initialize(FakeSourceContext(offsets({})))
        with pytest.raises(ConnectException, match="not a list of partitions"):
            task.start({} if text is None else {PARTITIONS_CONFIG: text})


class Folder(PartitionedSource):
    interval_s = 0.01
    task_class = Numbers

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.broken: Exception | None = None

    def partitions(self) -> list[dict[str, Any]]:
        if self.broken is not None:
            raise self.broken
        return [{"name": name} for name in self.names]


def shares(source: Folder, most: int) -> list[list[str]]:
    return [[one["name"] for one in json.loads(config[PARTITIONS_CONFIG])] for config in source.task_configs(most)]


def test_a_change_asks_for_tasks_and_moves_no_other_partition(caplog: pytest.LogCaptureFixture) -> None:
    source, context = Folder(["a", "b", "${c}"]), FakeSourceConnectorContext(offsets({}))
    source.initialize(context)
    source.start({"name": "x"})
    try:
        assert shares(source, 2) == [["a", "${c}"], ["b"]]
        assert "$" not in source.task_configs(2)[0][PARTITIONS_CONFIG]
        source.names = ["d", "a", "b", "${c}"]
        assert context.asked.acquire(timeout=10)
        assert shares(source, 2) == [["a", "${c}"], ["b", "d"]]
        source.broken = ConnectException("away")
        await_true(lambda: "Cannot look for new partitions, trying again: away" in caplog.text, lambda: caplog.text)
        source.broken, source.names = None, []
        assert context.asked.acquire(timeout=10)
        assert shares(source, 2) == []
    finally:
        source.stop()
    assert not any(thread.name == "partitions" for thread in threading.enumerate())
    assert caplog.text.count("Cannot look") == 1


def test_a_start_that_finds_nothing_to_look_at_fails() -> None:
    source = Folder([])
    source.broken = ConnectException("away")
    source.initialize(FakeSourceConnectorContext(offsets({})))
    with pytest.raises(ConnectException, match="away"):
        source.start({})
    source.stop()


ITEMS = st.lists(st.sampled_from("abcdefgh"), unique=True)


@examples(40)
@given(ITEMS, ITEMS, st.integers(1, 5))
def test_shares_are_even_and_whole(before: list[str], after: list[str], most: int) -> None:
    first = share_out(before, [], most)
    second = share_out(after, first, most)
    assert sorted(item for group in second for item in group) == sorted(after)
    assert len(second) == min(len(after), most)
    assert not second or max(map(len, second)) - min(map(len, second)) <= 1
    assert share_out(after, second, most) == second


def test_a_retry_waits_as_long_as_the_error_says() -> None:
    assert RetryPolicy(jitter=0.5).wait_s(1, RetriableException("later"), lambda: 1.0) == 0.5
    assert RetryPolicy().wait_s(1, RetriableException("later", retry_after_s=7)) == 7.0
