"""``tables.commit=connector``: one commit of all tasks' files, whoever of them is killed, in each lake."""

from __future__ import annotations

import datetime
import json
import os
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
from tests.unit.connectors.tables import lakes
from tests.unit.connectors.tables.writing import Writing, records

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.connectors.tables import TableSink
from penstock.connectors.tables.delta import DeltaLake, DeltaLakeTable
from penstock.connectors.tables.delta_files import system_of
from penstock.connectors.tables.iceberg import IcebergLake, IcebergTable
from penstock.connectors.tables.sink import rounds
from penstock.connectors.tables.sink.rounds import CommitUnit, Handover, chain
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder
from penstock.errors import ConfigException, ConnectException, RetriableException
from penstock.testing.kit.lives import KilledException

#: Some of them take more than a second.
pytestmark = pytest.mark.slow

formats = pytest.mark.parametrize("lake", lakes.FORMATS)
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Task(Writing):
    """One task of several, which has one partition."""

    def __init__(self, path: Path, lake: str, *places: TopicPartition, **settings: Any) -> None:
        super().__init__(
            path,
            lake,
            places=places,
            **{"tables_commit": "connector", "commit_wait_ms": "0", "tasks_max": "3"} | settings,
        )

    @property
    def rounds(self) -> rounds.CommitRounds:
        """Its part in commits of all tasks."""
        assert self.task._rounds is not None
        return self.task._rounds

    def give(self, first: int, count: int, place: TopicPartition = P0, **named: Any) -> None:
        """Gives it records, whose ids tell partitions apart."""
        begin = place.partition * 1000 + first
        self.put(records(begin, count), first=first, partition=place.partition, **named)

    def hand_over(self) -> None:
        """The end of an interval comes, and it is another one's turn to commit."""
        with mock.patch.object(rounds.CommitRounds, "_has_turn", return_value=False):
            self.tick()

    def look(self) -> None:
        """The clock ticks within an interval."""
        self.task._due = float("inf")
        self.context.call()


def versions(path: Path, lake: str, name: str = "t") -> int:
    if lake == "delta":
        return sum(one["operation"] == "WRITE" for one in DeltaTable(str(path / "lake" / name)).history())
    return len(lakes.iceberg(path, name).snapshots())


def handed_over(path: Path) -> list[Path]:
    return list((path / "lake").rglob("_penstock/*/*.json"))


# ---------------------------------------------------------------------------------------------------------- a round
@formats
def test_a_commit_has_the_files_of_all_tasks_and_each_learns_of_it(tmp_path: Path, lake: str) -> None:
    tasks = [Task(tmp_path, lake, place) for place in (P0, P1, P2)]
    for task, place in zip(tasks, (P0, P1, P2), strict=True):
        task.give(0, 4, place)
        task.hand_over()
        assert task.safe(4, place) == 0
    assert tasks[0].rows() == []
    committer = min(tasks, key=lambda one: one.rounds._id)
    committer.look()
    assert versions(tmp_path, lake) == 1
    assert tasks[0].ids() == [*range(4), *range(1000, 1004), *range(2000, 2004)]
    for task, place in zip(tasks, (P0, P1, P2), strict=True):
        if task is not committer:
            assert task.safe(4, place) == 0
            task.look()
        assert task.safe(4, place) == 4
        assert task.context.rewound == {}
    assert handed_over(tmp_path) == []
    for task in tasks:
        task.tick()
    assert versions(tmp_path, lake) == 1


@formats
def test_a_task_takes_over_from_a_dead_committer_after_some_seconds(tmp_path: Path, lake: str, caplog: Any) -> None:
    tasks = sorted([Task(tmp_path, lake, P0), Task(tmp_path, lake, P1)], key=lambda one: one.rounds._id)
    now = [0.0]
    for task in tasks:
        task.rounds._clock = lambda: now[0]
    for task in tasks:
        (place,) = task.context.places
        task.give(0, 2, place)
        task.hand_over()
    _, other = tasks
    (place,) = other.context.places
    now[0] = max(one.ready for one in other.task._tables["t"].handed) + rounds.TURN_S - 0.1
    other.look()
    assert other.rows() == []
    now[0] += 0.2
    other.look()
    assert other.safe(2, place) == 2
    assert len(other.ids()) == 4
    assert "this task commits it" in caplog.text


@formats
def test_a_task_that_was_given_nothing_does_nothing_and_keeps_no_one(tmp_path: Path, lake: str) -> None:
    quiet, busy = Task(tmp_path, lake, P1), Task(tmp_path, lake, P0)
    quiet.tick()
    busy.give(0, 2)
    busy.tick()
    assert busy.ids() == [0, 1]
    assert busy.safe(2) == 2
    assert quiet.safe(7, P1) == 7


@formats
def test_several_intervals_that_were_not_committed_are_one_commit(tmp_path: Path, lake: str) -> None:
    one, other = Task(tmp_path, lake, P0), Task(tmp_path, lake, P1)
    for first in (0, 3, 6):
        one.give(first, 3)
        one.hand_over()
    other.give(0, 2, P1)
    other.tick()
    if not other.rows():  # It was not its turn.
        one.look()
        other.look()
    one.look()
    assert one.ids() == [*range(9), 1000, 1001]
    assert versions(tmp_path, lake) == 1
    assert (one.safe(9), other.safe(2, P1)) == (9, 2)
    assert Task(tmp_path, lake, P0, P1).context.rewound == {P0: 9, P1: 2}


# ------------------------------------------------------------------------------------------------------------ kills
class Steps:
    """Ends the process at one of the steps of a round."""

    def __init__(self, end_at: int) -> None:
        self.left = end_at

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            self.pass_by()
            found = call(*args, **named)
            self.pass_by()
            return found

        return called

    def pass_by(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledException

    def watch(self, stack: ExitStack, lake: str) -> None:
        table, home = (DeltaLakeTable, DeltaLake) if lake == "delta" else (IcebergTable, IcebergLake)
        targets: list[tuple[Any, str]] = [
            *((table, name) for name in ("evolve", "write", "add")),
            *((Handover, name) for name in ("put", "names", "remove")),
            (home, "create"),
        ]
        for kind, name in targets:
            stack.enter_context(mock.patch.object(kind, name, self.wrapped(getattr(kind, name))))


MORE = (
    SchemaBuilder.struct()
    .field("id", INT64_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("more", OPTIONAL_STRING_SCHEMA)
    .build()
)
WIDE = pa.struct([("id", pa.int64()), ("name", pa.string()), ("more", pa.string())])


@formats
@pytest.mark.parametrize("dies", ["the first", "the second"])
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, lake: str, dies: str) -> None:
    """Two tasks work in turns, and one of them is killed; its partition goes to the other, or to a new task."""
    # A few of some sixty steps.
    for step in lakes.kills(13 if lake == "delta" else 23, first=0 if dies == "the first" else 7):
        path = tmp_path / str(step)
        path.mkdir()
        tasks = [Task(path, lake, P0, tables="a,b"), Task(path, lake, P1, tables="a,b")]
        kafka = {P0: 0, P1: 0}
        steps, mortal = Steps(step), 0 if dies == "the first" else 1

        def work(number: int, first: int, tasks: list[Task] = tasks, kafka: dict[TopicPartition, int] = kafka) -> None:
            place = (P0, P1)[number]
            if first == 3:  # The columns change while files of others are pending.
                values = [{"id": place.partition * 1000 + n, "name": "x", "more": "y"} for n in range(3, 6)]
                tasks[number].put(values, MORE, kind=WIDE, first=3, partition=place.partition)
            else:
                tasks[number].give(first, 3, place)
            tasks[number].tick()
            kafka[place] = tasks[number].safe(first + 3, place)

        try:
            for first in (0, 3):
                for number in (0, 1):
                    if number != mortal:
                        work(number, first)
                        continue
                    with ExitStack() as stack:
                        steps.watch(stack, lake)
                        work(number, first)
        except KilledException:
            pass
        survivor, lost = tasks[1 - mortal], (P0, P1)[mortal]
        kept = (P0, P1)[1 - mortal]
        # What was begun goes on; the survivor reads again what it was told to.
        survivor.context.places = (P0, P1)
        survivor.task.open([lost])
        reached = {kept: 0, lost: survivor.context.rewound.pop(lost, kafka[lost])}
        reached[kept] = survivor.task._next.get(kept, 0)
        for _ in range(8):
            reached.update(survivor.context.rewound)
            survivor.context.rewound.clear()
            for place, first in list(reached.items()):
                if first < 6:
                    survivor.give(first, 6 - first, place)
                    reached[place] = 6
            survivor.tick()
            safe = {place: survivor.safe(6, place) for place in (P0, P1)}
            # What is committed to the group is in the tables.
            for place, offset in safe.items():
                wanted = set(range(place.partition * 1000, place.partition * 1000 + offset))
                assert all(wanted <= set(survivor.ids(table)) for table in "ab" if offset), step
            if not survivor.context.rewound and set(safe.values()) == {6}:
                break
        for table in "ab":
            assert survivor.ids(table) == [*range(6), *range(1000, 1006)], (step, table)
        if steps.left >= 0:
            break
    assert step > 20


@formats
def test_what_a_killed_task_has_handed_over_is_committed_before_its_partition_is_read(
    tmp_path: Path, lake: str
) -> None:
    killed = Task(tmp_path, lake, P0)
    killed.give(0, 5)
    killed.hand_over()
    assert killed.rows() == []
    assert Task(tmp_path, lake, P0).context.rewound == {P0: 5}
    assert killed.ids() == list(range(5))


@formats
def test_a_frozen_task_and_its_successor_write_each_record_once(tmp_path: Path, lake: str) -> None:
    frozen, kept = Task(tmp_path, lake, P0, P1), Task(tmp_path, lake, P2)
    kept.give(0, 1, P2)
    kept.tick()
    frozen.give(0, 4)
    frozen.give(0, 4, P1)
    # Its partition 0 went to another task, which has read further, and hands over first.
    new = Task(tmp_path, lake, P0)
    new.give(0, 6)
    new.hand_over()
    frozen.hand_over()
    assert len(handed_over(tmp_path)) == 2
    with mock.patch.object(rounds.CommitRounds, "_has_turn", return_value=True):
        new.look()
        frozen.look()
    assert new.ids() == [*range(6), 2000]
    # One file has the rows of both partitions, so the records of the other one come again.
    assert frozen.context.rewound == {P0: 0, P1: 0} or frozen.context.rewound == {P1: 0}
    assert frozen.safe(4, P1) == 0
    frozen.give(0, 4, P1)
    frozen.tick()
    assert new.ids() == [*range(6), *range(1000, 1004), 2000]


@formats
def test_tasks_that_commit_at_once_double_nothing(tmp_path: Path, lake: str) -> None:
    tasks = [Task(tmp_path, lake, place) for place in (P0, P1, P2)]
    for task, place in zip(tasks, (P0, P1, P2), strict=True):
        task.give(0, 3, place)
        task.hand_over()
    errors: list[BaseException] = []

    def close(task: Task) -> None:
        try:
            task.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=close, args=[task]) for task in tasks]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    ids = Task(tmp_path, lake, P0, P1, P2).ids()
    assert ids == [*range(3), *range(1000, 1003), *range(2000, 2003)]


@formats
def test_a_task_that_gives_its_partitions_up_leaves_nothing_waiting(tmp_path: Path, lake: str) -> None:
    task = Task(tmp_path, lake, P0)
    task.give(0, 2)
    task.hand_over()
    task.give(2, 2)
    assert task.rows() == []
    task.close()
    assert task.ids() == [0, 1, 2, 3]
    assert handed_over(tmp_path) == []


@formats
def test_a_lake_that_is_away_is_told_by_every_task_in_its_turn_and_nothing_counts(tmp_path: Path, lake: str) -> None:
    tasks = [Task(tmp_path, lake, P0), Task(tmp_path, lake, P1)]
    kind = DeltaLakeTable if lake == "delta" else IcebergTable
    for task, place in zip(tasks, (P0, P1), strict=True):
        task.give(0, 2, place)
        task.hand_over()
    with (
        mock.patch.object(kind, "add", side_effect=RetriableException("503")),
        mock.patch.object(rounds, "TURN_S", 0.0),
    ):
        for task, place in zip(tasks, (P0, P1), strict=True):
            with pytest.raises(RetriableException, match="503"):
                task.look()
            assert task.safe(2, place) == 0
    for task in tasks:
        with mock.patch.object(rounds, "TURN_S", 0.0):
            task.look()
    assert tasks[0].ids() == [0, 1, 1000, 1001]


@formats
def test_a_commit_whose_end_was_not_seen_is_not_made_again(tmp_path: Path, lake: str) -> None:
    task = Task(tmp_path, lake, P0)
    kind = DeltaLakeTable if lake == "delta" else IcebergTable
    add = kind.add

    def cut(*args: Any) -> None:
        add(*args)
        raise RetriableException("the connection was closed")

    task.give(0, 3)
    with mock.patch.object(kind, "add", cut), pytest.raises(RetriableException):
        task.tick()
    task.look()
    assert task.ids() == [0, 1, 2]
    assert task.safe(3) == 3


# ------------------------------------------------------------------------------------------ with other features
@formats
def test_columns_that_come_meanwhile_leave_files_that_were_handed_over_as_they_are(tmp_path: Path, lake: str) -> None:
    one, other = Task(tmp_path, lake, P0), Task(tmp_path, lake, P1)
    one.give(0, 2)
    one.hand_over()
    other.put([{"id": 7, "name": "x", "more": "y"}], MORE, kind=WIDE, partition=1)
    other.hand_over()
    for task in (one, other):
        with mock.patch.object(rounds.CommitRounds, "_has_turn", return_value=True):
            task.look()
    assert sorted((row["id"], row["more"]) for row in one.rows()) == [(0, None), (1, None), (7, "y")]
    assert (one.safe(2), other.safe(1, P1)) == (2, 1)


@formats
def test_two_tables_of_a_field_have_offsets_of_their_own(tmp_path: Path, lake: str) -> None:
    routes = {"tables": "a,b", "route_field": "name", "tables_a_route_regex": "a", "tables_b_route_regex": "b"}
    task = Task(tmp_path, lake, P0, **routes)
    task.put([{"id": number, "name": "ab"[number % 2]} for number in range(6)])
    task.hand_over()
    # The process ends behind the commit of one of them.
    again = Task(tmp_path, lake, P0, **routes)
    again.put([{"id": number, "name": "ab"[number % 2]} for number in range(8)])
    again.tick()
    for _ in range(3):
        if not again.context.rewound:
            break
        again.context.rewound.clear()
        again.put([{"id": number, "name": "ab"[number % 2]} for number in range(8)])
        again.tick()
    assert again.ids("a") == [0, 2, 4, 6]
    assert again.ids("b") == [1, 3, 5, 7]
    assert again.safe(8) == 8


@formats
def test_files_that_are_gone_are_written_again(tmp_path: Path, lake: str) -> None:
    task = Task(tmp_path, lake, P0)
    task.give(0, 3)
    task.hand_over()
    for one in (tmp_path / "lake").rglob("*.parquet"):
        one.unlink()
    task.look()
    assert task.context.rewound == {P0: 0}
    assert task.safe(3) == 0
    task.give(0, 3)
    task.tick()
    assert task.ids() == [0, 1, 2]


@formats
def test_what_is_no_unit_is_passed_over(tmp_path: Path, lake: str, caplog: Any) -> None:
    task = Task(tmp_path, lake, P0)
    task.give(0, 2)
    task.hand_over()
    (there,) = handed_over(tmp_path)
    (there.parent / "0-half.json").write_text('{"moves": [')
    (there.parent / "0-other.json").write_text("[]")
    (there.parent / "0-without.json").write_text('{"moves": [["t", 1, null, 5]], "made": 1}')
    with mock.patch.object(rounds, "TURN_S", 0.0):
        task.look()
    assert task.ids() == [0, 1]
    assert handed_over(tmp_path) == []
    assert "0-half is passed over" in caplog.text


@formats
def test_a_table_that_is_made_again_gets_nothing_of_what_was_for_the_old_one(tmp_path: Path, lake: str) -> None:
    task = Task(tmp_path, lake, P0)
    task.give(0, 2)
    task.hand_over()
    (there,) = handed_over(tmp_path)
    said = json.loads(there.read_text())
    there.write_text(json.dumps({**said, "table": "another"}))
    task.look()
    assert task.context.rewound == {P0: 0}
    assert task.rows() == []


@formats
def test_offsets_that_are_set_take_what_was_handed_over_with_them(tmp_path: Path, lake: str) -> None:
    killed = Task(tmp_path, lake, P0)
    killed.give(0, 2)
    killed.hand_over()
    assert TableSink().alter_offsets(killed.props, {P0: None})
    assert handed_over(tmp_path) == []
    task = Task(tmp_path, lake, P0)
    assert task.context.rewound == {}
    task.give(0, 3)
    task.tick()
    assert task.ids() == [0, 1, 2]


@formats
def test_compaction_between_a_hand_over_and_its_commit_is_no_matter(tmp_path: Path, lake: str) -> None:
    one, other = Task(tmp_path, lake, P0), Task(tmp_path, lake, P1)
    for first in (0, 2):
        one.give(first, 2)
        one.tick()
    other.give(0, 2, P1)
    other.hand_over()
    table = one.task._tables["t"].table
    assert table is not None
    table.refresh()
    assert table.compact() == 2
    with mock.patch.object(rounds.CommitRounds, "_has_turn", return_value=True):
        other.look()
    assert one.ids() == [0, 1, 2, 3, 1000, 1001]


@formats
def test_more_than_the_memory_is_handed_over_by_way_of_a_file(tmp_path: Path, lake: str) -> None:
    task = Task(tmp_path, lake, P0, buffer_bytes=str(1 << 20))
    for number in range(4):
        task.put(records(number * 1000, 1000, "x" * 700), first=number * 1000)
    task.tick()
    assert task.ids() == list(range(4000))
    assert versions(tmp_path, lake) == 1


def test_upserts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"tables\.commit: connector adds files .* set tables\.commit=task"):
        Task(tmp_path, "delta", P0, write_mode="upsert", id_columns="id")


def test_a_delta_table_with_rules_is_refused(tmp_path: Path) -> None:
    made = Writing(tmp_path, "delta", name="other", places=[TopicPartition("u", 0)])
    made.put(records(0, 1), read_from="u")
    made.tick()
    DeltaTable(str(tmp_path / "lake/t")).alter.add_constraint({"positive": "id >= 0"})
    task = Task(tmp_path, "delta", P0)
    task.give(0, 1)
    with pytest.raises(ConnectException, match=r"has a CHECK, .* set tables\.commit=task"):
        task.tick()


@formats
@pytest.mark.parametrize("by", ["", "text", "number,flag", "day", "money,moment"])
def test_values_of_every_type_come_back_also_as_partitions(tmp_path: Path, lake: str, by: str) -> None:
    kinds = {
        "text": pa.string(),
        "number": pa.int32(),
        "flag": pa.bool_(),
        "real": pa.float64(),
        "data": pa.binary(),
        "money": pa.decimal128(20, 2),
        "day": pa.date32(),
        "moment": pa.timestamp("us", "UTC"),
        "list": pa.list_(pa.int64()),
        "map": pa.map_(pa.string(), pa.int64()),
        "inner": pa.struct([("a", pa.struct([("b", pa.string())])), ("l", pa.list_(pa.int64()))]),
    }
    one = {
        "text": "ä/b c%=\U0001f600" * 7,
        "number": -5,
        "flag": True,
        "real": float("inf"),
        "data": b"\x00\xff",
        "money": Decimal("12.50"),
        "day": datetime.date(1960, 2, 29),
        "moment": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
        "list": [1, None],
        "map": [("k", 1)],
        "inner": {"a": {"b": "x"}, "l": []},
    }
    other = {**one, "text": "b", "number": 7, "flag": False, "real": 0.5, "inner": {"a": None, "l": None}}
    rows = [one, dict.fromkeys(kinds), other, one]
    task = Task(tmp_path, lake, P0, partition_by=by)
    task.put(rows, None, kind=pa.struct(list(kinds.items())))
    task.tick()
    assert sorted(task.rows(), key=str) == sorted(rows, key=str)
    if lake == "delta":
        table = DeltaTable(str(tmp_path / "lake/t"))
        for name in ("text", "number", "day"):
            found = table.to_pyarrow_table(filters=[(name, "=", other[name])]).to_pylist()
            assert sorted(found, key=str) == sorted((row for row in rows if row[name] == other[name]), key=str)
    else:
        there = lakes.iceberg(tmp_path, "t")
        assert there.scan(row_filter="number == 7").to_arrow().to_pylist() == [other]
        assert there.scan(row_filter="day == '1960-02-29'").to_arrow().num_rows == 3


@pytest.mark.parametrize(
    "options",
    [
        {"AWS_ENDPOINT_URL": "http://there:9000", "AWS_REGION": "eu-1", "AWS_ACCESS_KEY_ID": "i"},
        {"endpoint": "http://there:9000", "aws_default_region": "eu-1", "access_key_id": "i"},
    ],
)
def test_the_options_of_the_library_are_those_of_the_file_system(options: dict[str, str]) -> None:
    system, path = system_of("s3a://lake/prefix/t", {**options, "secret_access_key": "s", "timeout": "8s"})
    assert path == "lake/prefix/t"
    assert system.region == "eu-1"
    same = {"access_key": "i", "secret_key": "s", "region": "eu-1", "scheme": "http", "request_timeout": 4}
    twice = AwsStandardS3RetryStrategy(max_attempts=2)
    assert system == S3FileSystem(**same, endpoint_override="there:9000", connect_timeout=4, retry_strategy=twice)


# ------------------------------------------------------------------------------------------------------ the decision
def unit(name: str, made: int = 0, **moves: tuple[int | None, int]) -> CommitUnit:
    return CommitUnit(name, made, {}, {TopicPartition("t", int(place[1:])): move for place, move in moves.items()})


@pytest.mark.parametrize(
    ("units", "positions", "taken", "moves"),
    [
        ([], {P0: 1}, [], {}),
        ([unit("a-1", p0=(None, 5))], {}, ["a-1"], {P0: (None, 5)}),
        ([unit("a-2", p0=(5, 9)), unit("a-1", p0=(2, 5))], {P0: 2}, ["a-1", "a-2"], {P0: (2, 9)}),
        ([unit("a-1", p0=(2, 5))], {P0: 5}, [], {}),
        ([unit("a-2", p0=(5, 9))], {P0: 2}, [], {}),
        # Half of it is in already: no row of it can be added.
        ([unit("a-1", p0=(2, 5), p1=(None, 3))], {P0: 5}, [], {}),
        # The same records twice: the newer one, and never both.
        ([unit("a-1", 1, p0=(2, 5)), unit("b-1", 2, p0=(2, 7))], {P0: 2}, ["b-1"], {P0: (2, 7)}),
        ([unit("mine-1", 1, p0=(2, 5)), unit("b-1", 2, p0=(2, 7))], {P0: 2}, ["mine-1"], {P0: (2, 5)}),
        # What a dead task has handed over goes on where another one ends.
        ([unit("a-2", 1, p0=(5, 9)), unit("b-1", 2, p0=(2, 5))], {P0: 2}, ["b-1", "a-2"], {P0: (2, 9)}),
    ],
)
def test_a_commit_takes_what_continues_the_table(units: Any, positions: Any, taken: Any, moves: Any) -> None:
    found, moved = chain(units, positions, {"mine-1"})
    assert [one.name for one in found] == taken
    assert moved == moves


# ---------------------------------------------------------------------------------------------------------- at random
class Cluster:
    """Tasks of one connector in a group: partitions move, tasks die or freeze, the lake goes away, at random."""

    def __init__(self, path: Path, lake: str, seed: int, **settings: str) -> None:
        self.path, self.lake, self.settings = path, lake, settings
        self.chance = random.Random(seed)
        self.places = [TopicPartition("t", number) for number in range(4)]
        self.topic = dict.fromkeys(self.places, 0)
        self.kafka: dict[TopicPartition, int] = {}
        self.tasks: list[Task] = []
        self.frozen: list[Task] = []
        self.read: dict[TopicPartition, int] = {}
        self.steps: list[str] = []
        self.now = [1000.0]

    def deal_out(self, count: int) -> None:
        """A rebalance: all partitions are given back and dealt out anew."""
        for task in self.tasks:
            self.close(task)
        self.tasks = []
        for number in range(count):
            task = Task(self.path, self.lake, *self.places[number::count], **self.settings)
            task.rounds._clock = lambda: self.now[0]
            task.task._due = self.now[0] + 10  # By the wall clock in a worker.
            self.tasks.append(task)
            for place in self.places[number::count]:
                self.read[place] = task.context.rewound.pop(place, self.kafka.get(place, 0))

    def close(self, task: Task) -> None:
        task.context.closing = True
        self.commit(task)
        task.task.close(task.context.places)
        task.task.stop()

    def commit(self, task: Task) -> None:
        given = {place: OffsetAndMetadata(self.read[place]) for place in task.context.places if place in self.read}
        for place, found in task.task.pre_commit(given).items():
            self.kafka[place] = found.offset
            self.check(place)

    def check(self, place: TopicPartition) -> None:
        """What is committed to the group is in the tables."""
        base = place.partition * 1000
        wanted = {base + number for number in range(self.kafka[place])}
        there = {one for table in ("a", "b") for one in self.ids(table)}
        assert wanted <= there, (place, self.kafka[place], self.steps)

    def ids(self, table: str) -> list[int]:
        if not (self.path / "lake").exists():
            return []
        found = [row["id"] for row in lakes.rows(self.path, self.lake, table)]
        assert len(found) == len(set(found)), (table, sorted(found), self.steps)
        return found

    def step(self) -> None:
        kind = self.chance.choices(
            ["put", "tick", "look", "commit", "deal", "kill", "freeze", "wake", "away"], [12, 6, 8, 4, 1, 1, 1, 2, 2]
        )[0]
        task = self.chance.choice(self.tasks)
        self.steps.append(f"{kind} {self.tasks.index(task)}")
        self.now[0] += self.chance.choice([0.0, 0.5, 6.0])
        self.rewind(task)
        match kind:
            case "put":
                place = self.chance.choice(task.context.places)
                self.topic[place] += self.chance.randint(1, 4)
                self.give(task, place, self.topic[place])
            case "tick" | "look":
                self.tick(task, kind)
            case "commit":
                self.commit(task)
            case "deal":
                self.deal_out(self.chance.randint(1, 3))
            case "kill":
                self.tasks.remove(task)  # It gives nothing back.
                self.deal_out(self.chance.randint(1, 3))
            case "freeze":
                self.tasks.remove(task)
                self.frozen.append(task)
                self.deal_out(self.chance.randint(1, 3))
            case "wake":
                if self.frozen:
                    self.tick(self.frozen.pop(), "tick")
            case "away":
                kind_ = DeltaLakeTable if self.lake == "delta" else IcebergTable
                name = self.chance.choice(["add", "write", "refresh"])
                with mock.patch.object(kind_, name, side_effect=RetriableException("503")):
                    self.tick(task, "tick")

    def tick(self, task: Task, kind: str) -> None:
        task.task._due = 0.0 if kind == "tick" else float("inf")
        with suppress(RetriableException):
            task.context.call()

    def rewind(self, task: Task) -> None:
        for place, offset in task.context.rewound.items():
            self.read[place] = offset
        task.context.rewound.clear()

    def give(self, task: Task, place: TopicPartition, end: int) -> None:
        first = self.read[place]
        if first < end:
            base = place.partition * 1000
            rows = [{"id": base + number, "name": "ab"[number % 2]} for number in range(first, end)]
            task.put(rows, first=first, partition=place.partition)
            self.read[place] = end


@formats
def test_whatever_happens_each_record_is_once_in_its_table(tmp_path: Path, lake: str) -> None:
    routes = {"tables": "a,b", "route_field": "name", "tables_a_route_regex": "a", "tables_b_route_regex": "b"}
    for seed in range(int(os.environ.get("PENSTOCK_EXAMPLES", "1"))):
        (tmp_path / str(seed)).mkdir()
        cluster = Cluster(tmp_path / str(seed), lake, seed, **routes)
        cluster.deal_out(2)
        for _ in range(60):
            cluster.step()
        for _ in range(20):
            for task in cluster.tasks:
                cluster.rewind(task)
                for place in task.context.places:
                    cluster.give(task, place, cluster.topic[place])
                cluster.now[0] += 60
                cluster.tick(task, "tick")
                cluster.tick(task, "look")
                cluster.rewind(task)
                cluster.commit(task)
            if all(cluster.kafka.get(place, 0) == end for place, end in cluster.topic.items()):
                break
        found = sorted(cluster.ids("a") + cluster.ids("b"))
        wanted = sorted(place.partition * 1000 + n for place, end in cluster.topic.items() for n in range(end))
        assert found == wanted, (seed, cluster.steps)
        assert cluster.kafka == {**cluster.kafka, **cluster.topic}, (seed, cluster.kafka, cluster.topic)
