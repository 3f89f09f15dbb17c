"""A source's records and frames, whose converter writes many of them at once: each has the bytes that it has alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from testkit.doubles.chains import configured, stages
from testkit.processes.schema_registry import RegistryStandIn

from penstock.api import SourceFrame, SourceRecord
from penstock.converters.json.converter import JsonConverter
from penstock.converters.registry.converters import AvroConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT32_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder, Struct
from penstock.pipeline.batch import row_path as row_road
from penstock.pipeline.batch.batches import PipelineSpec, ProduceBatch, Why
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.batch.transfer import ShippedRecords
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.plan.chain import GroupOutcome, ShapeGroup
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Passage
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue

VALUES = SchemaBuilder.struct().name("app.V").field("n", INT32_SCHEMA).field("s", OPTIONAL_STRING_SCHEMA).build()
OTHERS = SchemaBuilder.struct().name("app.O").optional().field("s", STRING_SCHEMA).build()
Roads = Mapping[Why | None, int]


class NoSpark(SparkJobs):
    """Jobs of which only the one that changes nothing is allowed; counts its rows."""

    def __init__(self) -> None:
        super().__init__(SparkRuntime({}))
        self.passed = 0

    def pass_by(self, messages: pa.Table) -> Passage:
        assert messages.column_names == ["key", "value"]
        self.passed += messages.num_rows
        return lambda *, patient=False: None

    def run(self, *_: Any, **__: Any) -> list[Any]:
        raise AssertionError("no plan is needed")


class Planned(NoSpark):
    """A plan that drops every fifth row, and sends the others to two other topics."""

    def run(self, groups: Sequence[ShapeGroup], shared: Any, rows: int, *, apart: bool) -> list[Any]:
        assert apart, "what comes of it is no bytes yet"
        found: list[GroupOutcome] = []
        for group in groups:
            mine = np.arange(rows) if group.rows is None else group.rows
            topics = pa.chunked_array([[f"x{row % 3 and 1}" for row in mine.tolist()]])
            dropped = pa.chunked_array([[row % 5 == 1 for row in mine.tolist()]])
            columns = {name: pa.chunked_array([column]) for name, column in group.columns.items()}
            found.append(GroupOutcome(group.rows, group.shape, {**columns, "topic": topics}, None, dropped, {}))
        return found


@pytest.fixture
def registry() -> Iterator[RegistryStandIn]:
    stand_in = RegistryStandIn()
    yield stand_in
    stand_in.stop()


def run(
    registry: RegistryStandIn,
    batch: Sequence[SourceRecord] | SourceFrame,
    monkeypatch: pytest.MonkeyPatch,
    *,
    at_once: bool,
    avro_keys: bool = False,
    jobs: NoSpark | None = None,
) -> tuple[ProduceBatch, Roads, int]:
    monkeypatch.setattr(row_road, "MIN_AT_ONCE", 1 if at_once else 10**9)
    sides = []
    for is_key in (True, False):
        made = AvroConverter() if avro_keys or not is_key else StringConverter()
        made.configure({"schema.registry.url": registry.url} if isinstance(made, AvroConverter) else {}, is_key)
        sides.append(made)
    insert = configured(InsertFieldValue(), {"static.field": "f", "static.value": "v"})
    transforms = [] if jobs is None else stages(insert)
    jobs, roads = jobs or NoSpark(), cast("list[Roads]", [])
    spec = PipelineSpec(sides[0], sides[1], SimpleHeaderConverter(), transforms)
    pipeline = SourcePipeline(SparkRuntime({}), spec, jobs, roads.append)
    found = pipeline.run(batch)
    for one in sides:
        one.close()
    return found, roads[0], jobs.passed


def record(topic: str, schema: Schema | None, value: object, key: object = None) -> SourceRecord:
    keys = None if key is None else VALUES
    return SourceRecord({"p": 1}, {"o": 1}, topic, None, keys, key, schema, value)


def told(batch: ProduceBatch) -> Mapping[int, tuple[str, str, str, str | None]]:
    return {
        row: (one.stage, one.executing_class, one.exception_class, one.message) for row, one in batch.errors.items()
    }


def mixed() -> list[SourceRecord]:
    good = [Struct.unchecked(VALUES, [number, None if number % 3 else f"s{number}"]) for number in range(40)]
    others = [Struct.unchecked(OTHERS, [f"o{number}"]) for number in range(10)]
    return [
        *(record(f"t{number % 2}", VALUES, one, good[-1 - number]) for number, one in enumerate(good)),
        record("t0", VALUES, Struct.unchecked(VALUES, ["one", None])),
        record("t0", VALUES, Struct.unchecked(VALUES, [1 << 31, None])),
        record("t0", VALUES, None),
        *(record("t2", OTHERS, one) for one in others),
        record("t2", OTHERS, None),
        record("t2", OTHERS, good[0]),
        record("t0", None, None),
        record("t0", None, {"any": 1}),
        *(record("t1", VALUES, one, Struct.unchecked(VALUES, [None, "x"])) for one in good[:2]),
        *(record("t1", VALUES, one) for one in good),
    ]


@pytest.mark.parametrize("avro_keys", [True, False])
def test_records_have_the_bytes_and_errors_that_they_have_alone(
    registry: RegistryStandIn, monkeypatch: pytest.MonkeyPatch, avro_keys: bool
) -> None:
    records = mixed() if avro_keys else [one.new_record(key_schema=None, key=None) for one in mixed()]
    alone, one_by_one, _ = run(registry, records, monkeypatch, at_once=False, avro_keys=avro_keys)
    made, roads, passed = run(registry, records, monkeypatch, at_once=True, avro_keys=avro_keys)
    assert made.table.equals(alone.table)
    assert told(made) == told(alone)
    assert made.errors
    assert passed == len(records)
    assert one_by_one == {Why.ONE_BY_ONE: len(records)}
    # Those that are wrong, and what has no schema; a null of an optional schema is a tombstone.
    assert roads[Why.ONE_BY_ONE] == 6 + 2 * avro_keys
    assert roads[None] == len(records) - roads[Why.ONE_BY_ONE]


def frame_of(values: Sequence[object], **columns: Any) -> SourceFrame:
    column, errors, _ = to_arrow(values, VALUES)
    assert not errors
    table = pa.table({"value": column, **columns})
    topic = None if "topic" in columns else "t"
    return SourceFrame(table, source_partition={"p": 1}, source_offset={"o": 1}, topic=topic, value_schema=VALUES)


def test_frames_have_the_bytes_of_their_records(registry: RegistryStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [Struct.unchecked(VALUES, [number, None if number % 3 else f"s{number}"]) for number in range(40)]
    values[7] = Struct.unchecked(VALUES, [None, "x"])
    topics = [f"t{number % 2}" for number in range(40)]
    timestamps = pa.array([1_000 + row for row in range(40)], pa.int64())
    for topic, extra in (("t", {"timestamp": timestamps}), (None, {"topic": pa.array(topics)})):
        records = [record(topic or topics[row], VALUES, value) for row, value in enumerate(values)]
        expected, _, _ = run(registry, records, monkeypatch, at_once=False)
        made, roads, passed = run(registry, frame_of(values, **extra), monkeypatch, at_once=True)
        assert made.table.column("value").to_pylist() == expected.table.column("value").to_pylist()
        assert told(made) == told(expected)
        assert list(made.errors) == [7]
        assert roads[Why.ONE_BY_ONE] == (1 if topic else 40)
        assert passed == 40
        if topic:
            assert made.table.column("timestamp").to_pylist() == timestamps.to_pylist()


@pytest.mark.parametrize("framed", [False, True])
def test_columns_behind_transforms_have_the_bytes_of_their_records(
    registry: RegistryStandIn, monkeypatch: pytest.MonkeyPatch, framed: bool
) -> None:
    values = [Struct.unchecked(VALUES, [number, None if number % 3 else f"s{number}"]) for number in range(60)]
    records = [record("t", VALUES, one, values[-1 - row]) for row, one in enumerate(values)]
    batch: Any = [*records, record("t", None, None), record("t", None, {"any": 1})]
    if framed:
        keys, _, _ = to_arrow(values[::-1], VALUES)
        batch = replace(frame_of(values, key=keys), key_schema=VALUES)
    alone, _, _ = run(registry, batch, monkeypatch, at_once=False, avro_keys=True, jobs=Planned())
    made_of: list[int] = []

    def no_records(part: ShippedRecords) -> list[object]:
        made_of.append(len(part))
        return []

    monkeypatch.setattr(ShippedRecords, "records", no_records)

    made, roads, _ = run(registry, batch, monkeypatch, at_once=True, avro_keys=True, jobs=Planned())

    assert made.table.equals(alone.table)
    assert told(made) == told(alone)
    assert not made_of, "no Struct is made of a column"
    assert set(made.table.column("topic").to_pylist()[:60]) == {"x0", "x1", None}
    assert made.table.column("dropped").to_pylist()[:60] == [row % 5 == 1 for row in range(60)]
    assert made.table.column("value").null_count == 12 + (0 if framed else 1)
    assert roads[Why.ONE_BY_ONE if not framed else None]


class PlanNeeded(Exception):
    """The plan would write the frame."""


class OnePlan(NoSpark):
    def run(self, *_: Any, **__: Any) -> list[Any]:
        raise PlanNeeded

    def through(self, table: pa.Table) -> pa.Table:
        raise AssertionError("it is written by the plan")


def json_frame(keys: pa.Array, values: pa.Array, *, never: bool = False) -> tuple[ProduceBatch, int]:
    sides = []
    for is_key in (True, False):
        sides.append(JsonConverter())
        sides[-1].configure({"schemas.enable": "false"}, is_key)
    header = SimpleHeaderConverter()
    header.configure({})
    jobs = OnePlan()
    spec = PipelineSpec(sides[0], sides[1], header, nothing_beside_spark=never)
    schema = SchemaBuilder.struct().field("n", INT32_SCHEMA).build()
    frame = SourceFrame(
        pa.table({"key": keys, "value": values}), "t", schema, {}, {}, key_schema=OPTIONAL_STRING_SCHEMA
    )
    return SourcePipeline(cast("Any", None), spec, jobs).run(frame), jobs.passed


KEYS = pa.array(["a", None, 'b"'])


def test_a_frame_is_json_without_a_plan_and_passes_spark_once() -> None:
    made, passed = json_frame(KEYS, pa.array([{"n": 1}, {"n": 2}, {"n": -3}]))
    assert made.table.column("key").to_pylist() == [b'"a"', b"null", b'"b\\""']
    assert made.table.column("value").to_pylist() == [b'{"n":1}', b'{"n":2}', b'{"n":-3}']
    assert not made.errors
    assert passed == 3


@pytest.mark.parametrize(
    ("values", "never"), [([{"n": 1}, {"n": 2}, {"n": 3}], True), ([{"n": 1}, None, {"n": 3}], False)]
)
def test_the_plan_writes_a_frame_where_nothing_may_go_around_it_or_a_value_cannot_be_written(
    values: list[object], never: bool
) -> None:
    with pytest.raises(PlanNeeded):
        json_frame(KEYS, pa.array(values), never=never)


class Refusing(NoSpark):
    """Plans are counted, and fail."""

    def run(self, groups: Sequence[ShapeGroup], *_: Any, **__: Any) -> list[Any]:
        raise LookupError(sum(group.size(0) for group in groups))


def json_run(records: Sequence[SourceRecord], jobs: NoSpark, *, schemas: bool) -> ProduceBatch:
    sides = [JsonConverter(), JsonConverter()]
    for side in sides:
        side.configure({"schemas.enable": str(schemas).lower()}, side is sides[0])
    spec = PipelineSpec(sides[0], sides[1], SimpleHeaderConverter())
    return SourcePipeline(SparkRuntime({}), spec, jobs).run(records)


@pytest.mark.parametrize("schemas", [False, True])
def test_records_are_json_without_a_plan(schemas: bool) -> None:
    numbers = [Struct.unchecked(VALUES, [number, None if number % 3 else f"\u00e9\n{number}"]) for number in range(40)]
    records = [
        *(record(f"t{number % 2}", VALUES, one, numbers[-1 - number]) for number, one in enumerate(numbers)),
        *(record("t2", OTHERS, Struct.unchecked(OTHERS, [f"o{number}"])) for number in range(10)),
        record("t2", OTHERS, None),
        *(SourceRecord({}, {}, "t3", None, STRING_SCHEMA, f"k{number}", INT32_SCHEMA, number) for number in range(9)),
        record("t0", None, None),
    ]
    jobs = NoSpark()

    made = json_run(records, jobs, schemas=schemas)

    converter = JsonConverter()
    converter.configure({"schemas.enable": str(schemas).lower()}, False)
    for side in ("key", "value"):
        expected = [
            converter.from_connect_data(one.topic, getattr(one, f"{side}_schema"), getattr(one, side))
            for one in records
        ]
        assert made.table.column(side).to_pylist() == expected
    assert made.table.column("topic").to_pylist() == [one.topic for one in records]
    assert not made.errors
    assert jobs.passed == len(records) - 1


def test_records_that_are_not_written_without_a_plan_go_through_one() -> None:
    good = [record("t0", VALUES, Struct.unchecked(VALUES, [number, "x"])) for number in range(5)]
    bad = [record("t1", OTHERS, Struct.unchecked(OTHERS, [None])) for _ in range(3)]
    with pytest.raises(LookupError) as planned:
        json_run([*good, *bad], Refusing(), schemas=False)
    assert planned.value.args == (3,), "the others need none"
