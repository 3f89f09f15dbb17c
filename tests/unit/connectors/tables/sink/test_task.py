"""What the table sink writes, in each lake: commits, offsets, keys, schemas, routes, faults."""

from __future__ import annotations

import datetime
import json
import shutil
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from testkit.doubles.frames import frame_of_json
from tests.unit.connectors.files.writing import schemaless
from tests.unit.connectors.tables import lakes
from tests.unit.connectors.tables.writing import HERE, Writing, frame, records

from penstock.api import TopicPartition
from penstock.connectors.tables import TableSink
from penstock.connectors.tables.delta import DeltaLake, DeltaLakeTable
from penstock.connectors.tables.iceberg import IcebergLake, IcebergTable
from penstock.data import (
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    Schema,
    SchemaBuilder,
)
from penstock.errors import ConnectException, RetriableException
from penstock.testing.kit.lives import KilledException

#: Some of them take more than a second.
pytestmark = pytest.mark.slow

formats = pytest.mark.parametrize("lake", lakes.FORMATS)
ELSEWHERE = TopicPartition("u", 0)


def struct(**fields: Schema) -> Schema:
    builder = SchemaBuilder.struct()
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()


def drop(path: Path, lake: str, name: str) -> None:
    if lake == "delta":
        shutil.rmtree(path / "lake" / name)
    else:
        with lakes.catalog(path) as there:
            there.drop_table(f"default.{name}")


def versions(path: Path, lake: str, name: str) -> int:
    """How many commits with rows a table has."""
    if lake == "delta":
        history = DeltaTable(str(path / "lake" / name)).history()
        return sum(one["operation"] in ("WRITE", "MERGE") for one in history)
    return len(lakes.iceberg(path, name).snapshots())


# ---------------------------------------------------------------------------------------------------------- commits
@formats
def test_a_commit_an_interval_has_all_that_waits_and_the_offset_behind_it(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 3))
    writing.put(records(3, 4), first=3)
    assert writing.rows() == []
    assert writing.safe(7) == 0
    writing.tick()
    assert writing.ids() == list(range(7))
    assert writing.safe(9) == 9
    writing.tick()
    assert versions(tmp_path, lake, "t") == 1


@formats
def test_another_task_goes_on_behind_the_offset_of_the_table(tmp_path: Path, lake: str) -> None:
    first = Writing(tmp_path, lake)
    first.put(records(0, 5))
    first.tick()
    second = Writing(tmp_path, lake)
    assert second.context.rewound == {HERE: 5}
    second.put(records(3, 4), first=5)
    second.tick()
    assert len(second.rows()) == 9


@formats
def test_a_second_connector_of_a_topic_is_refused_by_the_table_and_the_first_one_named(
    tmp_path: Path, lake: str
) -> None:
    first, late = Writing(tmp_path, lake), Writing(tmp_path, lake, name="late")
    late.put(records(0, 5))
    first.put(records(0, 5))
    first.tick()
    named = r"the connector s, and \S+ would double them.* set renamed\.from=s, and"
    with pytest.raises(ConnectException, match=named):
        late.tick()
    with pytest.raises(ConnectException, match=named):
        Writing(tmp_path, lake, name="other")
    other = Writing(tmp_path, lake, name="of-another-topic", places=[ELSEWHERE])
    other.put(records(5, 1), read_from="u")
    other.tick()
    first.put(records(6, 1), first=5)
    first.tick()
    assert first.ids() == list(range(7))


@formats
def test_a_renamed_connector_continues_behind_the_offsets_of_the_former_one(tmp_path: Path, lake: str) -> None:
    first = Writing(tmp_path, lake)
    first.put(records(0, 5))
    first.tick()
    renamed = Writing(tmp_path, lake, name="new", renamed_from="s")
    assert renamed.context.rewound == {HERE: 5}
    renamed.put(records(5, 2), first=5)
    renamed.tick()
    again = Writing(tmp_path, lake, name="new", renamed_from="s")
    assert again.context.rewound == {HERE: 7}
    assert Writing(tmp_path, lake, name="new").context.rewound == {HERE: 7}
    with pytest.raises(ConnectException, match="the connector new, and s would"):
        Writing(tmp_path, lake)
    assert again.ids() == list(range(7))
    TableSink().alter_offsets(again.props, {HERE: None})
    assert Writing(tmp_path, lake, name="new", renamed_from="s").context.rewound == {}


@formats
def test_connectors_of_one_name_in_two_kafka_clusters_do_not_share_their_offsets(tmp_path: Path, lake: str) -> None:
    Writing(tmp_path, lake).put(records(0, 1))
    before = Writing(tmp_path, lake)  # Of a version that did not know its cluster.
    before.put(records(0, 2))
    before.tick()
    first = Writing(tmp_path, lake, cluster="one")
    first.put(records(2, 3), first=2)
    first.tick()
    for shared in ("true", "false"):
        with pytest.raises(ConnectException, match=r"a connector s of the Kafka cluster one, and .* renamed\.from=s"):
            Writing(tmp_path, lake, cluster="two", shared_tables=shared)
    other = Writing(tmp_path, lake, cluster="two", places=[ELSEWHERE])
    other.put(records(5, 1), read_from="u")
    other.tick()
    moved = Writing(tmp_path, lake, cluster="two", renamed_from="s")
    assert moved.context.rewound == {HERE: 5}
    moved.put(records(6, 1), first=5)
    moved.tick()
    with pytest.raises(ConnectException, match="of the Kafka cluster two"):
        Writing(tmp_path, lake, cluster="one")
    assert Writing(tmp_path, lake, cluster="two").context.rewound == {HERE: 6}
    assert first.ids() == list(range(7))


@formats
def test_a_table_that_was_written_before_there_were_marks_goes_on(
    tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(DeltaLakeTable, "_marks", lambda *_: [])
        before.setattr(IcebergTable, "_writer_key", lambda *_: "older")
        before.setattr(IcebergTable, "check_writer", lambda *_: None)
        first = Writing(tmp_path, lake)
        first.put(records(0, 2))
        first.tick()
    again = Writing(tmp_path, lake)
    assert again.context.rewound == {HERE: 2}
    again.put(records(2, 2), first=2)
    again.tick()
    assert again.ids() == [0, 1, 2, 3]
    with pytest.raises(ConnectException, match="the connector s, and other would"):
        Writing(tmp_path, lake, name="other")


@formats
def test_connectors_that_have_written_one_topic_into_a_table_before_there_were_marks_both_go_on(
    tmp_path: Path, lake: str
) -> None:
    first, second = Writing(tmp_path, lake), Writing(tmp_path, lake, name="second", shared_tables="true")
    for one in (first, second):
        one.put(records(0, 2))
        one.tick()
    again = Writing(tmp_path, lake, name="second")
    assert again.context.rewound == {HERE: 2}
    for one in (again, first):
        one.put(records(2, 2), first=2)
        one.tick()
    assert again.ids() == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises(ConnectException, match=r"and third would .* set shared\.tables=true"):
        Writing(tmp_path, lake, name="third")


@formats
def test_a_task_that_lost_its_partition_writes_nothing_of_what_the_new_owner_has_written(
    tmp_path: Path, lake: str
) -> None:
    old = Writing(tmp_path, lake)
    old.put(records(0, 2))
    old.tick()
    old.put(records(2, 5), first=2)
    new = Writing(tmp_path, lake)
    new.put(records(2, 3), first=2)
    new.tick()
    old.tick()
    assert new.ids() == [0, 1, 2, 3, 4]
    assert old.context.rewound[HERE] == 2
    # A commit may come before the rewind.
    assert old.safe(7) == 2
    # What it is given again is in the table.
    old.put(records(2, 5), first=2)
    old.tick()
    assert new.ids() == [0, 1, 2, 3, 4, 5, 6]


@formats
def test_a_new_owner_that_an_old_one_was_faster_than_reads_again_and_doubles_nothing(tmp_path: Path, lake: str) -> None:
    old = Writing(tmp_path, lake)
    old.put(records(0, 4))
    new = Writing(tmp_path, lake)
    new.put(records(0, 6))
    old.tick()
    new.tick()
    assert new.context.rewound[HERE] == 0
    new.put(records(0, 6))
    new.tick()
    assert new.ids() == list(range(6))


@formats
def test_a_commit_whose_end_was_not_seen_is_not_made_again(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 1))
    writing.tick()
    writing.put(records(1, 2), first=1)
    table = writing.task._tables["t"].table
    assert table is not None
    append = table.append

    def cut(*args: Any) -> None:
        append(*args)
        raise RetriableException("the connection was closed")

    with mock.patch.object(table, "append", cut), pytest.raises(RetriableException):
        writing.tick()
    writing.tick()
    assert writing.ids() == [0, 1, 2]


@formats
def test_other_writers_are_not_overwritten_and_commits_go_on_the_newest_version(tmp_path: Path, lake: str) -> None:
    one, other = Writing(tmp_path, lake, name="a"), Writing(tmp_path, lake, name="b", places=[ELSEWHERE])
    for round_ in range(3):
        one.put(records(round_ * 2, 2), first=round_ * 2)
        other.put(records(round_ * 2, 2), first=round_ * 2, read_from="u")
        one.tick()
        other.tick()
    assert len(one.rows()) == 12
    assert Writing(tmp_path, lake, name="a").context.rewound == {HERE: 6}


@formats
def test_partitions_of_one_task_move_by_themselves(tmp_path: Path, lake: str) -> None:
    there = TopicPartition("t", 1)
    writing = Writing(tmp_path, lake)
    writing.task.open([there])
    writing.put(records(0, 3))
    writing.put(records(10, 2), partition=1)
    writing.put(records(3, 1), first=3)
    writing.task.close([there])
    writing.tick()
    assert writing.ids() == [0, 1, 2, 3]
    writing.task.open([there])
    writing.put(records(10, 2), partition=1)
    writing.tick()
    assert writing.ids() == [0, 1, 2, 3, 10, 11]


@formats
def test_a_message_of_several_frames_is_in_one_commit(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 2), offsets=[0, 1], continued=True)
    writing.tick()
    assert writing.rows() == []
    writing.put(records(2, 1), offsets=[1])
    writing.tick()
    assert writing.ids() == [0, 1, 2]
    assert Writing(tmp_path, lake).context.rewound == {HERE: 2}


@formats
def test_more_than_the_memory_is_in_one_commit_by_way_of_a_file(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, buffer_bytes=str(1 << 20))
    for number in range(8):
        writing.put(records(number * 1000, 1000, "x" * 400), first=number * 1000)
    assert writing.task._tables["t"].held < 1 << 20
    writing.tick()
    assert writing.ids() == list(range(8000))
    assert versions(tmp_path, lake, "t") == 1


@formats
def test_offsets_that_a_user_sets_count_in_the_table(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 5))
    writing.tick()
    connector = TableSink()
    assert connector.alter_offsets(writing.props, {HERE: 2})
    assert Writing(tmp_path, lake).context.rewound == {HERE: 2}
    assert connector.alter_offsets(writing.props, {HERE: None})
    again = Writing(tmp_path, lake)
    assert again.context.rewound == {}
    again.put(records(0, 5))
    again.tick()
    assert len(again.rows()) == 10


def test_an_iceberg_table_that_was_rolled_back_gets_its_records_again(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "iceberg")
    writing.put(records(0, 2))
    writing.tick()
    writing.put(records(2, 2), first=2)
    writing.tick()
    with lakes.catalog(tmp_path) as there:
        table = there.load_table("default.t")
        first = table.snapshots()[0].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(first).commit()
    again = Writing(tmp_path, "iceberg")
    assert again.context.rewound == {HERE: 2}


def test_an_iceberg_table_whose_snapshots_expired_behind_those_of_others_keeps_its_offsets(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "iceberg")
    writing.put(records(0, 2))
    writing.tick()
    with lakes.catalog(tmp_path) as there:
        table = there.load_table("default.t")
        own = table.current_snapshot().snapshot_id
        table.append(pa.table({"id": [7], "name": ["x"]}, schema=table.schema().as_arrow()))
        table.maintenance.expire_snapshots().by_id(own).commit()
        assert own not in [one.snapshot_id for one in there.load_table("default.t").snapshots()]
    assert Writing(tmp_path, "iceberg").context.rewound == {HERE: 2}


class Steps:
    """Ends the process at one of the steps of commits: before or after a table is made, altered, or written."""

    def __init__(self, end_at: int) -> None:
        self.left = end_at

    def wrapped(self, call: Any) -> Any:
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

    def watch(self, stack: ExitStack) -> None:
        for kind in (IcebergTable, DeltaLakeTable):
            for name in ("evolve", "append", "change"):
                stack.enter_context(mock.patch.object(kind, name, self.wrapped(getattr(kind, name))))
        for lake in (IcebergLake, DeltaLake):
            stack.enter_context(mock.patch.object(lake, "create", self.wrapped(lake.create)))
        # Between the files of a commit and the commit.
        commit = self.wrapped(getattr(IcebergTable, "_commit"))  # noqa: B009
        stack.enter_context(mock.patch.object(IcebergTable, "_commit", commit))


@formats
@pytest.mark.parametrize("upserts", [False, True])
def test_a_kill_at_any_step_of_a_commit_loses_and_doubles_nothing(tmp_path: Path, lake: str, upserts: bool) -> None:
    more = struct(id=INT64_SCHEMA, name=OPTIONAL_STRING_SCHEMA, more=OPTIONAL_STRING_SCHEMA)
    kind = pa.struct([("id", pa.int64()), ("name", pa.string()), ("more", pa.string())])
    settings: dict[str, Any] = (
        {"write_mode": "upsert", "id_columns": "id", "tables": "a,b"} if upserts else {"tables": "a,b"}
    )

    def run(path: Path, begin: int) -> int:
        """Goes on where Kafka, or the tables, say; returns the offset that Kafka has at the end."""
        writing = Writing(path, lake, **settings)
        writing.kafka = begin
        try:
            for first, count in ((0, 3), (3, 2), (5, 2)):
                if first + count <= begin:
                    continue
                at = max(first, begin)
                if first < 5:
                    writing.put(records(at, first + count - at), first=at)
                else:
                    writing.put([{"id": n, "name": "x", "more": "y"} for n in range(at, 7)], more, kind=kind, first=at)
                writing.tick()
                writing.kafka = writing.safe(first + count)
        except KilledException:
            return writing.kafka
        return writing.kafka

    # Not all, since each has tables of its own, and other ones with keys than without.
    for step in lakes.kills(9 if lake == "iceberg" else 5, first=4 if upserts else 0):
        path = tmp_path / str(step)
        path.mkdir()
        steps = Steps(step)
        with ExitStack() as stack:
            steps.watch(stack)
            committed = run(path, 0)
        assert run(path, committed) == 7
        for table in "ab":
            assert sorted(row["id"] for row in lakes.rows(path, lake, table)) == list(range(7)), step
        if steps.left >= 0:
            break
    assert step > 15


def test_a_branch_is_made_at_the_newest_snapshot_and_written_by_itself(tmp_path: Path) -> None:
    main = Writing(tmp_path, "iceberg", name="main")
    main.put(records(0, 2))
    main.tick()
    writing = Writing(tmp_path, "iceberg", commit_branch="audit", write_mode="upsert", id_columns="id")
    writing.put(records(1, 2, "y"), first=0)
    writing.tick()
    table = lakes.iceberg(tmp_path, "t")
    there = table.scan(snapshot_id=table.metadata.snapshot_by_name("audit").snapshot_id).to_arrow().to_pylist()
    assert sorted((row["id"], row["name"]) for row in there) == [(0, "x"), (1, "y"), (2, "y")]
    assert main.ids() == [0, 1]
    settings: dict[str, Any] = {"commit_branch": "audit", "write_mode": "upsert", "id_columns": "id"}
    assert Writing(tmp_path, "iceberg", **settings).context.rewound == {HERE: 2}


# ------------------------------------------------------------------------------------------------------------- keys
KEYED: dict[str, Any] = {"write_mode": "upsert", "id_columns": "id"}


@formats
def test_the_last_change_of_a_key_wins_and_tombstones_delete(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, **KEYED)
    values: list[Any] = [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
        {"id": 1, "name": "c"},
        None,
        {"id": 3, "name": "d"},
    ]
    writing.put(values, keys=pa.array([1, 2, 1, 2, 3]))
    writing.tick()
    assert sorted(row["name"] for row in writing.rows()) == ["c", "d"]
    writing.put([None, {"id": 2, "name": "e"}, {"id": 3, "name": "f"}], keys=pa.array([1, 2, 3]), first=5)
    writing.tick()
    assert sorted((row["id"], row["name"]) for row in writing.rows()) == [(2, "e"), (3, "f")]


@formats
def test_a_change_field_deletes_and_the_key_may_have_several_columns(tmp_path: Path, lake: str) -> None:
    schema = struct(a=INT64_SCHEMA, b=OPTIONAL_STRING_SCHEMA, op=OPTIONAL_STRING_SCHEMA)
    kind = pa.struct([("a", pa.int64()), ("b", pa.string()), ("op", pa.string())])
    writing = Writing(tmp_path, lake, write_mode="upsert", id_columns="a,b", cdc_field="op")
    given = [(1, "x", "c"), (1, "y", "r"), (2, "x", "u"), (1, "x", "d")]
    writing.put([{"a": a, "b": b, "op": op} for a, b, op in given], schema, kind=kind)
    writing.tick()
    assert sorted((row["a"], row["b"]) for row in writing.rows()) == [(1, "y"), (2, "x")]
    writing.put([{"a": 2, "b": "x", "op": "D"}], schema, kind=kind, first=4)
    writing.tick()
    assert [(row["a"], row["b"]) for row in writing.rows()] == [(1, "y")]


@formats
def test_the_fields_of_the_messages_key_are_the_key_and_columns_of_their_own(tmp_path: Path, lake: str) -> None:
    keys = pa.array([{"k": 1}, {"k": 2}, {"k": 1}], pa.struct([("k", pa.int64())]))
    writing = Writing(tmp_path, lake, write_mode="upsert")
    put = frame([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, None], keys=keys, context=writing.context)
    writing.task.put(replace(put, key_schema=struct(k=INT64_SCHEMA)))
    writing.tick()
    assert writing.rows() == [{"id": 2, "name": "b", "k": 2}]


@formats
def test_the_fields_of_a_key_without_a_schema_are_the_key(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, write_mode="upsert")
    given = frame_of_json('{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}', "null")
    keys = pa.array([{"k": 1}, {"k": 2}, {"k": 1}], pa.struct([("k", pa.int64())]))
    table = given.table.set_column(given.table.column_names.index("key"), "key", keys)
    writing.task.put(replace(given, table=table, key_schema=None, _context=writing.context))
    writing.tick()
    assert writing.rows(given.table["topic"][0].as_py()) == [{"id": 2, "name": "b", "k": 2}]


@formats
def test_records_without_a_key_are_reported_by_themselves(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, **{**KEYED, "id_columns": "name"})
    writing.put([{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}])
    writing.tick()
    assert writing.ids() == [1, 3]
    ((offset, text),) = writing.context.reported
    assert offset == 1
    assert "every record needs its key" in text


@formats
def test_random_changes_leave_what_a_map_of_them_has(tmp_path: Path, lake: str) -> None:
    import random

    chance = random.Random(5)
    writing = Writing(tmp_path, lake, **KEYED, partition_by="name")
    wanted: dict[int, str] = {}
    offset = 0
    for _ in range(8):
        values: list[Any] = []
        keys = []
        for _ in range(chance.randint(1, 30)):
            key = chance.randint(0, 40)
            if chance.random() < 0.3:
                values.append(None)
                wanted.pop(key, None)
            else:
                name = chance.choice("abc")
                values.append({"id": key, "name": name})
                wanted[key] = name
            keys.append(key)
        writing.put(values, keys=pa.array(keys), first=offset)
        offset += len(values)
        writing.tick()
        assert sorted((row["id"], row["name"]) for row in writing.rows()) == sorted(wanted.items())


def test_a_change_of_an_iceberg_table_rewrites_only_the_files_with_its_keys(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "iceberg", **KEYED)
    for number in range(4):
        writing.put(records(number * 10, 10), first=number * 10)
        writing.tick()
    before = {one["file_path"] for one in lakes.iceberg(tmp_path, "t").inspect.files().to_pylist()}
    writing.put([{"id": 15, "name": "new"}], first=40)
    writing.tick()
    after = {one["file_path"] for one in lakes.iceberg(tmp_path, "t").inspect.files().to_pylist()}
    assert len(before & after) == 3
    assert len(writing.rows()) == 40


@formats
def test_names_of_columns_may_have_any_characters(tmp_path: Path, lake: str) -> None:
    names = ["the id", 'say "x"', "ä.b", "select"]
    schema = struct(**dict.fromkeys(names, OPTIONAL_INT64_SCHEMA))
    kind = pa.struct([(name, pa.int64()) for name in names])
    writing = Writing(tmp_path, lake, write_mode="upsert", id_columns="the id", tolerant=False)
    row = dict.fromkeys(names, 1)
    writing.put([row], schema, kind=kind)
    writing.tick()
    writing.put([{**row, "select": 2}], schema, kind=kind, first=1)
    writing.tick()
    assert writing.rows() == [{**row, "select": 2}]


# ---------------------------------------------------------------------------------------------------------- schemas
@formats
def test_columns_are_added_at_every_depth(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    inner = SchemaBuilder.struct().field("a", INT64_SCHEMA).optional().build()
    writing.put([{"s": {"a": 1}}], struct(s=inner), kind=pa.struct([("s", pa.struct([("a", pa.int64())]))]))
    writing.tick()
    more = SchemaBuilder.struct().field("a", INT64_SCHEMA).field("b", OPTIONAL_STRING_SCHEMA).optional().build()
    kind = pa.struct([("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("n", pa.string())])
    writing.put([{"s": {"a": 2, "b": "x"}, "n": "y"}], struct(s=more, n=OPTIONAL_STRING_SCHEMA), kind=kind, first=1)
    writing.tick()
    assert sorted(writing.rows(), key=str) == [
        {"s": {"a": 1, "b": None}, "n": None},
        {"s": {"a": 2, "b": "x"}, "n": "y"},
    ]


def test_columns_of_iceberg_are_widened_and_made_optional(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "iceberg")
    writing.put(
        [{"i": 1, "f": 1.5, "r": 1}],
        struct(i=INT32_SCHEMA, f=FLOAT32_SCHEMA, r=INT64_SCHEMA),
        kind=pa.struct([("i", pa.int32()), ("f", pa.float32()), ("r", pa.int64())]),
    )
    writing.tick()
    assert lakes.iceberg(tmp_path, "t").schema().find_field("r").required
    wide = pa.struct([("i", pa.int64()), ("f", pa.float64()), ("r", pa.int64())])
    schema = struct(i=INT64_SCHEMA, f=FLOAT64_SCHEMA, r=OPTIONAL_INT64_SCHEMA)
    writing.put([{"i": 1 << 40, "f": 0.1, "r": None}], schema, kind=wide, first=1)
    writing.tick()
    assert sorted(writing.rows(), key=str) == [{"i": 1, "f": 1.5, "r": 1}, {"i": 1 << 40, "f": 0.1, "r": None}]


def test_a_delta_column_is_not_widened_and_what_does_not_fit_is_reported(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "delta")
    writing.put([{"i": 1}], struct(i=INT32_SCHEMA), kind=pa.struct([("i", pa.int32())]))
    writing.tick()
    writing.put(
        [{"i": 2}, {"i": 1 << 40}, {"i": 3}], struct(i=INT64_SCHEMA), kind=pa.struct([("i", pa.int64())]), first=1
    )
    writing.tick()
    assert sorted(row["i"] for row in writing.rows()) == [1, 2, 3]
    ((offset, text),) = writing.context.reported
    assert offset == 2
    assert '"i"' in text


@formats
def test_a_required_column_becomes_optional_where_records_lack_it(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 1))
    writing.tick()
    writing.put([{"name": "x"}], struct(name=OPTIONAL_STRING_SCHEMA), kind=pa.struct([("name", pa.string())]), first=1)
    writing.tick()
    assert sorted(writing.rows(), key=str) == [{"id": 0, "name": "x"}, {"id": None, "name": "x"}]


@formats
def test_without_evolution_fields_that_have_no_column_are_left_out_and_required_ones_are_wanted(
    tmp_path: Path, lake: str
) -> None:
    writing = Writing(tmp_path, lake, auto_evolve="false")
    writing.put(records(0, 1))
    writing.tick()
    kind = pa.struct([("id", pa.int64()), ("more", pa.string())])
    schema = struct(id=OPTIONAL_INT64_SCHEMA, more=OPTIONAL_STRING_SCHEMA)
    writing.put([{"id": 1, "more": "x"}, {"id": None, "more": "y"}], schema, kind=kind, first=1)
    writing.tick()
    assert sorted(writing.rows(), key=str) == [{"id": 0, "name": "x"}, {"id": 1, "name": None}]
    assert [offset for offset, _ in writing.context.reported] == [2]


@formats
def test_values_of_every_type_come_back(tmp_path: Path, lake: str) -> None:
    now = datetime.datetime(2026, 1, 31, 12, 30, tzinfo=datetime.UTC)
    kinds = {
        "small": pa.int8(),
        "bool": pa.bool_(),
        "text": pa.string(),
        "data": pa.binary(),
        "money": pa.decimal128(38, 2),
        "day": pa.date32(),
        "moment": pa.timestamp("ms", "UTC"),
        "list": pa.list_(pa.int16()),
        "map": pa.map_(pa.string(), pa.int64()),
        "struct": pa.struct([("a", pa.list_(pa.struct([("b", pa.float32())])))]),
    }
    row = {
        "small": 5,
        "bool": True,
        "text": "ä",
        "data": b"\x00\xff",
        "money": Decimal("12.50"),
        "day": datetime.date(2026, 1, 31),
        "moment": now,
        "list": [1, None],
        "map": [("k", 1)],
        "struct": {"a": [{"b": 1.5}, None]},
    }
    writing = Writing(tmp_path, lake)
    writing.put([row, dict.fromkeys(kinds)], None, kind=pa.struct(list(kinds.items())))
    writing.tick()
    found = writing.rows()
    assert row in found
    assert dict.fromkeys(kinds) in found


@formats
def test_json_without_a_schema_makes_columns_that_only_widen_until_the_table_is_there(
    tmp_path: Path, lake: str
) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(schemaless([{"a": 1, "n": None}]), None)
    writing.put(schemaless([{"a": 1.5, "b": {"c": [True]}}]), None, first=1)
    writing.tick()
    assert sorted(writing.rows(), key=str) == [{"a": 1.0, "b": None}, {"a": 1.5, "b": {"c": [True]}}]
    writing.put(schemaless([{"a": "text"}, {"a": 2}, {"b": {"c": 5}}]), None, first=2)
    writing.tick()
    assert sorted(row["a"] for row in writing.rows()) == [1.0, 1.5, 2.0]
    assert [offset for offset, _ in writing.context.reported] == [2, 4]


@formats
def test_a_bad_row_is_reported_and_those_around_it_are_written(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put([{"id": 1, "name": "a"}, None, {"id": 3, "name": "c"}])
    writing.tick()
    assert writing.ids() == [1, 3]
    assert [offset for offset, _ in writing.context.reported] == [1]
    strict = Writing(tmp_path, lake, tolerant=False)
    with pytest.raises(ConnectException, match="Tolerance"):
        strict.put([None], first=3)


# ------------------------------------------------------------------------------------------- partitions and routes
def test_delta_tables_are_partitioned_by_columns(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "delta", partition_by="name")
    writing.put([{"id": 1, "name": "a/b"}, {"id": 2, "name": None}, {"id": 3, "name": "x" * 150}])
    writing.tick()
    assert DeltaTable(str(tmp_path / "lake/t")).metadata().partition_columns == ["name"]
    assert sorted((row["id"], row["name"]) for row in writing.rows()) == [(1, "a/b"), (2, None), (3, "x" * 150)]


def test_newer_credentials_of_an_iceberg_catalog_are_taken_at_the_next_look(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "iceberg")
    writing.put(records(0, 1))
    writing.tick()
    lake = writing.task._lake
    assert isinstance(lake, IcebergLake)
    before = lake.catalog
    writing.put(records(1, 1), first=1)
    writing.tick()
    assert lake.catalog is before
    writing.props.update({"aws.access.key.id": "newer", "aws.secret.access.key": "s"})
    writing.put(records(2, 1), first=2)
    writing.tick()
    assert lake.catalog.properties["s3.access-key-id"] == "newer"
    assert writing.ids() == [0, 1, 2]


LONG = [
    {"id": 1, "name": "x" * 1000},
    {"id": 2, "name": "a/b"},
    {"id": 3, "name": "\u00e9" * 300},
    {"id": 4, "name": ".."},
    {"id": 5, "name": "a=b%2F\n"},
]


@formats
def test_values_of_partitions_of_any_length_are_written(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, tolerant=False, partition_by="name")
    writing.put(LONG)
    writing.tick()
    writing.put([{"id": 6, "name": "a/b"}, {"id": 7, "name": "y" * 300}], first=5)
    writing.tick()
    writing.put([{"id": 8, "name": "short"}], first=7)
    writing.tick()
    more = [{"id": 6, "name": "a/b"}, {"id": 7, "name": "y" * 300}, {"id": 8, "name": "short"}]
    assert sorted(writing.rows(), key=lambda row: row["id"]) == [*LONG, *more]


@formats
def test_changes_in_partitions_whose_values_are_too_long_for_a_path_stop_nothing(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, partition_by="name", write_mode="upsert", id_columns="id,name")
    writing.put(LONG)
    writing.tick()
    if lake == "iceberg":
        assert writing.ids() == [1, 2, 3, 4, 5]
        return
    assert writing.ids() == [2, 4, 5]
    assert [offset for offset, _ in writing.context.reported] == [0, 2]
    assert "too long for the name of a directory of the table t" in writing.context.reported[0][1]


def test_iceberg_tables_are_partitioned_by_every_transform(tmp_path: Path) -> None:
    kind = pa.struct([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("ms", "UTC"))])
    moments = [
        datetime.datetime(1969, 12, 31, 23, 30, tzinfo=datetime.UTC),
        datetime.datetime(2026, 5, 1, 1, tzinfo=datetime.UTC),
        None,
    ]
    rows = [{"id": n, "name": f"name{n % 4}" if n % 5 else None, "at": moments[n % 3]} for n in range(40)]
    for number, term in enumerate(
        ["year(at)", "months(at)", "day(at)", "hour(at)", "bucket(id, 4)", "bucket(name, 3)", "truncate(name, 2)",
         "truncate(id, 10)", "name", "day(at), bucket(id,2)"]
    ):  # fmt: skip
        table = f"t{number}"
        writing = Writing(tmp_path, "iceberg", partition_by=term, table_name_format=table, name=f"s{number}")
        writing.put(rows, None, kind=kind)
        writing.tick()
        found = writing.rows(table)
        assert sorted(found, key=str) == sorted(rows, key=str), term
        there = lakes.iceberg(tmp_path, table)
        assert len(there.spec().fields) == len(term.split("), "))
        # What the library prunes by, it finds.
        wanted = there.scan(row_filter="at >= '2026-05-01T00:00:00+00:00'").to_arrow().num_rows
        assert wanted == sum(row["at"] == moments[1] for row in rows), term
        assert there.scan(row_filter="id == 7").to_arrow().num_rows == 1, term


@formats
def test_records_go_to_the_tables_of_their_field(tmp_path: Path, lake: str) -> None:
    writing = Writing(
        tmp_path,
        lake,
        tables="one,two",
        route_field="name",
        tables_one_route_regex="a.*",
        tables_two_route_regex="a|b",
    )
    writing.put([{"id": n, "name": name} for n, name in enumerate(["a", "b", "abc", "x", None])])
    writing.tick()
    assert writing.ids("one") == [0, 2]
    assert writing.ids("two") == [0, 1]
    assert writing.safe(5) == 5


@formats
def test_records_go_to_tables_that_their_field_names(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, dynamic_tables="true", route_field="name")
    writing.put([{"id": n, "name": name} for n, name in enumerate(["A", "b", "../x", None, "a"])])
    writing.tick()
    assert writing.ids("a") == [0, 4]
    assert writing.ids("b") == [1]
    assert [offset for offset, _ in writing.context.reported] == [2, 3]
    # After a kill all comes again from the last offset in Kafka, and each table knows what it has.
    again = Writing(tmp_path, lake, dynamic_tables="true", route_field="name")
    again.put([{"id": n, "name": name} for n, name in enumerate(["A", "b", "a", "a"])])
    again.tick()
    assert again.ids("a") == [0, 4]
    again.put([{"id": 9, "name": "a"}], first=5)
    again.tick()
    assert again.ids("a") == [0, 4, 9]


@formats
def test_a_record_goes_to_all_tables_that_are_listed(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, tables="one,two")
    writing.put(records(0, 2))
    writing.tick()
    assert writing.ids("one") == writing.ids("two") == [0, 1]


# -------------------------------------------------------------------------------------------------------- backfills
@formats
@pytest.mark.parametrize("commit", ["task", "connector"])
def test_a_backfill_adds_rows_once_more_and_leaves_the_offsets_to_the_connector(
    tmp_path: Path, lake: str, commit: str
) -> None:
    live = Writing(tmp_path, lake, tables_commit=commit, commit_wait_ms="0")
    live.put(records(0, 10))
    live.tick()
    live.put(records(10, 2), first=10)
    backfill = Writing(tmp_path, lake, tables_commit=commit, backfill=True)
    assert backfill.context.rewound == {}
    backfill.put(records(3, 2), first=3)
    backfill.put(records(11, 1), first=11)
    assert backfill.safe(12) == 3
    backfill.close()
    live.tick()
    assert live.safe(12) == 12
    assert live.ids() == sorted([*range(12), 3, 4, 11])
    assert live.context.rewound == {}
    assert Writing(tmp_path, lake).context.rewound == {HERE: 12}


@formats
def test_a_backfill_ahead_of_the_connector_takes_no_record_from_it(tmp_path: Path, lake: str) -> None:
    routes = {"tables": "a,b", "route_field": "name", "tables_a_route_regex": "a", "tables_b_route_regex": "b"}
    settings: dict[str, Any] = routes
    live = Writing(tmp_path, lake, **settings)
    backfill = Writing(tmp_path, lake, backfill=True, **settings)
    backfill.put([{"id": n, "name": "ab"[n % 2]} for n in range(4, 8)], first=4)
    backfill.tick()
    live.put([{"id": n, "name": "ab"[n % 2]} for n in range(8)])
    live.tick()
    assert live.ids("a") == [0, 2, 4, 4, 6, 6]
    assert live.ids("b") == [1, 3, 5, 5, 7, 7]
    assert live.safe(8) == 8


@formats
def test_a_backfill_by_key_replaces_rows(tmp_path: Path, lake: str) -> None:
    live = Writing(tmp_path, lake, **KEYED)
    live.put(records(0, 5))
    live.tick()
    backfill = Writing(tmp_path, lake, backfill=True, **KEYED)
    backfill.put(records(2, 2, "new"), first=2)
    backfill.tick()
    assert live.ids() == [0, 1, 2, 3, 4]
    assert sorted(row["id"] for row in live.rows() if row["name"] == "new") == [2, 3]
    assert Writing(tmp_path, lake, **KEYED).context.rewound == {HERE: 5}


# ----------------------------------------------------------------------------------------------------------- faults
@formats
def test_a_table_that_is_not_there_is_named(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, auto_create="false")
    with pytest.raises(ConnectException, match=r"There is no table t: create it, or set auto\.create=true"):
        writing.put(records(0, 1))


@formats
def test_a_table_that_was_dropped_or_made_again_is_named(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 1))
    writing.tick()
    drop(tmp_path, lake, "t")
    writing.put(records(1, 1), first=1)
    with pytest.raises(ConnectException, match="was dropped while the task ran"):
        writing.tick()
    other = Writing(tmp_path, lake, name="other")
    other.put(records(0, 1))
    other.tick()
    with pytest.raises(ConnectException, match="dropped and created again"):
        writing.tick()


@formats
def test_a_topic_that_was_made_again_is_named(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(records(0, 5))
    writing.tick()
    again = Writing(tmp_path, lake)
    with pytest.raises(ConnectException, match="deleted and made again"):
        again.put(records(0, 1))


def test_a_column_that_another_writer_dropped_is_left_out(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "iceberg", auto_evolve="false")
    writing.put(records(0, 1))
    writing.tick()
    writing.put(records(1, 1), first=1)
    with lakes.catalog(tmp_path) as there, there.load_table("default.t").update_schema() as update:
        update.delete_column("name")
    writing.tick()
    assert sorted(writing.rows(), key=str) == [{"id": 0}, {"id": 1}]


def test_a_table_of_other_writers_is_taken_as_it_is(tmp_path: Path) -> None:
    schema = pa.schema([("name", pa.string()), ("id", pa.int32()), ("own", pa.float64())])
    (tmp_path / "lake").mkdir()
    write_deltalake(str(tmp_path / "lake/t"), pa.table({"name": ["z"], "id": [9], "own": [1.0]}, schema=schema))
    with lakes.catalog(tmp_path) as there:
        there.create_namespace("default")
        there.create_table("default.t", schema=schema)
    for lake in lakes.FORMATS:
        writing = Writing(tmp_path, lake, auto_evolve="false", auto_create="false", name=lake)
        writing.put([{"id": 1, "name": "a"}, {"id": 1 << 40, "name": "b"}])
        writing.tick()
        assert {"name": "a", "id": 1, "own": None} in writing.rows()
        assert [offset for offset, _ in writing.context.reported] == [1]


@formats
def test_a_partition_that_no_field_is_for_is_named(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, partition_by="nothing")
    writing.put(records(0, 1))
    with pytest.raises(ConnectException, match=r"partition\.by names nothing"):
        writing.tick()


def test_the_ranges_of_a_commit_stand_in_it(tmp_path: Path) -> None:
    for lake in lakes.FORMATS:
        writing = Writing(tmp_path, lake)
        writing.put(records(0, 5))
        writing.tick()
    delta = DeltaTable(str(tmp_path / "lake/t")).history(1)[0]
    assert json.loads(delta["penstock.offsets"]) == [{"topic": "t", "partition": 0, "from": None, "to": 5}]
    snapshot = lakes.iceberg(tmp_path, "t").current_snapshot()
    assert json.loads(snapshot.summary["penstock.offsets.s"]) == {"t": {"0": 5}}
    assert json.loads(snapshot.summary["penstock.ranges"]) == [["t", 0, None, 5]]


@formats
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a", "b'c", 'd"e']),
        (pa.int16(), [1, 2, -3]),
        (pa.bool_(), [True, False, True]),
        (pa.date32(), [datetime.date(2026, 1, day) for day in (1, 2, 3)]),
        (pa.timestamp("ms", "UTC"), [datetime.datetime(1960, 1, day, 5, tzinfo=datetime.UTC) for day in (1, 2, 3)]),
        (pa.decimal128(38, 2), [Decimal("1.50"), Decimal("-2.00"), Decimal("0.01")]),
        (pa.binary(), [b"\x00", b"\xff", b"a"]),
    ],
    ids=str,
)
def test_keys_may_have_any_plain_type(tmp_path: Path, lake: str, kind: pa.DataType, values: list[Any]) -> None:
    row = pa.struct([("id", kind), ("n", pa.int64()), ("more", pa.list_(pa.struct([("x", pa.int64())])))])
    writing = Writing(tmp_path, lake, tolerant=False, **KEYED)
    more = [{"x": 1}, None]
    writing.put([{"id": one, "n": n, "more": more} for n, one in enumerate(values)], None, kind=row)
    writing.tick()
    writing.put([{"id": one, "n": n + 10, "more": None} for n, one in enumerate(values[:1])], None, kind=row, first=3)
    writing.put([None], None, kind=row, keys=pa.array(values[1:2], kind), first=4)
    writing.tick()
    wanted = {one: n for n, one in enumerate(values)} | {values[0]: 10}
    del wanted[values[1]]
    assert {one["id"]: one["n"] for one in writing.rows()} == wanted
    assert len(writing.rows()) == len(wanted)


@formats
def test_records_without_any_value_are_reported_until_the_table_is_there(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake)
    writing.put(schemaless([{"a": None}, {}]), None)
    writing.tick()
    assert [offset for offset, _ in writing.context.reported] == [0, 1]
    assert writing.safe(2) == 2
    writing.put(schemaless([{"a": 1}, {}]), None, first=2)
    writing.tick()
    writing.put(schemaless([{}]), None, first=4)
    writing.tick()
    assert sorted(writing.rows(), key=str) == [{"a": 1}, {"a": None}, {"a": None}]


@formats
def test_deletes_of_keys_that_are_not_there_move_the_offset_of_the_table(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, **KEYED)
    writing.put(pa.nulls(2), None, keys=pa.array([1, 2]))
    writing.tick()
    assert Writing(tmp_path, lake, **KEYED).context.rewound == {HERE: 2}
    writing.put(records(5, 1), first=2)
    writing.tick()
    assert writing.ids() == [5]
    assert writing.context.rewound == {}
