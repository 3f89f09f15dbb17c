"""Columns and single records go the same way, on random schemas and data: transforms, and converters both ways.

The other way is ``apply`` of a transform and ``from_connect_data`` and ``to_connect_data`` of a converter, which know
nothing of Spark. Transforms are also tried on what Java was given for the vectors, and on values at the ends of all
values (``cases``). ``PENSTOCK_EXAMPLES=500`` tries that many new ones.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from conformance.vectors.adapter import ConverterInput, PipelineAdapter
from conformance.vectors.codec import encode_schema, encode_value
from conformance.vectors.model import Failure, Outcome, Success
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.generated import NAMES, examples, schemaless, schemas, struct_schemas, texts, values
from tests.real.transforms import cases
from tests.real.transforms.columns import PLUGINS, Case, ensure_columns_equal_records, made, same

from penstock.api import Converter, SinkRecord
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, ConnectHeaders, Header, Schema
from penstock.errors import ConfigException
from penstock.pipeline.columns.sizes import make_room
from penstock.pipeline.plan import map_structs as objects
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import PluginKind
from penstock.plugins.stock import STOCK

pytestmark = [pytest.mark.java, pytest.mark.slow]

# The first converter would do so within an example, where hypothesis wants the limit to stay what it is.
make_room()
#: Schemas in a batch, records of each, schemaless records.
SCHEMAS, EACH, SCHEMALESS = 2, 5, 6

names = st.sampled_from(NAMES)
several = st.lists(names, min_size=1, max_size=3, unique=True).map(",".join)
types = st.sampled_from(["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"])
switch = st.sampled_from(["true", "false"])
inserted = st.builds("".join, st.tuples(st.sampled_from([*NAMES, "new", "more"]), st.sampled_from(["", "!", "?"])))


def pairs_of(left: st.SearchStrategy[str], right: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A list of pairs as settings write it."""
    found = st.dictionaries(left, right, min_size=1, max_size=3)
    return found.map(lambda pairs: ",".join(":".join(pair) for pair in pairs.items()))


patterns = st.sampled_from(["yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ss.SSSX", "HH:mm"])

#: Settings of each class; those that take keys or values are tried on both.
TRANSFORMS: dict[str, st.SearchStrategy[dict[str, str]]] = {
    "Cast": st.fixed_dictionaries(
        {
            "spec": types | pairs_of(names, types),
        },
        optional={"replace.null.with.default": switch},
    ),
    "DropHeaders": st.fixed_dictionaries({"headers": st.sampled_from(["h", "h,i", "none"])}),
    "ExtractNewRecordState": st.fixed_dictionaries(
        {},
        optional={"delete.tombstone.handling.mode": st.sampled_from(["drop", "rewrite"]), "add.fields": several},
    ),
    "ExtractField": st.fixed_dictionaries(
        {"field": st.one_of(names, st.sampled_from(["a.b", "c.a.b", "`d.e`.a"]))},
        optional={"field.syntax.version": st.sampled_from(["V1", "V2"]), "replace.null.with.default": switch},
    ),
    "Filter": st.just({}),
    "Flatten": st.fixed_dictionaries({}, optional={"delimiter": st.sampled_from(["_", ".", ""])}),
    "HeaderFrom": st.fixed_dictionaries(
        {
            "fields": st.just("a,b"),
            "headers": st.sampled_from(["h,i", "x,x"]),
            "operation": st.sampled_from(["move", "copy"]),
        },
        optional={"replace.null.with.default": switch},
    ),
    "HoistField": st.fixed_dictionaries({"field": names}),
    "InsertField": st.fixed_dictionaries(
        {"static.field": inserted, "static.value": texts},
        optional={
            "topic.field": inserted,
            "partition.field": inserted,
            "offset.field": inserted,
            "timestamp.field": inserted,
            "replace.null.with.default": switch,
        },
    ),
    "InsertHeader": st.fixed_dictionaries(
        {"header": st.just("h"), "value.literal": st.sampled_from(["1", "x", "[1]"])}
    ),
    "MaskField": st.fixed_dictionaries(
        {"fields": several},
        optional={"replacement": st.sampled_from(["7", "x", "1.5"]), "replace.null.with.default": switch},
    ),
    "RegexRouter": st.fixed_dictionaries({"regex": st.just("(t)(.*)"), "replacement": st.just("$2-$1")}),
    "ReplaceField": st.fixed_dictionaries(
        {},
        optional={
            "include": several,
            "exclude": several,
            # To names that are not there: which of two fields wins is left to the order of a map without schema.
            "renames": several.map(lambda found: ",".join(f"{name}:{name}2" for name in found.split(","))),
            "replace.null.with.default": switch,
        },
    ),
    "SetSchemaMetadata": st.fixed_dictionaries({"schema.name": st.just("n"), "schema.version": st.just("3")}),
    "TimestampConverter": st.fixed_dictionaries(
        {"target.type": st.sampled_from(["string", "unix", "Date", "Time", "Timestamp"]), "format": patterns},
        optional={
            "field": names,
            "unix.precision": st.sampled_from(["seconds", "milliseconds", "microseconds"]),
            "replace.null.with.default": switch,
        },
    ),
    "TimestampRouter": st.fixed_dictionaries({"timestamp.format": patterns}),
    "ValueToKey": st.fixed_dictionaries({"fields": several}, optional={"replace.null.with.default": switch}),
}


def maps() -> st.SearchStrategy[Any]:
    """Schemaless values, most of them maps with the names."""
    inner = schemaless(moments=True)
    return st.one_of(*[st.dictionaries(names, inner, max_size=4)] * 4, inner, st.none())


@st.composite
def sides(draw: st.DrawFn, kinds: st.SearchStrategy[Schema], bare: st.SearchStrategy[Any]) -> list[tuple[Any, Any]]:
    """Schemas and values of a batch, mixed."""
    found: list[tuple[Any, Any]] = [(None, draw(bare)) for _ in range(SCHEMALESS)]
    for _ in range(SCHEMAS):
        schema = draw(kinds)
        found += [(schema, draw(values(schema))) for _ in range(EACH)]
    return draw(st.permutations(found))


@st.composite
def batches(draw: st.DrawFn) -> list[SinkRecord]:
    """Records of a sink: keys and values of several schemas."""
    kinds = st.one_of(struct_schemas(), struct_schemas(), struct_schemas(), schemas())
    pairs = draw(sides(kinds, maps()))
    others: list[tuple[Schema | None, object]] = [(INT32_SCHEMA, 1), (None, {"a": 1}), (None, None)]
    on_key = draw(st.booleans())
    records = []
    # The other side goes by the schema: each combination of two schemas is a plan of its own.
    kinds_seen: list[Schema | None] = []
    for place, pair in enumerate(pairs):
        if pair[0] not in kinds_seen:
            kinds_seen.append(pair[0])
        other = others[kinds_seen.index(pair[0]) % len(others)]
        (key_schema, key), (value_schema, value) = (pair, other) if on_key else (other, pair)
        headers = [Header("h", "x", STRING_SCHEMA), Header("i", place, None)][: place % 3]
        records.append(
            SinkRecord(
                "t",
                place % 2,
                place,
                value,
                value_schema=value_schema,
                key=key,
                key_schema=key_schema,
                timestamp=None if place % 7 == 6 else 1483425001864 + place * 10**8,
                headers=ConnectHeaders(headers),
            )
        )
    return records


def skip_simplest(data: st.DataObject) -> None:
    """Ends hypothesis's first example, of zeros and empty things: it costs as much as one that may find something."""
    assume(data.draw(st.integers(0, 1 << 30), label="number"))


def class_of(name: str, data: st.DataObject) -> str:
    """A class of ours by the name that vectors have for it; for keys or for values where there are both."""
    forms = [one.name.rpartition(".")[2] for one in STOCK if one.kind is PluginKind.TRANSFORMATION]
    return data.draw(st.sampled_from([one for one in forms if one.partition("$")[0] == name]), label="class")


def test_every_transform_is_here() -> None:
    names_of = {one.name.rpartition(".")[2].partition("$")[0] for one in STOCK if one.kind is PluginKind.TRANSFORMATION}

    # Sql has no form for single records: it is Spark's own.
    assert names_of - {"Sql"} == set(TRANSFORMS)


def generated() -> Iterator[Case]:
    """Some batches of random schemas and values for each transform."""
    found: list[Case] = []

    @examples(1, shrink=False)
    @given(data=st.data())
    def draw(name: str, data: st.DataObject) -> None:
        skip_simplest(data)
        cls, config = class_of(name, data), data.draw(TRANSFORMS[name], label="settings")
        records = data.draw(batches(), label="records")
        try:
            found.append(Case((made(cls, config),), records, f"{cls} {config}"))
        except ConfigException:
            assume(False)

    for name in TRANSFORMS:
        draw(name)
    return iter(found)


#: How many records are columns, at least, and which there are.
TRIED: dict[str, tuple[int, Callable[[], Iterator[Case]]]] = {
    "recorded": (100, cases.recorded),
    "generated": (100, generated),
    "odd values": (100, cases.odd_values),
    "envelopes": (500, cases.envelopes),
    "moments": (50, cases.moments),
    "decimals": (200, cases.decimals),
    "maps that look alike": (60, cases.alike),
}


@pytest.mark.parametrize("name", TRIED)
def test_a_transform_does_to_columns_what_it_does_to_records(
    name: str, spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 1)
    monkeypatch.setattr(objects, "_known", {})
    least, tried = TRIED[name]

    compared = ensure_columns_equal_records(spark_runtime, tried())

    assert compared >= least


#: Those with a schema registry have no columns.
CONVERTERS = [
    one.name for one in STOCK if one.kind is PluginKind.CONVERTER and ".converters.registry." not in one.target
]
JSON_SETTINGS = st.fixed_dictionaries(
    {"schemas.enable": switch},
    optional={"decimal.format": st.sampled_from(["BASE64", "NUMERIC"]), "replace.null.with.default": switch},
)


@pytest.mark.parametrize("name", CONVERTERS, ids=lambda name: name.rpartition(".")[2])
@examples(1, shrink=False)
@given(data=st.data())
def test_a_converter_does_to_columns_what_it_does_to_values(
    name: str, data: st.DataObject, spark_runtime: SparkRuntime
) -> None:
    skip_simplest(data)
    cls = name.rpartition(".")[2]
    config = data.draw(JSON_SETTINGS, label="settings") if cls == "JsonConverter" else {}
    # Schemaless maps have no order of their own; columns have them sorted.
    pairs = data.draw(sides(schemas(), schemaless().map(in_order)), label="values")
    adapter = PipelineAdapter(spark_runtime, PLUGINS)
    converter = PLUGINS.new(PluginKind.CONVERTER, name)
    assert isinstance(converter, Converter)
    converter.configure(config, False)

    inputs = [ConverterInput(schema, value) for schema, value in pairs]
    expected = [written(converter, one) for one in inputs]
    ensure_equal(pairs, adapter.from_connect(inputs, cls, config, is_key=False), expected)

    messages = [base64.b64decode(one.data["base64"] or "") for one in expected if isinstance(one, Success)]
    broken = [data.draw(st.sampled_from([one, one[:-1], one + b" ", one.replace(b'"', b"", 1)])) for one in messages]
    inputs = [ConverterInput(data=one) for one in [*messages, *broken, None, b"", b"\xff", b"1"]]
    read = adapter.to_connect(inputs, cls, config, is_key=False)
    ensure_equal([one.data for one in inputs], read, [understood(converter, one) for one in inputs])


def in_order(value: Any) -> Any:
    """A schemaless value whose maps are sorted as Java sorts strings."""
    if isinstance(value, list):
        return [in_order(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: in_order(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}


def written(converter: Converter, given: ConverterInput) -> Outcome:
    try:
        data = converter.from_connect_data(given.topic, given.schema, given.value)
    except Exception as error:
        return Failure.of("apply", error)
    return Success({"base64": None if data is None else base64.b64encode(data).decode("ascii")})


def understood(converter: Converter, given: ConverterInput) -> Outcome:
    try:
        found = converter.to_connect_data(given.topic, given.data)
    except Exception as error:
        return Failure.of("apply", error)
    return Success({"schema": encode_schema(found.schema), "value": encode_value(found.value, found.schema)})


def ensure_equal(inputs: Sequence[object], found: Sequence[Outcome], expected: Sequence[Outcome]) -> None:
    """Fails where the outcomes of columns are not those of single records."""
    different = [
        f"{given!r}: columns gave {one}, single records {wanted}"
        for given, one, wanted in zip(inputs, found, expected, strict=True)
        if not same(wanted, one)
    ]
    assert not different, "\n".join(different)
