"""Nulls in frames, with each converter and both ways; what a sink of frames is given behind transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from testkit.doubles.chains import configured, consumed, stages
from testkit.processes.schema_registry import RegistryStandIn

from penstock.api import Converter, SinkFrame, SourceFrame, TopicPartition, Transformation, ValueForm
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.converters.json.converter import JsonConverter
from penstock.converters.primitives import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    IntegerConverter,
    LongConverter,
)
from penstock.converters.registry.converters import AvroConverter, JsonSchemaConverter, ProtobufConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import (
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
    Type,
)
from penstock.pipeline.batch.batches import PipelineSpec, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.predicates import Filter, RecordIsTombstone
from penstock.transforms.restructuring import ReplaceFieldValue
from penstock.transforms.sql.transform import Sql
from penstock.transforms.topics import RegexRouter

pytestmark = pytest.mark.java

ROWS = 30
ORDER = SchemaBuilder.struct().name("Order").field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
Make = Callable[[int], object]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn() as found:
        yield found


def struct(number: int) -> dict[str, object]:
    return {"id": number, "name": f"n{number}"}


#: Name, class and settings of a converter, a schema, its Arrow type, and what makes a value.
KINDS: Sequence[tuple[str, type[Any], Mapping[str, str], Schema | None, pa.DataType, Make]] = [
    ("json with schema", JsonConverter, {}, ORDER, pa.struct([("id", pa.int64()), ("name", pa.string())]), struct),
    ("json", JsonConverter, {"schemas.enable": "false"}, None, pa.string(), str),
    ("avro", AvroConverter, {}, ORDER, pa.struct([("id", pa.int64()), ("name", pa.string())]), struct),
    ("protobuf", ProtobufConverter, {"optional.for.nullables": "true"}, ORDER,
     pa.struct([("id", pa.int64()), ("name", pa.string())]), struct),
    ("json schema", JsonSchemaConverter, {}, ORDER, pa.struct([("id", pa.int64()), ("name", pa.string())]), struct),
    ("string", StringConverter, {}, STRING_SCHEMA, pa.string(), str),
    ("bytes", ByteArrayConverter, {}, OPTIONAL_BYTES_SCHEMA, pa.binary(), lambda number: b"%d" % number),
    ("long", LongConverter, {}, INT64_SCHEMA, pa.int64(), int),
    ("integer", IntegerConverter, {}, INT32_SCHEMA, pa.int32(), int),
    ("double", DoubleConverter, {}, FLOAT64_SCHEMA, pa.float64(), float),
    ("boolean", BooleanConverter, {}, Schema(Type.BOOLEAN, optional=True), pa.bool_(), lambda number: number % 3 == 0),
]  # fmt: skip
NULLS = {
    "every tenth": range(0, ROWS, 10),
    "first and last": (0, 1, ROWS - 1),
    "every second": range(1, ROWS, 2),
    "all but one": [row for row in range(ROWS) if row != 13],
    "all": range(ROWS),
}


def spec_of(
    value: Converter, transforms: Sequence[TransformStage] = (), *, form: ValueForm | None = ValueForm.COLUMNS
) -> PipelineSpec:
    key = StringConverter()
    key.configure({}, True)
    return PipelineSpec(key, value, SimpleHeaderConverter(), transforms, value_form=form)


def json_spec(transforms: Sequence[TransformStage] = (), *, join: bool = False, schemas: bool = False) -> PipelineSpec:
    value = JsonConverter()
    value.configure({"schemas.enable": str(schemas).lower()}, False)
    return replace(spec_of(value, transforms), frames_join=join)


def frames(runtime: SparkRuntime, spec: PipelineSpec, batch: pa.Table) -> list[SinkFrame]:
    made = SinkPipeline(runtime, spec).run(batch)
    assert not made.errors
    for frame in made.frames or ():
        assert frame.origin.num_rows == frame.num_rows
    return list(made.frames or ())


def offsets_of(found: Sequence[SinkFrame]) -> list[int]:
    return [offset for frame in found for offset in frame.origin["offset"].to_pylist()]


def expected_null(column: pa.ChunkedArray) -> list[int]:
    return [row for row, there in enumerate(column.is_valid().to_pylist()) if not there]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=[kind[0] for kind in KINDS])
def test_nulls_go_out_and_come_back_in_one_frame(
    spark_runtime: SparkRuntime, registry: RegistryStandIn, kind: tuple[Any, ...]
) -> None:
    name, cls, settings, schema, column_type, make = kind
    with ExitStack() as closed:
        value = cls()
        if hasattr(value, "close"):
            closed.enter_context(closing(value))
        registered = {"schema.registry.url": registry.url} if "registry" in cls.__module__ else {}
        value.configure({**registered, **settings}, False)
        for which, nulls in NULLS.items():
            column = pa.array([None if row in nulls else make(row) for row in range(ROWS)], column_type)
            table = pa.table({"value": column})
            if which == "all":
                table = pa.table({"value": pa.nulls(ROWS)})
            source = SourceFrame(table, "t", schema, {"f": 1}, {"n": 1})
            sent = SourcePipeline(spark_runtime, spec_of(value, form=None)).run(source).table["value"].to_pylist()
            found = frames(
                spark_runtime, spec_of(value), consumed([bytes(one) if one is not None else None for one in sent])
            )
            assert len(found) == 1, (name, which)
            assert offsets_of(found) == list(range(ROWS))
            assert expected_null(found[0].table["value"]) == list(nulls), (name, which)
            if which != "all":
                assert (
                    found[0].value_schema is None or found[0].value_schema.type is (schema or Schema(Type.STRUCT)).type
                )


@pytest.mark.parametrize("form", ValueForm)
@pytest.mark.parametrize("schemas", [False, True])
def test_tombstones_and_json_nulls_among_json(form: ValueForm, schemas: bool, spark_runtime: SparkRuntime) -> None:
    head = b'{"schema":{"type":"struct","optional":true,"fields":[{"field":"a","type":"int32"}]},"payload":'
    plain = [None, b'{"a":1}', None, b"null", b'{"a":2}', None]
    values = [None if one is None else head + one + b"}" if schemas else one for one in plain]
    spec = replace(json_spec(schemas=schemas), value_form=form)

    (found,) = frames(spark_runtime, spec, consumed(values))

    column = found.table["value"]
    assert expected_null(column) == [0, 2, 3, 5]
    if form is not ValueForm.TEXT:
        assert found.fields(["a"])["a"].to_pylist() == [None, 1, None, None, 2, None]
    else:
        text = "Struct{{a={}}}" if schemas else "{{a={}}}"
        assert column.to_pylist() == [None, text.format(1), None, None, text.format(2), None]


def test_a_dataframe_of_a_frame_with_nulls_has_them(spark_runtime: SparkRuntime) -> None:
    variants = replace(json_spec(), value_form=ValueForm.VARIANT)
    for spec, field in ((variants, "variant_get(value, '$.a', 'int')"), (json_spec(), "value.a")):
        (found,) = frames(spark_runtime, spec, consumed([b'{"a":1}', None, b'{"a":3}']))

        rows = found.dataframe().selectExpr("value IS NULL AS gone", f"{field} AS a").collect()

        assert [(row["gone"], row["a"]) for row in rows] == [(False, 1), (True, None), (False, 3)]


def test_plain_json_is_typed_columns_and_spark_takes_them(spark_runtime: SparkRuntime) -> None:
    messages = [
        b'{"id": 1, "amount": 2, "who": {"name": "Ada"}, "tags": ["x"], "any": 1}',
        b'{"id": 2, "amount": 2.5, "who": {"name": null, "age": 7}, "tags": [], "any": "one"}',
        b'{"id": 3, "who": null, "more": true, "nothing": null}',
    ]

    (found,) = frames(spark_runtime, json_spec(), consumed(messages))

    assert found.value_schema is None
    assert str(found.table["value"].type) == (
        "struct<id: int64, amount: double, who: struct<name: string, age: int64>, tags: list<element: string>, any: "
        "struct<value: binary not null, metadata: binary not null>, more: bool, nothing: null>"
    )
    assert found.objects() == [orjson.loads(message) for message in messages]
    assert [*map(type, found.objects("amount"))] == [int, float, type(None)]
    assert found.present("amount").to_pylist() == [True, True, False]
    assert found.present("who.age").to_pylist() == [False, True, False]
    picked = (
        found.dataframe().where("value.id > 1").selectExpr("value.who.age", "size(value.tags)", "value.any::string")
    )
    assert [tuple(row) for row in picked.collect()] == [(7, 0, "one"), (None, None, None)]


def test_columns_are_widened_and_remembered_by_topic(spark_runtime: SparkRuntime) -> None:
    pipeline = SinkPipeline(spark_runtime, json_spec())

    def types(*batches: Sequence[tuple[str, bytes]]) -> list[list[str]]:
        found = []
        for batch in batches:
            made = pipeline.run(consumed([value for _, value in batch], topics=[topic for topic, _ in batch]))
            found.append([str(frame.table["value"].type) for frame in made.frames or ()])
        return found

    assert types(
        [("a", b'{"n": 1}'), ("b", b'{"t": "x"}'), ("a", b'{"n": 2}'), ("b", b'{"t": "y"}')],
        [("a", b'{"n": null, "m": 1.5}')],
        [("a", b'{"n": 2.5}'), ("a", b'{"m": 2}')],
        [("a", b'{"n": "one"}')],
    ) == [
        ["struct<n: int64>", "struct<t: string>"],
        ["struct<n: int64, m: double>"],
        ["struct<n: double, m: double>"],
        ["struct<n: string, m: double>"],
    ]


class ToNull(Transformation):
    """Some values become null, record by record."""

    def configure(self, props: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        value: Any = record.value
        if value is None or value["a"] % 5 == 4:
            return None
        return record.new_record(value=None) if value["a"] % 2 else record  # type: ignore[return-value]


@pytest.mark.parametrize("own", [False, True])
def test_rows_behind_transforms_know_their_messages(own: bool, spark_runtime: SparkRuntime) -> None:
    values = [None if row % 10 == 3 else b'{"a":%d,"b":"x"}' % row for row in range(40)]
    router = configured(RegexRouter(), {"regex": ".*", "replacement": "merged"})
    chain = [
        *stages(router, configured(ReplaceFieldValue(), {"exclude": "b"})),
        TransformStage("drop", configured(Filter()), configured(RecordIsTombstone())),
        *(stages(ToNull()) if own else []),
    ]

    (found,) = frames(spark_runtime, json_spec(chain), consumed(values))

    left = [row for row in range(40) if row % 10 != 3 and not (own and row % 5 == 4)]
    assert offsets_of([found]) == left
    assert set(found.origin["topic"].to_pylist()) == {"t"}
    assert set(found.table["topic"].to_pylist()) == {"merged"}
    assert found.fields({"a": pa.int32()})["a"].to_pylist() == [None if own and row % 2 else row for row in left]


def test_several_rows_of_one_message_have_its_offset(spark_runtime: SparkRuntime) -> None:
    explode = configured(Sql(), {"select": "explode(sequence(1, cast(value:n as int))) as n"})
    values = [b'{"n":3}', b'{"n":1}', b'{"n":2}']

    (found,) = frames(spark_runtime, json_spec(stages(explode)), consumed(values))

    assert offsets_of([found]) == [0, 0, 0, 1, 2, 2]
    assert found.slice(0, 2).next_offsets() == {("t", 0): 0}
    assert found.next_offsets() == {("t", 0): 3}


class Typed(Transformation):
    """Odd numbers become text."""

    def configure(self, props: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        number: Any = record.value
        if number["n"] % 2:
            return record.new_record(value=str(number["n"]), value_schema=STRING_SCHEMA)  # type: ignore[return-value]
        return record.new_record(value=number["n"], value_schema=INT32_SCHEMA)  # type: ignore[return-value]


def test_a_message_whose_rows_are_in_several_frames_is_behind_none_but_the_last(spark_runtime: SparkRuntime) -> None:
    explode = configured(Sql(), {"select": "explode(sequence(1, cast(value:n as int))) as n"})

    found = frames(spark_runtime, json_spec(stages(explode, Typed())), consumed([b'{"n":3}', b'{"n":1}']))

    assert [frame.table["value"].to_pylist() for frame in found] == [["1"], [2], ["3", "1"]]
    assert [frame.continued for frame in found] == [True, True, False]
    written: list[object] = []
    reached: dict[TopicPartition, int] = {}
    for frame in found:
        new = frame.since(reached)
        written += new.table["value"].to_pylist()
        reached.update(new.next_offsets())
    assert (written, reached) == (["1", 2, "3", "1"], {("t", 0): 2})


def in_envelope(fields: Mapping[str, str], values: Mapping[str, object]) -> bytes:
    import json

    schema = {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in fields.items()]}
    return json.dumps({"schema": schema, "payload": values}).encode()


def test_alternating_schemas_are_one_frame_where_they_are_joined(spark_runtime: SparkRuntime) -> None:
    old, new = {"id": "int32", "name": "string"}, {"id": "int64", "name": "string", "more": "double"}
    values = [
        None if row == 5 else in_envelope(new, {"id": row, "name": "x", "more": 0.5}) if row % 2
        else in_envelope(old, {"id": row, "name": "x"})
        for row in range(12)
    ]  # fmt: skip

    apart = frames(spark_runtime, json_spec(schemas=True), consumed(values))
    (joined,) = frames(spark_runtime, json_spec(schemas=True, join=True), consumed(values))

    assert [frame.num_rows for frame in apart] == [1, 1, 1, 1, 3, *[1] * 5]
    assert offsets_of(apart) == offsets_of([joined]) == list(range(12))
    assert joined.table["value"].to_pylist() == [
        None if row == 5 else {"id": row, "name": "x", "more": 0.5 if row % 2 else None} for row in range(12)
    ]
    assert joined.dataframe().selectExpr("sum(value.id) AS total").collect()[0]["total"] == sum(range(12)) - 5
