"""The physical plans of the stock classes: what happens to a record there happens in the JVM."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from conformance.vectors.adapter import PipelineAdapter
from conformance.vectors.deviations import load_deviations
from conformance.vectors.model import Vector, Verdict, load_vectors
from conformance.vectors.runner import run_shuffled
from pyspark.sql import SparkSession

from penstock.api import Converter, HeaderConverter, Predicate, SourceFrame, Transformation, ValueForm
from penstock.data import Schema, SchemaBuilder, Type
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.step import ColumnConverter, ColumnPredicate, ColumnTransform
from penstock.pipeline.spark import prepared_plan as driver_calls
from penstock.pipeline.spark.prepared_plan import PreparedQuery
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind, Plugins
from penstock.plugins.stock import STOCK

pytestmark = [pytest.mark.java, pytest.mark.slow]

#: Stock classes whose plans may hold a Python node, with the reason.
PYTHON_NODES: Final[dict[str, str]] = {}
#: Stock classes that are no Spark columns at all, with the reason.
NOT_IN_A_PLAN: Final = {
    "SimpleHeaderConverter": "the schema of each header depends on its text; each distinct header is converted once",
    "AvroConverter": "Spark has no Avro without jars that the session does not have",
    "JsonSchemaConverter": "the schema of each message has to be fetched from the registry",
    "ProtobufConverter": "Spark has no Protobuf without jars that the session does not have",
}

VECTORS: Final = Path(__file__).parents[2] / "data" / "vectors"
#: How many configurations of a class are run for each kind of input; what transforms make of all kinds of values is in
#: ``test_columns_equal_records``.
CONFIGURATIONS: Final = 2
_OF_TRANSFORMS: Final = 1
_PYTHON_NODE: Final = re.compile(r"^[\s:+\-*()\d]*(\w*(?:Python|Pandas|InArrow|PyArrow)\w*)", re.MULTILINE)


def python_nodes(plan: str) -> list[str]:
    """The names of nodes that hand rows to Python."""
    return _PYTHON_NODE.findall(plan)


class Plans:
    """The physical plans that were made since ``of`` was set, by class."""

    def __init__(self) -> None:
        self.of = ""
        self.texts: dict[str, list[str]] = {}

    def note(self, java: Any) -> None:
        """Keeps the plan of a frame."""
        self.texts.setdefault(self.of, []).append(java.queryExecution().executedPlan().toString())


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    """All plans that are run."""
    seen = Plans()
    serve, count = driver_calls._serve, PreparedQuery.count

    def noted(java: Any) -> Any:
        seen.note(java)
        return serve(java)

    def counted(query: PreparedQuery) -> int:
        seen.note(query.java)
        return count(query)

    monkeypatch.setattr(driver_calls, "_serve", noted)
    monkeypatch.setattr(PreparedQuery, "count", counted)
    return seen


def column_classes() -> Iterator[tuple[str, type]]:
    """The stock classes that are columns, by the name that vectors have for them.

    One that is both a converter and a header converter comes once.
    """
    for descriptor in {one.target: one for one in STOCK}.values():
        module, _, name = descriptor.target.partition(":")
        found = getattr(importlib.import_module(module), name) if name else None
        if found is None or not issubclass(found, (Converter, HeaderConverter, Transformation, Predicate)):
            continue
        yield descriptor.name.rpartition(".")[2], found


def chosen(vectors: Sequence[Vector]) -> list[Vector]:
    """Some configurations of every kind of input: typed and schemaless, of sources and of sinks."""
    setups: dict[tuple[object, ...], set[tuple[str, str, str]]] = {}
    for vector in vectors:
        if not isinstance(vector.input, dict) or (vector.error or {}).get("phase") == "configure":
            continue
        record = vector.input.get("record", vector.input)
        typed = any(record.get(name) is not None for name in ("schema", "valueSchema", "keySchema"))
        is_transform = vector.kind == "transform"
        # A transform has one step for both directions.
        direction = None if is_transform else record.get("recordType")
        known = setups.setdefault((vector.kind, direction, typed, vector.input.get("isKey")), set())
        if len(known) < (_OF_TRANSFORMS if is_transform else CONFIGURATIONS):
            known.add(vector.setup)
    wanted = {setup for known in setups.values() for setup in known}
    return [vector for vector in vectors if vector.setup in wanted and isinstance(vector.input, dict)]


def test_a_python_node_is_found_in_a_plan_that_has_one(spark_runtime: SparkRuntime) -> None:
    session = spark_runtime.session(180)
    frame = session.range(3).mapInArrow(lambda batches: batches, "id long")
    plain = session.createDataFrame(pa.table({"MapInArrow": ["Python"]})).selectExpr("MapInArrow || 'ArrowEvalPython'")

    assert python_nodes(cast("Any", frame)._jdf.queryExecution().executedPlan().toString())
    assert python_nodes(cast("Any", plain)._jdf.queryExecution().executedPlan().toString()) == []


@pytest.mark.timeout(1200)
def test_no_plan_of_a_stock_class_runs_python(spark_runtime: SparkRuntime, plans: Plans) -> None:
    adapter = PipelineAdapter(spark_runtime, Plugins.discover())
    recorded = [vector for path in sorted(VECTORS.glob("*.jsonl")) for vector in load_vectors(path)]
    missing: list[str] = []
    verdicts: list[Verdict] = []
    for name, found in column_classes():
        if not issubclass(found, (ColumnConverter, ColumnTransform, ColumnPredicate)):
            assert name in NOT_IN_A_PLAN, f"{name} is no Spark column: give the reason in NOT_IN_A_PLAN"
            continue
        plans.of = name
        own = [vector for vector in recorded if vector.cls == name and vector.kind != "header"]
        run_shuffled(chosen(own), adapter, rows=100, seen=verdicts.append)
        if name not in plans.texts:
            missing.append(name)
    assert missing == [], "no plan was seen"
    # `python -m conformance.vectors --shuffled` does so with every vector, in batches of 5,000.
    failed = [one for one in verdicts if not one.passed and not any(rule.covers(one) for rule in load_deviations())]
    assert [f"{one.vector.id}: {one.reason}" for one in failed] == []
    with_python = {name for name, texts in plans.texts.items() if any(map(python_nodes, texts))}
    assert with_python == set(PYTHON_NODES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", sorted({name for name, found in column_classes() if issubclass(found, ColumnConverter)})
)
def test_no_plan_of_a_frame_runs_python(name: str, spark_runtime: SparkRuntime, plans: Plans) -> None:
    frames = frames_for(name, spark_runtime)
    spec = spec_of(name)
    source = SourcePipeline(spark_runtime, spec)
    written = [source.run(frame) for frame in frames]
    messages = [one.table.column("value").combine_chunks() for one in written]
    for form in ValueForm:
        sink = SinkPipeline(spark_runtime, spec_of(name, form))
        for message in messages:
            sink.run(consumed(message))

    assert len(plans.texts[""]) >= 2 * len(frames)
    assert [node for text in plans.texts[""] for node in python_nodes(text)] == []


def frames_for(name: str, runtime: SparkRuntime) -> list[SourceFrame]:
    """Frames that a converter takes: Arrow tables, Spark DataFrames and what makes them, typed and schemaless."""
    numbers = {"ShortConverter": (Type.INT16, pa.int16()), "IntegerConverter": (Type.INT32, pa.int32())}
    numbers |= {"LongConverter": (Type.INT64, pa.int64()), "FloatConverter": (Type.FLOAT32, pa.float32())}
    numbers |= {"DoubleConverter": (Type.FLOAT64, pa.float64()), "BooleanConverter": (Type.BOOLEAN, pa.bool_())}
    kind, arrow = numbers.get(name, (Type.STRING, pa.string()))
    numeric = [None, True, False] if name == "BooleanConverter" else [None, 1, 0]
    values = pa.array(numeric, arrow) if name in numbers else pa.array(["a", None, '{"a": 1}'], arrow)
    if name == "ByteArrayConverter":
        kind, values = Type.BYTES, values.cast(pa.binary())
    schemas: list[Schema | None] = [Schema(kind, optional=True), None]
    tables = [(pa.table({"value": values}), schema) for schema in schemas]
    if name in ("JsonConverter", "StringConverter"):
        struct = SchemaBuilder.struct().optional().field("a", Schema(Type.INT64, optional=True)).build()
        tables.append((pa.table({"value": pa.array([{"a": 1}, {"a": None}])}), struct))
    made: list[SourceFrame] = []
    for table, schema in tables:
        for data in (
            table,
            runtime.session().createDataFrame(table),
            partial(SparkSession.createDataFrame, data=table),
        ):
            made.append(SourceFrame(data, "plans", schema, {}, {}))
    return made


def spec_of(name: str, form: ValueForm | None = None, transforms: Sequence[TransformStage] = ()) -> PipelineSpec:
    """A pipeline with that value converter."""
    plugins = Plugins.discover()
    key = cast("Converter", plugins.new(PluginKind.CONVERTER, "StringConverter"))
    value = cast("Converter", plugins.new(PluginKind.CONVERTER, name))
    header = cast("HeaderConverter", plugins.new(PluginKind.HEADER_CONVERTER, "SimpleHeaderConverter"))
    key.configure({}, True)
    value.configure({}, False)
    header.configure({})
    return PipelineSpec(key, value, header, transforms, "plans", 0, form)


def consumed(values: pa.Array) -> pa.Table:
    """What a consumer would have fetched."""
    rows = len(values)
    columns = {
        "topic": pa.repeat("plans", rows),
        "partition": pa.array([0] * rows),
        "offset": pa.array(range(rows)),
        "timestamp": pa.array([5] * rows),
        "timestamp_type": pa.array([0] * rows),
        "key": pa.nulls(rows),
        "value": values,
        "headers": pa.nulls(rows),
    }
    return pa.table({field.name: columns[field.name].cast(field.type) for field in CONSUMED_SCHEMA})
