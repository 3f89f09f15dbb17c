"""The command `bin/bench shapes`: its messages, the ways that it measures, and what it prints."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks.processes import thread_seconds
from benchmarks.shapes.command import chosen, row
from benchmarks.shapes.messages import FLAT, KILOBYTE, NESTED, SHAPES, Format, Shape
from benchmarks.shapes.plugins import FrameShapeTask, RecordShapeTask
from benchmarks.shapes.workers import Amounts, Figures, Way, kind_of
from testkit.processes.schema_registry import RegistryStandIn

from penstock.converters.json.converter import JsonConverter
from penstock.converters.registry.converters import AvroConverter
from penstock.data import Struct


def test_messages_hold_the_same_with_schemas_and_without() -> None:
    converter = JsonConverter()
    for shape in SHAPES:
        for (key, value), (typed_key, typed) in zip(
            shape.json(50, schemas=False), shape.json(50, schemas=True), strict=True
        ):
            assert json.loads(typed)["payload"] == json.loads(value)
            assert (key is None) is (typed_key is None) is not shape.keys
            assert isinstance(converter.to_connect_data("t", typed).value, Struct)


def test_messages_are_as_large_as_they_are_said_to_be() -> None:
    sizes = {shape.name: len(shape.json(1, schemas=False)[0][1]) for shape in SHAPES}

    assert 140 <= sizes[FLAT.name] <= 160
    assert 60 <= sizes[NESTED.name] <= 100
    assert 900 <= sizes[KILOBYTE.name] <= 1_100


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_avro_messages_hold_what_json_holds_and_tasks_give_the_same_again(shape: Shape, tmp_path: Path) -> None:
    file = tmp_path / "messages"
    typed = shape.json(20, schemas=True)
    file.write_bytes(b"".join(b"%b\t%b\n" % (key or b"", value) for key, value in typed))
    json_converter, avro = JsonConverter(), AvroConverter()
    with RegistryStandIn({}) as registry:
        avro.configure({"schema.registry.url": registry.url}, is_key=False)
        messages = shape.messages(Format.AVRO, 20, "t", registry.url)
        values = [avro.to_connect_data("t", value).value for _, value in messages]
        avro.close()
    records, frames = RecordShapeTask(), FrameShapeTask()
    for task in (records, frames):
        task.start({"file": str(file), "topic": "t"})

    expected = [json_converter.to_connect_data("t", value).value for _, value in typed]
    assert [str(value) for value in values] == [str(value) for value in expected]
    assert [record.value for record in records.poll()[:20]] == expected
    frame = frames.poll()
    assert isinstance(frame.data, pa.Table)
    assert frame.data.num_rows == 20
    assert ("key" in frame.data.column_names) is shape.keys


def test_ways_are_chosen_by_their_names() -> None:
    assert [len(ways) for ways in chosen("")] == [3, 2] * 9
    assert [way.name for ways in chosen("flat, JSON ->") for way in ways] == [
        "flat, JSON -> FileStreamSink",
        "flat, JSON -> record sink",
        "flat, JSON -> frame sink",
    ]
    assert [way.name for ways in chosen("task -> nested, Avro") for way in ways] == [
        "record task -> nested, Avro",
        "frame task -> nested, Avro",
    ]


def test_large_messages_count_for_several() -> None:
    amounts = Amounts(500_000, 200_000).of(KILOBYTE)

    assert (amounts.warm, amounts.counted) == (250_000, 100_000)
    assert amounts.whole(1_000, tasks=4) > amounts.warm + amounts.counted + 4 * 60_000


def test_threads_are_told_by_what_they_do() -> None:
    assert kind_of("convert-shape-1-", "interpreter") == "convert"
    assert kind_of("rdk:broker1", "interpreter") == "rdk"
    assert kind_of("C2 CompilerThre", "jvm") == "C2 CompilerThre"
    assert kind_of("GC Thread#1", "jvm") == "GC Thread"
    assert kind_of("task-thread-sha", "jvm") == "task"


def test_processor_time_is_found_for_each_thread() -> None:
    found = thread_seconds(os.getpid())

    mine = [key for key in found if key[1:3] == (os.getpid(), threading.get_native_id())]
    assert len(mine) == 1
    assert found[mine[0]] > 0


def test_a_row_has_java_beside_penstock_where_it_has_such_a_connector() -> None:
    way = Way(FLAT, Format.JSON, "record sink")
    ours = Figures("penstock", 50.0, {"interpreter": {"convert": 2.0, "fetch": 1.0}, "jvm": {"GC Thread": 1.0}})
    java = Figures("java", 100.0, {"jvm": {"task": 8.0}})

    assert row(way, [ours, java]) == "| flat, JSON -> record sink | 4.0 | 3.0 / 1.0 | 8.0 | 0.50 | 0.50 |"
    assert row(way, [ours]) == "| flat, JSON -> record sink | 4.0 | 3.0 / 1.0 |  |  |  |"
