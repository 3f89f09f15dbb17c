"""A frame's columns become the bytes that records with the same values become, or the task fails and says why.

Every Arrow type and every Spark type, as it is and nested, under schemas and without, through JSON (with and without
schemas) and text; what is compared with is a record task's records with the Python objects of ``frame_cases``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal as Number
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd
import pyarrow as pa
import pytest
from examples.prices_source import PRICE
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from tests.real.pipeline.frame_cases import (
    DATE,
    FINE,
    INSTANTS,
    LEAVES,
    NESTINGS,
    SPARK_LEAVES,
    TIME,
    TIMESTAMP,
    Case,
    decimal,
    of,
    repeated,
    together,
)

from penstock.api import SourceFrame, SourceRecord, Transformation, ValueForm
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import (
    CONSUMED_SCHEMA,
    PipelineSpec,
    ProduceBatch,
    TransformStage,
)
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.frame_input import in_arrow
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan import jobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.plugins.kinds import PluginKind
from penstock.transforms.extraction import HoistFieldValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
#: At least so many combinations of type, schema and converter are tried.
COMBINATIONS = 650
CONVERTERS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "json": (JsonConverter, {"schemas.enable": "false"}),
    "json with schemas": (JsonConverter, {"schemas.enable": "true"}),
    "text": (StringConverter, {}),
}


class Same(Transformation):
    """A user's transform, in front of which frames become records."""

    def configure(self, props: object) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R:
        return record


def converters(name: str) -> tuple[Any, Any, Any]:
    """Those of keys, values and headers."""
    make, settings = CONVERTERS[name]
    key, value, header = JsonConverter(), make(), SimpleHeaderConverter()
    key.configure({"schemas.enable": "false"}, True)
    value.configure(settings, False)
    header.configure({})
    return key, value, header


def pipeline(runtime: SparkRuntime, converter: str, *transforms: Any) -> SourcePipeline:
    stages = [TransformStage("t", one, None) for one in transforms]
    return SourcePipeline(runtime, PipelineSpec(*converters(converter), stages))


@pytest.fixture(scope="module")
def session(spark_runtime: SparkRuntime) -> Iterator[SparkSession]:
    found = spark_runtime.session(120.0)
    found.conf.set("spark.sql.timeType.enabled", "true")
    yield found
    found.conf.unset("spark.sql.timeType.enabled")


@pytest.fixture(scope="module", autouse=True)
def each_job_once() -> Iterator[None]:
    """Runs no job a second time: columns of many types are the same ones once they are cast, and a job is a pure
    function of its plan and its rows.
    """
    run = jobs._executed
    known: dict[tuple[int, bytes], tuple[object, pa.Table]] = {}

    def once(session: SparkSession, rows: pa.Table, plan: Any, prepared: Any) -> pa.Table:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows)
        key = id(plan), out.getvalue().to_pybytes()
        if key not in known:
            # With the plan, whose id is not given to another one then.
            known[key] = plan, run(session, rows, plan, prepared)
        return known[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_executed", once)
        yield


def written(made: ProduceBatch) -> list[tuple[Any, object]]:
    """Each row's value, or why it has none."""
    rows = made.table.column("value").to_pylist()
    errors = {row: (one.exception_class, one.message) for row, one in made.errors.items()}
    return [(one, errors.get(row)) for row, one in enumerate(rows)]


def in_any_order(rows: list[tuple[Any, object]]) -> list[tuple[Any, object]]:
    """The same, with the bytes of each value sorted."""
    return [(sorted(value) if value else value, error) for value, error in rows]


def records(values: list[Any], schema: Schema | None) -> list[SourceRecord]:
    return [SourceRecord(None, None, "t", value, value_schema=schema) for value in values]


def frame(data: Any, schema: Schema | None) -> SourceFrame:
    return in_arrow(SourceFrame(data, "t", schema, {}, {}))


def table(case: Case) -> pa.Table:
    return pa.table({"value": case.array()})


def dataframe(session: SparkSession, case: Case) -> Any:
    kind = T.StructType([T.StructField("value", case.kind)])
    return session.createDataFrame([(cell,) for cell in case.cells], kind)


#: What records have become, by pipeline, schema and values: columns of many types stand for the same ones.
BECAME: WeakKeyDictionary[SourcePipeline, dict[tuple[Schema | None, str], list[tuple[Any, object]]]]
BECAME = WeakKeyDictionary()


def became(pipe: SourcePipeline, values: list[Any], schema: Schema | None) -> list[tuple[Any, object]]:
    """What records become; each only once."""
    known = BECAME.setdefault(pipe, {})
    key = schema, repr(values)
    if key not in known:
        known[key] = written(pipe.run(records(values, schema)))
    return known[key]


def difference(pipe: SourcePipeline, data: Any, case: Case, *, typed: bool, unordered: bool = False) -> str | None:
    """How what a frame and records become differs; None = it does not."""
    schema, values = (case.schema, case.values) if typed else (None, case.plain)
    wanted, got = became(pipe, values, schema), written(pipe.run(frame(data, schema)))
    if unordered:
        wanted, got = in_any_order(wanted), in_any_order(got)
    return None if got == wanted else f"{case} {'typed' if typed else 'schemaless'}: {got} is not {wanted}"


Combination = tuple[Case, str, bool]


def alone(leaves: list[Case]) -> Iterator[Combination]:
    """Each type as the value: with each of its schemas, and once without."""
    seen: set[str] = set()
    for place, leaf in enumerate(leaves):
        yield leaf, "json with schemas", True
        if (cells := f"{leaf.kind} {leaf.cells}") not in seen:
            seen.add(cells)
            yield leaf, "text", False
        if isinstance(leaf.kind, pa.DataType):
            yield leaf, ("json", "text")[place % 2], True


def nested(leaves: list[Case]) -> Iterator[Combination]:
    """Each type in one kind of nesting, with a schema and without."""
    for place, leaf in enumerate(leaves):
        if isinstance(leaf.kind, pa.DataType) and pa.types.is_run_end_encoded(leaf.kind):
            continue  # Arrow makes no nested ones.
        inside = NESTINGS[NESTED[place % len(NESTED)]](leaf)
        yield inside, "json with schemas", True
        yield inside, ("json", "text")[place % 2], False


def in_few_plans(combinations: Iterator[Combination]) -> Iterator[Combination]:
    """The same, those of a converter as the fields of structs: Spark plans each table anew."""
    of_converter = defaultdict[tuple[str, bool], list[Case]](list)
    for one, converter, typed in combinations:
        of_converter[converter, typed].append(one)
    for (converter, typed), cases in of_converter.items():
        for batch in batched(cases, 8):
            yield together(batch), converter, typed


def batched(cases: list[Case], size: int) -> Iterator[list[Case]]:
    return (cases[at : at + size] for at in range(0, len(cases), size))


NESTED = ("list of structs", "map", "struct", "list")
ARROW = [*alone(LEAVES), *in_few_plans(nested(LEAVES))]
# They are Arrow's columns when they are collected, so that none has a plan of its own.
SPARK = [*in_few_plans(alone(SPARK_LEAVES)), *in_few_plans(nested(SPARK_LEAVES))]


def test_enough_is_tried() -> None:
    tried = [one for leaves in (LEAVES, SPARK_LEAVES) for one in (*alone(leaves), *nested(leaves))]
    assert len(tried) >= COMBINATIONS


@pytest.mark.timeout(1500)
def test_arrow_columns_become_what_records_become(spark_runtime: SparkRuntime) -> None:
    pipes = {name: pipeline(spark_runtime, name) for name in CONVERTERS}
    found = [difference(pipes[name], table(case), case, typed=typed) for case, name, typed in ARROW]

    assert [one for one in found if one] == []


@pytest.mark.timeout(1500)
def test_spark_columns_become_what_records_become(spark_runtime: SparkRuntime, session: SparkSession) -> None:
    pipes = {name: pipeline(spark_runtime, name) for name in CONVERTERS}
    found = [
        # Spark has the members of schemaless objects by name in places; they have no order.
        difference(pipes[name], dataframe(session, case), case, typed=typed, unordered=not typed)
        for case, name, typed in SPARK
    ]

    assert [one for one in found if one] == []


@pytest.mark.parametrize("transform", [Same, HoistFieldValue])
def test_frames_before_transforms_become_what_records_become(
    transform: Any, spark_runtime: SparkRuntime, session: SparkSession
) -> None:
    made = transform()
    made.configure({"field": "f"})
    pipe = pipeline(spark_runtime, "json with schemas", made)
    found = [difference(pipe, table(case), case, typed=True) for case in LEAVES[::3]]
    found += [difference(pipe, dataframe(session, case), case, typed=True) for case in SPARK_LEAVES[::4]]

    assert [one for one in found if one] == []


@pytest.mark.parametrize("at", range(4))
def test_large_batches_become_what_records_become(at: int, spark_runtime: SparkRuntime) -> None:
    temporal = [one for one in LEAVES if one.schema in (TIMESTAMP, DATE, TIME) and len(one.cells) == 3]
    case = repeated(temporal[at * 5 % len(temporal)], 2000)
    pipe = pipeline(spark_runtime, "json")

    assert difference(pipe, table(case).combine_chunks(), case, typed=True) is None
    chunks = pa.concat_tables([table(repeated(case, 1)).slice(1), table(case).slice(0, 1)])
    turned = Case(case.kind, [], case.schema, [*case.values[1:], case.values[0]], [])
    assert difference(pipe, chunks, turned, typed=True) is None


@pytest.mark.parametrize(
    ("converter", "kind", "arrow"),
    [
        ("ShortConverter", Type.INT16, pa.int64()),
        ("IntegerConverter", Type.INT32, pa.uint8()),
        ("LongConverter", Type.INT64, pa.int8()),
        ("FloatConverter", Type.FLOAT32, pa.float64()),
        ("DoubleConverter", Type.FLOAT64, pa.int32()),
    ],
)
@pytest.mark.parametrize("typed", [True, False])
def test_converters_of_numbers(
    converter: str, kind: Type, arrow: pa.DataType, typed: bool, spark_runtime: SparkRuntime
) -> None:
    key, _, header = converters("json")
    value: Any = Plugins.discover().new(PluginKind.CONVERTER, converter)
    value.configure({}, False)
    pipe = SourcePipeline(spark_runtime, PipelineSpec(key, value, header))
    numbers: list[Any] = [1, None, 7]
    as_kind = (
        [None if one is None else float(one) for one in numbers] if kind in (Type.FLOAT32, Type.FLOAT64) else numbers
    )
    plain = pa.array(numbers, arrow).to_pylist()

    assert (
        difference(
            pipe, pa.table({"value": pa.array(numbers, arrow)}), Case(arrow, [], of(kind), as_kind, plain), typed=typed
        )
        is None
    )


# ------------------------------------------------------------------------------------------------------------ refused
STRUCT = SchemaBuilder.struct().field("a", of(Type.INT64)).build()
REFUSED: list[tuple[Any, list[Any], Schema | None]] = [
    (pa.string(), ["1"], of(Type.INT64)),
    (pa.int64(), [1], of(Type.STRING)),
    (pa.bool_(), [True], of(Type.INT8)),
    (pa.int64(), [1], of(Type.BOOLEAN)),
    (pa.string(), ["a"], of(Type.BYTES)),
    (pa.binary(), [b"a"], of(Type.STRING)),
    (pa.float64(), [1.5], of(Type.INT64)),
    (pa.float64(), [float("nan")], of(Type.INT64)),
    (pa.int64(), [128], of(Type.INT8)),
    (pa.uint64(), [2**63], of(Type.INT64)),
    (pa.uint64(), [2**63], None),
    (pa.int64(), [2**53 + 1], of(Type.FLOAT64)),
    (pa.decimal128(5, 2), [Number("1.55")], decimal(1)),
    (pa.float64(), [1.5], decimal(1)),
    (pa.decimal128(5, 0), [Number(1)], of(Type.INT64)),
    (pa.string(), ["2026-01-01"], DATE),
    (pa.timestamp("us"), [NOON.replace(tzinfo=None)], DATE),
    (pa.timestamp("us", "Europe/Berlin"), [INSTANTS[0]], DATE),
    (pa.date32(), [dt.date(2026, 1, 1)], TIME),
    (pa.int64(), [2**31], TIME),
    (pa.timestamp("s"), [2**62], TIMESTAMP),
    (pa.timestamp("s"), [2**40], None),
    (pa.duration("us"), [1], of(Type.INT64)),
    (pa.duration("us"), [1], None),
    (pa.month_day_nano_interval(), [(1, 2, 3)], None),
    (pa.list_(pa.string()), [["1"]], SchemaBuilder.array(of(Type.INT64)).build()),
    (pa.int64(), [1], SchemaBuilder.array(of(Type.INT64)).build()),
    (pa.struct([("a", pa.string())]), [{"a": "x"}], STRUCT),
    (pa.struct([("b", pa.int64())]), [{"b": 1}], STRUCT),
    (pa.map_(pa.string(), pa.string()), [[("k", "x")]], SchemaBuilder.map(of(Type.STRING), of(Type.INT8)).build()),
]


@pytest.mark.parametrize(("kind", "cells", "schema"), REFUSED, ids=str)
def test_what_a_schema_cannot_hold_is_refused_by_name(
    kind: Any, cells: list[Any], schema: Schema | None, spark_runtime: SparkRuntime
) -> None:
    raw = pa.array(cells, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) and isinstance(cells[0], int) else None
    data = pa.table({"value": pa.array(cells, kind) if raw is None else raw})
    with pytest.raises(ConnectException, match=r'^The column "value[^"]*" of a SourceFrame has the type ') as found:
        pipeline(spark_runtime, "json").run(frame(data, schema))

    assert (
        "no schema" in str(found.value) if schema is None and "uint" not in str(kind) else "Schema{" in str(found.value)
    )


SPARK_REFUSED: list[tuple[str, Schema | None]] = [
    ("'txt'", of(Type.INT64)),
    ("1.5D", of(Type.INT64)),
    ("double('nan')", of(Type.INT32)),
    ("300", of(Type.INT8)),
    ("9007199254740993L", of(Type.FLOAT64)),
    ("1.55BD", decimal(1)),
    ("true", of(Type.INT8)),
    ("1", of(Type.STRING)),
    ("timestamp_ntz'2026-01-01 01:00:00'", DATE),
    ("timestamp'2026-01-01 01:00:00'", TIME),
    ("interval 1 day", None),
    ("interval 1 day", of(Type.INT64)),
    ("parse_json('1')", of(Type.INT64)),
    ("array('x')", SchemaBuilder.array(of(Type.INT64)).build()),
    ("array(300)", SchemaBuilder.array(of(Type.INT8)).build()),
    ("named_struct('a', 'x')", STRUCT),
    ("named_struct('b', 1)", STRUCT),
]


@pytest.mark.parametrize(("text", "schema"), SPARK_REFUSED, ids=str)
@pytest.mark.parametrize("transforms", [(), (Same(),)], ids=["alone", "transformed"])
def test_what_a_schema_cannot_hold_is_refused_in_spark(
    text: str, schema: Schema | None, transforms: tuple[Any, ...], spark_runtime: SparkRuntime
) -> None:
    def data(session: SparkSession) -> Any:
        # From the rows, so that Spark does not work it out when it makes the plan.
        return session.range(3).selectExpr(f"IF(id = 1, {text}, NULL) AS value")

    with pytest.raises(ConnectException, match=r'^The column "value[^"]*" of a SourceFrame has ') as found:
        pipeline(spark_runtime, "json", *transforms).run(frame(data, schema))

    assert "no schema" in str(found.value) if schema is None else "which does not fit Schema{" in str(found.value)


# ------------------------------------------------------------------------------------- the other columns, plain tables
def test_keys_timestamps_and_headers_are_cast_too(spark_runtime: SparkRuntime, session: SparkSession) -> None:
    given = pa.table(
        {
            "value": ["a", "b"],
            "key": pa.array(FINE[:2], pa.timestamp("ns", "UTC")),
            "topic": pa.array(["x", "y"]).dictionary_encode(),
            "partition": pa.array([1, None], pa.uint8()),
            "timestamp": pa.array(FINE[:2], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[{"value": b"1", "key": "h"}], None],
                pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
            ),
        }
    )
    millis = 1_767_268_801_999
    pipe = pipeline(spark_runtime, "json")
    wanted = {
        "key": [str(millis).encode(), b"null"],
        "topic": ["x", "y"],
        "partition": [1, None],
        "timestamp": [millis, None],
        "headers": [[{"key": "h", "value": b"1"}], None],
    }
    made = pipe.run(SourceFrame(given, None, None, {}, {}, key_schema=TIMESTAMP)).table
    assert {name: made.column(name).to_pylist() for name in wanted} == wanted

    of_spark = session.createDataFrame(
        [("a", FINE[0], "x", 1, FINE[0]), ("b", None, "y", None, None)],
        "value string, key timestamp, topic string, partition bigint, timestamp timestamp",
    )
    made = pipe.run(SourceFrame(of_spark, None, None, {}, {}, key_schema=TIMESTAMP)).table
    assert {name: made.column(name).to_pylist() for name in wanted if name != "headers"} == {
        name: column for name, column in wanted.items() if name != "headers"
    }


def test_a_key_without_schema_is_its_object(spark_runtime: SparkRuntime) -> None:
    keys = pa.array([{"id": 1}, None], pa.struct([("id", pa.uint8())]))
    made = pipeline(spark_runtime, "json").run(frame(pa.table({"value": ["a", "b"], "key": keys}), None))

    assert made.table.column("key").to_pylist() == [b'{"id":1}', None]


PLAIN = [{"id": 1, "name": "pen", "at": NOON.replace(tzinfo=None)}, {"id": 2, "name": None, "at": None}]
PLAIN_JSON = [b'{"id":1,"name":"pen","at":1767268800000}', b'{"id":2,"name":null,"at":null}']


@pytest.mark.parametrize("form", ["arrow", "batch", "pandas", "spark", "function"])
@pytest.mark.parametrize("given", [True, False], ids=["schema given", "schema derived"])
def test_a_plain_table_is_a_frame(form: str, given: bool, spark_runtime: SparkRuntime, session: SparkSession) -> None:
    schema = SchemaBuilder.struct().field("id", of(Type.INT32)).field("name", of(Type.STRING)).field("at", TIMESTAMP)
    rows = pa.Table.from_pylist(PLAIN)
    data: Any = {
        "arrow": rows,
        "batch": rows.to_batches()[0],
        "pandas": pd.DataFrame(PLAIN),
        "spark": session.createDataFrame(rows),
        "function": lambda one: one.createDataFrame(rows),
    }[form]
    pipe = pipeline(spark_runtime, "json")

    assert [value for value, _ in written(pipe.run(frame(data, schema.build() if given else None)))] == PLAIN_JSON


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"id": 1}], "The data of a SourceFrame is a list; it must be a PyArrow table"),
        (None, "is a NoneType"),
        (
            pd.DataFrame({"id": [1], "x": [2]}).set_index("id"),
            'no column of a SourceFrame: "id" would be lost',
        ),
        (pd.DataFrame({"id": [1, "x"]}), "a column that no PyArrow table can have"),
    ],
)
def test_what_is_no_table_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ConnectException, match=message):
        frame(data, None)


def test_the_columns_of_a_plain_table_are_named_in_errors(spark_runtime: SparkRuntime, session: SparkSession) -> None:
    schema = SchemaBuilder.struct().field("id", of(Type.INT8)).field("name", of(Type.STRING)).build()
    pipe = pipeline(spark_runtime, "json")
    for data in (pa.table({"id": [300], "name": ["x"]}), session.createDataFrame([(300, "x")], "id int, name string")):
        with pytest.raises(ConnectException, match='The column "id" of a SourceFrame has the type int'):
            pipe.run(frame(data, schema))
    with pytest.raises(ConnectException, match='the schema has no field "other"'):
        pipe.run(frame(pa.table({"id": [1], "name": ["x"], "other": [1]}), schema))


@pytest.mark.parametrize("of_spark", [False, True])
@pytest.mark.parametrize(
    ("names", "fields", "message"),
    [
        (("id", "key"), None, 'has a column "key", which may be a field of the value or the "key" of the record'),
        (("id", "timestamp"), None, "value_fields="),
        (("id", "value"), None, 'has the column "value" and also a column "id", which would be lost'),
        (("id", "key", "x"), ("id",), 'also a column "x", which would be lost'),
        (("id",), ("id", "x"), 'has no column "x", which its value_fields name; it has "id"'),
    ],
)
def test_columns_that_could_be_two_things_are_refused(
    names: tuple[str, ...],
    fields: tuple[str, ...] | None,
    message: str,
    of_spark: bool,
    spark_runtime: SparkRuntime,
    session: SparkSession,
) -> None:
    rows = pa.table({name: [1] for name in names})
    data: Any = session.createDataFrame(rows) if of_spark else rows
    with pytest.raises(ConnectException, match=re.escape(message)):
        pipeline(spark_runtime, "json").run(SourceFrame(data, "t", None, {}, {}, value_fields=fields))


@pytest.mark.parametrize("of_spark", [False, True])
def test_fields_may_have_the_names_of_columns(
    of_spark: bool, spark_runtime: SparkRuntime, session: SparkSession
) -> None:
    rows = pa.table({"value": [1], "timestamp": [2], "key": ["k"]})
    data: Any = session.createDataFrame(rows) if of_spark else rows
    made = pipeline(spark_runtime, "json").run(
        SourceFrame(data, "t", None, {}, {}, value_fields=("timestamp", "value"))
    )

    assert made.table.column("value").to_pylist() == [b'{"timestamp":2,"value":1}']
    assert made.table.column("key").to_pylist() == [b'"k"']
    assert made.table.column("timestamp").to_pylist() == [None]


def test_the_example_of_the_documentation_is_what_it_says(spark_runtime: SparkRuntime, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/frames.md").read_text(encoding="utf-8")
    file = tmp_path / "prices.csv"
    file.write_text(page.split("```text\n", 1)[1].split("```", 1)[0])
    made = pipeline(spark_runtime, "json").run(frame(pd.read_csv(file, parse_dates=["changed"]), PRICE))

    assert made.table.num_rows == 2
    for value in made.table.column("value").to_pylist():
        assert f"`{value.decode()}`" in page


def test_a_struct_brings_its_schema(spark_runtime: SparkRuntime) -> None:
    value = Struct(STRUCT).put("a", 1)
    pipe = pipeline(spark_runtime, "json with schemas")
    record = SourceRecord(None, None, "t", value, key=value)

    assert (record.value_schema, record.key_schema) == (STRUCT, STRUCT)
    assert written(pipe.run([record])) == written(pipe.run(records([value], STRUCT)))


# -------------------------------------------------------------------------------------------------------------- sinks
def consumed(values: pa.Array) -> pa.Table:
    """What a consumer would have fetched."""
    rows = len(values)
    columns = {"topic": ["t"] * rows, "offset": range(rows), "value": values}
    others = {one.name: [0] * rows if pa.types.is_integer(one.type) else [None] * rows for one in CONSUMED_SCHEMA}
    return pa.table({name: pa.array(one, CONSUMED_SCHEMA.field(name).type) for name, one in (others | columns).items()})


def test_sinks_are_given_dates_and_times_at_every_depth(spark_runtime: SparkRuntime, session: SparkSession) -> None:
    day, instant, moment = dt.date(1903, 2, 28), dt.datetime(1903, 2, 28, 1, 2, 3, 999_000, dt.UTC), dt.time(23, 59)
    by_number = SchemaBuilder.map(of(Type.INT32), DATE).optional().build()
    schema = (
        SchemaBuilder.struct()
        .field("day", DATE)
        .field("at", TIMESTAMP)
        .field("moment", TIME)
        .field("list", SchemaBuilder.array(TIMESTAMP).optional().build())
        .field("map", SchemaBuilder.map(of(Type.STRING), TIME).optional().build())
        .field("by number", by_number)
        .field("by day", SchemaBuilder.map(DATE, TIMESTAMP).optional().build())
        .field("number", decimal(2))
        .build()
    )
    fields: list[Any] = [day, instant, moment, [instant, None], {"k": moment}, {1: day}, {day: instant}, Number("1.50")]
    value = Struct.unchecked(schema, fields)
    spec = PipelineSpec(*converters("json with schemas"), [])
    made = SourcePipeline(spark_runtime, spec).run(records([value, None], schema))
    sink = SinkPipeline(spark_runtime, replace(spec, value_form=ValueForm.COLUMNS))
    frames = sink.run(consumed(made.table.column("value").combine_chunks())).frames
    assert frames is not None
    [given] = [one for one in frames if one.value_schema is not None]
    [row] = [one for one in given.table.column("value").to_pylist() if one is not None]

    assert row == {
        "day": day,
        "at": instant,
        "moment": moment,
        "list": [instant, None],
        "map": [("k", moment)],
        "by number": [{"key": 1, "value": day}],
        "by day": [{"key": day, "value": instant}],
        "number": Number("1.50"),
    }
    # What a sink is given, a source may return.
    again = SourceFrame(given.table.select(["value"]), "t", given.value_schema, {}, {})
    pipe = pipeline(spark_runtime, "json with schemas")
    assert written(pipe.run(again))[0] == written(pipe.run(records([value], schema)))[0]
