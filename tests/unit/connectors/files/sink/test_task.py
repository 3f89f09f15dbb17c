"""The file sink's task: frames into files of a directory, offsets, retries and replays."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.unit.connectors.files.writing import HERE, Writing, frame, records, schemaless

from penstock.api import TopicPartition
from penstock.connectors.files.sink import task as task_module
from penstock.data import INT32_SCHEMA, INT64_SCHEMA, STRING_SCHEMA, SchemaBuilder
from penstock.data import Decimal as DecimalSchema
from penstock.errors import ConnectException, RetriableException


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Writing] = []

    def make(**settings: Any) -> Writing:
        started.append(Writing(settings.pop("directory", tmp_path / "files"), **settings))
        return started[-1]

    yield make
    for one in started:
        one.task.stop()


class Killed(Exception):
    """The process is gone, in the middle of a write."""


def ids(writing: Writing) -> list[int]:
    """The values of ``id`` of all files, in the order of names and rows."""
    return [row["id"] for name in writing.files() for row in writing.rows(name)]


def test_files_have_flush_size_records_and_the_name_of_their_first_offset(start: Any) -> None:
    writing = start(flush_size="4")
    writing.put(records(0, 10))
    assert writing.files() == [
        "t/partition=0/t+0+0000000000.snappy.parquet",
        "t/partition=0/t+0+0000000004.snappy.parquet",
    ]
    assert writing.commit(10) == 8
    writing.put(records(10, 2), first=10)
    assert writing.commit(12) == 12
    assert ids(writing) == list(range(12))


def test_where_nothing_waits_the_offset_of_the_worker_is_committed(start: Any) -> None:
    """It is also behind the ends of transactions, which no sink sees."""
    writing = start(flush_size="2")
    assert writing.commit(7) == 7
    writing.put(records(7, 2), first=7)
    assert writing.commit(10) == 10
    writing.put(records(10, 1), first=10)
    assert writing.commit(12) == 10


def test_what_is_open_is_closed_before_partitions_go_and_nothing_is_read_twice(start: Any) -> None:
    writing = start(flush_size="100")
    writing.put(records(0, 10))
    assert writing.commit(10) == 0
    assert writing.commit(10, closing=True) == 10
    assert ids(writing) == list(range(10))


def test_with_flush_on_close_false_open_files_are_read_again(start: Any) -> None:
    writing = start(flush_size="4", flush_on_close="false")
    writing.put(records(0, 6))
    assert writing.commit(6, closing=True) == 4
    writing.task.close([HERE])
    again = start(flush_size="4")
    again.put(records(4, 4), first=4)
    assert ids(again) == list(range(8))


def test_a_quiet_partition_is_written_when_its_time_on_the_clock_has_come(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000_500]
    monkeypatch.setattr(task_module, "_now_ms", lambda: now[0])
    writing = start(rotate_schedule_interval_ms="1000")
    writing.put(records(0, 3))
    writing.context.call()
    assert writing.files() == []
    now[0] += 500
    writing.context.call()
    assert ids(writing) == [0, 1, 2]
    assert writing.commit(3) == 3


@pytest.mark.parametrize("seed", range(6))
def test_however_often_it_is_killed_each_record_is_in_one_file(
    start: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Kills with commits that lag behind, rotation by clock, count and time, and directories by field."""
    chance = random.Random(seed)
    now = [1_000_000]
    monkeypatch.setattr(task_module, "_now_ms", lambda: now[0])
    count = 200
    times = [1_000_000 + number * 10 + chance.randrange(30) for number in range(count)]
    names = [chance.choice(["a", "b", "c/d", None]) for _ in range(count)]
    settings = {
        "flush.size": "17",
        "rotate.interval.ms": "300",
        "rotate.schedule.interval.ms": "70",
        "partitioner.class": "field",
        "partition.field.name": "name",
        "flush.bytes": chance.choice(["-1", "150", "400"]),
    }
    committed = 0
    while committed < count:
        writing = start(**settings)
        left = [chance.randrange(1, 60)]
        put = writing.task._rolling._store.put

        def dying(key: str, data: Any, size: int, put: Any = put, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed
            put(key, data, size)

        monkeypatch.setattr(writing.task._rolling._store, "put", dying)
        position = committed
        try:
            for _ in range(chance.randrange(1, 40)):
                end = min(count, position + chance.randrange(1, 12))
                if position < end:
                    values = [{"id": number, "name": names[number]} for number in range(position, end)]
                    writing.put(values, first=position, times=times[position:end])
                position = end
                now[0] += chance.randrange(40)
                writing.context.call()
                safe = writing.commit(position, closing=chance.random() < 0.1)
                if chance.random() < 0.3 and safe is not None:
                    committed = safe
            if position == count and chance.random() < 0.5:
                committed = writing.commit(position, closing=True) or 0
        except Killed:
            continue
    assert sorted(ids(writing)) == list(range(count))
    for name in writing.files():
        found = [row["id"] for row in writing.rows(name)]
        assert found == sorted(found)
        assert int(name.rpartition("+")[2][:10]) == found[0]


def test_a_store_that_is_away_is_tried_again_and_nothing_is_taken_twice(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = start(flush_size="2", partitioner_class="field", partition_field_name="name")
    put, failures = writing.task._rolling._store.put, [0, 2, 3]

    def failing(key: str, data: Any, size: int, calls: list[int] = []) -> None:  # noqa: B006 - it counts
        calls.append(1)
        if len(calls) - 1 in failures:
            raise RetriableException("503")
        put(key, data, size)

    monkeypatch.setattr(writing.task._rolling._store, "put", failing)
    given = frame([{"id": n, "name": "ab"[n % 2]} for n in range(4)], context=writing.context)
    for _ in range(5):
        try:
            writing.task.put(given)
            break
        except RetriableException:
            assert writing.commit(4) in (0, 2)
    assert sorted(ids(writing)) == [0, 1, 2, 3]
    assert writing.commit(4) == 4


def test_offsets_that_come_again_without_being_asked_for_fail_the_task_and_say_why(start: Any) -> None:
    writing = start(flush_size="2")
    writing.put(records(0, 4))
    with pytest.raises(ConnectException, match="The topic was deleted and made again"):
        writing.put(records(0, 2))


def test_null_values_are_reported_or_left_out(start: Any) -> None:
    writing = start(flush_size="2")
    writing.put([{"id": 0}, None, {"id": 2}])
    assert [offset for offset, _ in writing.context.reported] == [1]
    assert ids(writing) == [0, 2]
    assert writing.commit(3) == 3
    ignoring = start(flush_size="2", behavior_on_null_values="ignore", topics_dir="topics")
    ignoring.put([None, None], None, kind=pa.null(), first=5)
    assert ignoring.context.reported == []
    assert ignoring.commit(7) == 7


def test_a_bad_row_is_reported_and_the_others_are_written(start: Any) -> None:
    writing = start(
        flush_size="3", partitioner_class="time", path_format="yyyy", partition_duration_ms="60000",
        timestamp_extractor="RecordField", timestamp_field="name",
    )  # fmt: skip
    values = [{"id": n, "name": f"20{n + 20}-05-06T07:08:09Z"} for n in range(4)]
    values[1]["name"] = "soon"
    writing.put(values)
    assert [offset for offset, _ in writing.context.reported] == [1]
    assert "'soon', which is no time" in writing.context.reported[0][1]
    assert writing.files() == [f"t/20{n + 20}/t+0+000000000{n}.snappy.parquet" for n in (0, 2, 3)]


def test_a_field_that_no_value_has_is_an_error_of_all_rows_at_once(start: Any) -> None:
    writing = start(partitioner_class="field", partition_field_name="nope")
    writing.put(records(0, 5000))
    assert len(writing.context.reported) == 5000
    assert 'There is no field "nope"' in writing.context.reported[0][1]
    assert writing.commit(5000) == 5000


def test_without_tolerance_a_bad_row_fails_the_task(start: Any) -> None:
    with pytest.raises(ConnectException, match="Tolerance exceeded"):
        start(tolerant=False).put([None, {"id": 1}])


def test_partition_values_may_hold_slashes_and_be_long(start: Any) -> None:
    writing = start(flush_size="3", partitioner_class="field", partition_field_name="name")
    writing.put([{"id": 0, "name": "../../etc"}, {"id": 1, "name": "x" * 1000}, {"id": 2, "name": "x" * 1001}])
    found = writing.files()
    assert found[0] == "t/name=..%2F..%2Fetc/t+0+0000000000.snappy.parquet"
    assert len({name.split("/")[1] for name in found}) == 3
    assert max(len(part) for name in found for part in name.split("/")) < 255


def test_rows_beyond_the_memory_go_to_disk_and_come_back_in_order(start: Any) -> None:
    writing = start(
        flush_size="40000", buffer_bytes=str(1 << 20), partitioner_class="field", partition_field_name="name"
    )
    for first in range(0, 40_000, 2000):
        writing.put([{"id": n, "name": str(n % 7) * 50} for n in range(first, first + 2000)], first=first)
        held = [file.held for generation in writing.task._rolling._generations._all() for file in generation.blocks]
        assert sum(held) <= 1 << 20
    for name in writing.files():
        found = [row["id"] for row in writing.rows(name)]
        assert found == sorted(found)
    assert sorted(ids(writing)) == list(range(40_000))


def test_records_of_other_schemas_go_to_files_of_their_own_without_making_small_ones(start: Any) -> None:
    wide = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("more", STRING_SCHEMA).build()
    writing = start(flush_size="20")
    for first in range(0, 20, 4):
        writing.put(records(first, 2), first=first)
        kind = pa.struct([("id", pa.int64()), ("more", pa.string())])
        writing.put([{"id": n, "more": "m"} for n in (first + 2, first + 3)], wide, kind=kind, first=first + 2)
    assert len(writing.files()) == 2
    assert sorted(ids(writing)) == list(range(20))


def test_backward_compatibility_writes_old_records_with_the_newest_schema(start: Any) -> None:
    old = SchemaBuilder.struct().name("S").version(1).field("id", INT32_SCHEMA).build()
    extra = SchemaBuilder.string().default_value("none").build()
    new = SchemaBuilder.struct().name("S").version(2).field("id", INT64_SCHEMA).field("extra", extra).build()
    writing = start(flush_size="4", schema_compatibility="backward")
    new_kind = pa.struct([("id", pa.int64()), ("extra", pa.string())])
    writing.put([{"id": 0, "extra": "a"}], new, kind=new_kind)
    writing.put([{"id": 1}, {"id": 2}], old, kind=pa.struct([("id", pa.int32())]), first=1)
    writing.put([{"id": 3, "extra": "b"}], new, kind=new_kind, first=3)
    (name,) = writing.files()
    assert [tuple(row.values()) for row in writing.rows(name)] == [(0, "a"), (1, "none"), (2, "none"), (3, "b")]


def test_schemas_without_versions_cannot_be_compared(start: Any) -> None:
    other = SchemaBuilder.struct().field("id", INT32_SCHEMA).build()
    writing = start(schema_compatibility="FULL")
    writing.put(records(0, 1))
    writing.put([{"id": 1}], other, kind=pa.struct([("id", pa.int32())]), first=1)
    assert "compares the versions of schemas" in writing.context.reported[0][1]


def test_json_without_a_schema_becomes_columns_that_widen(start: Any) -> None:
    writing = start(flush_size="6")
    writing.put(schemaless([{"a": 1, "b": {"c": [1]}}, {"a": 2}]), None)
    writing.put(schemaless([{"a": 2.5, "d": True}, {"b": {"c": [2.5], "e": "x"}}]), None, first=2)
    writing.put(schemaless([{"a": "text"}, {"d": {"f": 1}}]), None, first=4)
    (name,) = writing.files()
    assert [(row["a"], row["b"], row["d"]) for row in writing.rows(name)] == [
        ("1", {"c": [1.0], "e": None}, None),
        ("2", None, None),
        ("2.5", None, "true"),
        (None, {"c": [2.5], "e": "x"}, None),
        ("text", None, None),
        (None, None, '{"f":1}'),
    ]


def test_decimals_that_came_as_digits_are_decimals_at_every_depth(start: Any) -> None:
    digits = pa.struct([("unscaled", pa.binary()), ("scale", pa.int32())])
    schema = (
        SchemaBuilder.struct()
        .field("price", DecimalSchema.builder(2).build())
        .field("inner", SchemaBuilder.struct().field("tax", DecimalSchema.builder(1).build()).build())
        .build()
    )
    kind = pa.struct([("price", digits), ("inner", pa.struct([("tax", digits)])), ("list", pa.list_(digits))])
    cell = {"unscaled": (1999).to_bytes(2, "big"), "scale": 2}
    tax = {"unscaled": (-5).to_bytes(1, "big", signed=True), "scale": 1}
    writing = start(flush_size="1")
    writing.put([{"price": cell, "inner": {"tax": tax}, "list": [cell]}], schema, kind=kind)
    (row,) = writing.rows(writing.files()[0])
    assert row == {"price": Decimal("19.99"), "inner": {"tax": Decimal("-0.5")}, "list": [Decimal("19.99")]}


def test_keys_and_places_are_columns_where_the_settings_say_so(start: Any) -> None:
    writing = start(flush_size="2", metadata_columns="key,topic,partition,offset,timestamp,headers")
    writing.put(records(7, 2), first=7, keys=["a", "b"], times=[1, 2], topic="routed")
    (name,) = writing.files()
    assert name.startswith("routed/partition=0/t+0+")
    row = writing.rows(name)[0]
    assert (row["kafka_key"], row["kafka_topic"], row["kafka_offset"], row["kafka_headers"]) == ("a", "t", 7, [])
    assert row["kafka_timestamp"].timestamp() == 0.001


def test_lines_of_json_are_compressed_and_keep_what_has_no_schema_as_it_was(start: Any) -> None:
    values = [{"a": None, "b": [1, "x"]}, [1, 2], "text", 5]
    writing = start(flush_size="4", format_class="json", s3_compression_type="gzip")
    writing.put(schemaless(values), None)
    (name,) = writing.files()
    assert name.endswith("t+0+0000000000.json.gz")
    lines = gzip.decompress((writing.directory / "topics" / name).read_bytes()).splitlines()
    assert [json.loads(line) for line in lines] == values


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2"])
def test_avro_files_have_the_rows_and_types_of_the_schema(start: Any, codec: str) -> None:
    writing = start(flush_size="2", format_class="io.confluent.connect.s3.format.avro.AvroFormat", avro_codec=codec)
    writing.put([{"id": 1, "name": "a"}, {"id": 2, "name": None}])
    with (writing.directory / "topics" / writing.files()[0]).open("rb") as file:
        assert list(fastavro.reader(file)) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_csv_has_a_line_of_names_and_bytes_have_their_separator(start: Any, tmp_path: Path) -> None:
    writing = start(flush_size="2", format_class="csv")
    writing.put([{"id": 1, "name": 'a,"b'}, {"id": 2, "name": None}])
    text = (writing.directory / "topics" / writing.files()[0]).read_text()
    assert text == '"id","name"\n1,"a,""b"\n2,\n'
    raw = start(
        directory=tmp_path / "raw", flush_size="2", format_class="bytes", format_bytearray_separator="|\\n",
        format_bytearray_extension=".txt",
    )  # fmt: skip
    raw.put(["a", "b"], STRING_SCHEMA, kind=pa.string())
    (name,) = raw.files()
    assert name.endswith(".txt")
    assert (raw.directory / "topics" / name).read_bytes() == b"a|\nb|\n"
    for number, line_end in enumerate(({}, {"format_bytearray_separator": "\n"})):
        plain = start(directory=tmp_path / f"plain{number}", flush_size="2", format_class="bytes", **line_end)
        plain.put(["a", "b"], STRING_SCHEMA, kind=pa.string())
        assert (plain.directory / "topics" / plain.files()[0]).read_bytes() == b"a\nb\n"


def test_rows_of_one_message_are_never_in_two_generations(start: Any) -> None:
    writing = start(flush_size="2")
    writing.put(records(0, 3), offsets=[0, 1, 1], continued=True)
    assert writing.commit(1) == 0
    writing.put(records(3, 2), offsets=[1, 2])
    assert writing.rows(writing.files()[0]) == records(0, 4)
    assert writing.commit(3) == 2


def test_with_a_manifest_all_partitions_share_files_and_a_restart_goes_on_behind_the_last_commit(start: Any) -> None:
    there = TopicPartition("t", 1)
    writing = start(layout="manifest", flush_size="4", store_kafka_keys="true")
    writing.task.open([there])
    writing.put(records(0, 2), keys=["a", "b"])
    writing.put(records(0, 3), partition=1, keys=["c", "d", "e"])
    writing.put(records(2, 1), first=2, keys=["f"])
    assert writing.commit(3) == 2
    (name,) = [one for one in writing.files() if one.endswith(".parquet")]
    assert [row["id"] for row in writing.rows(name)] == [0, 1, 0, 1]
    assert [one.replace(".keys.avro", ".snappy.parquet") for one in writing.files() if "keys" in one] == [name]
    (manifest,) = (writing.directory / "topics/_manifests/s").iterdir()
    assert json.loads(manifest.read_text())["ranges"] == [
        {"topic": "t", "partition": 0, "from": 0, "to": 2},
        {"topic": "t", "partition": 1, "from": 0, "to": 2},
    ]
    again = Writing(writing.directory, layout="manifest")
    again.task.open([there])
    again.put(records(2, 2), first=2)
    again.commit(4, closing=True)
    assert len([one for one in again.files() if one.endswith(".parquet")]) == 2
    again.task.stop()
