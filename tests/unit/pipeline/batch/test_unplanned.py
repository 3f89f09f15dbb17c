"""A sink's messages of which a plan would change nothing: they pass Spark by their lengths, and are what they were."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.api import Converter, ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.primitives import BooleanConverter, ByteArrayConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import OPTIONAL_BYTES_SCHEMA, OPTIONAL_STRING_SCHEMA, Schema, SchemaBuilder, Type
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, SinkBatch
from penstock.pipeline.batch.groups import parted_by_plan, shape_unplanned
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan.chain import ShapeGroup, Staged
from penstock.pipeline.plan.frame_values import AsText, AsVariant
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.plan.step import NOTHING, RAW, RAW_TEXT, SCHEMALESS_TEXT, Shape, Side, Split, Step, StepPlan
from penstock.pipeline.spark.gate import Passage
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue

TEXT, BYTES = Side.of(OPTIONAL_STRING_SCHEMA), Side.of(OPTIONAL_BYTES_SCHEMA)
STRUCT = Side.of(SchemaBuilder.struct().field("n", Schema(Type.INT32)).build())


class Divides(Step):
    """Goes two ways."""

    def plan(self, shape: Shape) -> Split:
        return Split(())


class Refuses(Step):
    """Takes no record."""

    def plan(self, shape: Shape) -> StepPlan:
        raise ValueError("none")


def staged(*steps: Step) -> tuple[Staged, ...]:
    return tuple(Staged(one, "VALUE_CONVERTER", "x") for one in steps)


def configured(converter: Converter, is_key: bool = False, schemas: bool = False) -> Any:
    converter.configure({"schemas.enable": "true"} if schemas else {}, is_key)
    return converter


def inserting() -> Step:
    transform = InsertFieldValue()
    transform.configure({"static.field": "f", "static.value": "v"})
    return transform.step()


@pytest.mark.parametrize(
    ("steps", "given", "made"),
    [
        ((), STRUCT, STRUCT),
        ((StringConverter().reading("value", None),), TEXT, TEXT),
        ((StringConverter().reading("value", None),), RAW_TEXT, TEXT),
        ((ByteArrayConverter().reading("value", None),), RAW, BYTES),
        ((AsVariant(),), STRUCT, STRUCT),
        ((AsText("value"),), TEXT, SCHEMALESS_TEXT),
        ((StringConverter().reading("value", None), AsText("value")), TEXT, SCHEMALESS_TEXT),
        ((StringConverter().reading("value", None),), RAW, None),
        ((BooleanConverter().reading("value", None),), RAW, None),
        ((AsText("value"),), STRUCT, None),
        ((AsVariant(),), SCHEMALESS_TEXT, None),
        ((inserting(),), STRUCT, None),
        ((Divides(),), STRUCT, None),
        ((Refuses(),), STRUCT, None),
    ],
)
def test_which_steps_change_nothing(steps: tuple[Step, ...], given: Side, made: Side | None) -> None:
    found = shape_unplanned(staged(*steps), Shape(NOTHING, given, sink=True))
    assert found == (None if made is None else Shape(NOTHING, made, sink=True))


def test_groups_without_a_plan_come_out_as_they_are() -> None:
    column = pa.chunked_array([pa.array([b"a", None])])
    groups = [
        ShapeGroup(
            staged(ByteArrayConverter().reading("value", None)), Shape(NOTHING, RAW, sink=True), None, {"value": column}
        ),
        ShapeGroup(
            staged(BooleanConverter().reading("value", None)), Shape(NOTHING, RAW, sink=True), None, {"value": column}
        ),
    ]
    unplanned, planned = parted_by_plan(groups)
    assert planned == groups[1:]
    assert [one.shape.value for one in unplanned] == [BYTES]
    assert unplanned[0].columns["value"].equals(column)


class NoPlan(SparkJobs):
    """Jobs of which only the one that changes nothing is allowed; keeps what has passed."""

    def __init__(self) -> None:
        super().__init__(SparkRuntime({}))
        self.passed: list[pa.Table] = []

    def pass_by(self, messages: pa.Table) -> Passage:
        assert messages.column_names == ["key", "value"]
        self.passed.append(messages)
        return lambda *, patient=False: None

    def run(self, *_: Any, **__: Any) -> list[Any]:
        raise AssertionError("no plan is needed")


def consumed(keys: list[bytes | None], values: list[bytes | None]) -> pa.Table:
    rows = len(values)
    columns: dict[str, Any] = {
        "topic": ["t"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [None] * rows,
        "timestamp_type": [-1] * rows,
        "key": keys,
        "value": values,
        "headers": [None] * rows,
    }
    return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], CONSUMED_SCHEMA)


def run(spec: PipelineSpec, keys: list[bytes | None], values: list[bytes | None]) -> tuple[SinkBatch, list[pa.Table]]:
    jobs = NoPlan()
    made = SinkPipeline(SparkRuntime({}), spec, jobs).run(consumed(keys, values))
    return made, jobs.passed


ENVELOPE = b'{"schema":{"type":"struct","optional":false,"fields":[{"field":"n","type":"int32"}]},"payload":{"n":%d}}'


@pytest.mark.parametrize("form", [None, ValueForm.TEXT])
@pytest.mark.parametrize("keys", [[None] * 3, [b"k", None, "ü".encode()]])
def test_texts_come_out_and_pass_once(form: ValueForm | None, keys: list[bytes | None]) -> None:
    values = [b"a", None, "\U0001f600".encode()]
    header = SimpleHeaderConverter()
    spec = PipelineSpec(configured(StringConverter(), True), configured(StringConverter()), header, value_form=form)
    made, passed = run(spec, keys, values)
    assert not made.errors
    assert [one.column("value").to_pylist() for one in passed] == [values]
    texts = [None if one is None else one.decode() for one in values]
    if form is None:
        assert [one and (one.value, one.value_schema) for one in made.records or ()] == [
            (text, OPTIONAL_STRING_SCHEMA) for text in texts
        ]
        assert [one and one.key_schema for one in made.records or ()] == [OPTIONAL_STRING_SCHEMA] * 3
        assert [one and one.key for one in made.records or ()] == [one if one is None else one.decode() for one in keys]
    else:
        assert [text for frame in made.frames or () for text in frame.table.column("value").to_pylist()] == texts


def test_json_with_schemas_that_is_read_passes_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.plan.map_structs.MIN_ROWS", 1)
    json = configured(JsonConverter(), schemas=True)
    spec = PipelineSpec(configured(ByteArrayConverter(), True), json, SimpleHeaderConverter())
    made, passed = run(spec, [None] * 5, [ENVELOPE % number for number in range(5)])
    assert not made.errors
    values: list[Any] = [one and one.value for one in made.records or ()]
    assert [one.get("n") for one in values] == list(range(5))
    assert [one.column("value").to_pylist() for one in passed] == [[ENVELOPE % number for number in range(5)]]


def test_keys_without_a_schema_are_typed_columns_beside_texts_and_take_no_plan() -> None:
    json = JsonConverter()
    json.configure({"schemas.enable": "false"}, False)
    spec = PipelineSpec(json, json, SimpleHeaderConverter(), value_form=ValueForm.TEXT)
    keys = [b'{"id":1}', b'{"id":2,"at":null}', None, b"{", b'{"id":3}']
    made, passed = run(spec, keys, [b'{"a":1}', b"null", b"[2]", b"3", None])
    assert list(made.errors) == [3]
    assert made.errors[3].stage == "KEY_CONVERTER"
    (frame,) = made.frames or ()
    assert str(frame.table["key"].type) == "struct<id: int64, at: null>"
    assert frame.table["key"].to_pylist() == [{"id": 1, "at": None}, {"id": 2, "at": None}, None, {"id": 3, "at": None}]
    assert frame.table["value"].to_pylist() == ["{a=1}", None, "[2]", None]
    assert [one.column("key").to_pylist() for one in passed] == [keys], "keys pass a plan all the same"


@pytest.mark.parametrize(
    "batches",
    [
        [[b'{"a":1,"b":"x"}'] * 3],
        [[b'{"a":1,"b":"x"}', None, b'{"a":2,"b":null}'], [b'{"a":3,"b":"y"}'] * 2],
        [[b'{"a":1.5}', b'{"a":2,"c":[1]}'], [b'{"a":1}', b'{"a":7}'], [b'{"b":"z","a":0.5}'] * 2, [None, None]],
        [[b'{"a":null,"o":{"x":true}}'] * 2, [b'{"a":"t","o":{"x":null}}'] * 2, [b'{"o":{"y":1},"a":null}'] * 2],
        [[b'{"a":1}', b'{"a":2}'], [b'{"a":1}', b"text"], [b"{", b'{"a":3}']],
    ],
)
def test_frames_are_the_same_when_alike_objects_become_columns_at_once(
    batches: list[list[bytes | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.pipeline.plan.map_structs.MIN_ROWS", 2)
    told: list[list[Any]] = []
    for at_once in (True, False):
        json = JsonConverter()
        json.configure({"schemas.enable": "false"}, False)
        if not at_once:
            monkeypatch.setattr(json, "read_objects", lambda column: None)
        keys = configured(StringConverter(), True)
        spec = PipelineSpec(keys, json, SimpleHeaderConverter(), value_form=ValueForm.COLUMNS)
        pipeline = SinkPipeline(SparkRuntime({}), spec, NoPlan())
        told.append([])
        for values in batches:
            made = pipeline.run(consumed([None] * len(values), values))
            frames = made.frames or ()
            tables = [(one.table.schema, one.table.to_pylist(), one.value_schema) for one in frames]
            marks = [beside and beside.to_pylist() for beside in (one._marks_of("value") for one in frames)]
            told[-1].append((tables, marks, sorted(made.errors)))
    assert told[0] == told[1]
