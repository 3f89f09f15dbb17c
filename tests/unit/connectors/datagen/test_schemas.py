"""Values of Avro schemas: types, hints, repeatability, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.api.arrow import connect_schema
from penstock.connectors.datagen.columns import random_bits
from penstock.connectors.datagen.schemas import QUICKSTARTS, records_of
from penstock.data import Schema, Type
from penstock.errors import ConfigException

ROWS = np.arange(1000, dtype=np.uint64)


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": list(fields)}


def made(kind: Any, rows: Any = ROWS, **hints: Any) -> list[Any]:
    avro = {"type": kind, "arg.properties": hints} if hints else kind
    return list(records_of(record({"name": "a", "type": avro})).make(7, rows).field("a").to_pylist())


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_a_quickstart_makes_the_same_rows_whatever_the_batches_are(name: str) -> None:
    avro, key = QUICKSTARTS[name]
    records = records_of(avro)

    whole = records.make(5, ROWS)
    parts = [records.make(5, ROWS[start : start + 37]) for start in range(0, len(ROWS), 37)]

    assert key in records.names
    assert pa.concat_arrays(parts).equals(whole)
    assert whole.null_count == 0
    assert not records.make(6, ROWS).equals(whole)


def types_only(schema: Schema | None) -> object:
    """A schema without names of structs."""
    assert schema is not None
    if schema.type is Type.STRUCT:
        return schema.optional, [(one.name, types_only(one.schema)) for one in schema.fields]
    if schema.type in (Type.ARRAY, Type.MAP):
        return schema.type, schema.optional, types_only(schema.value_schema)
    return schema


EVERY = record(
    {"name": "null", "type": "null"},
    {"name": "boolean", "type": "boolean"},
    {"name": "int", "type": "int"},
    {"name": "long", "type": "long"},
    {"name": "float", "type": "float"},
    {"name": "double", "type": "double"},
    {"name": "bytes", "type": "bytes"},
    {"name": "string", "type": "string"},
    {"name": "enum", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
    {"name": "again", "type": "e"},
    {"name": "fixed", "type": {"type": "fixed", "name": "f", "size": 5}},
    {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
    {"name": "map", "type": {"type": "map", "values": "long"}},
    {"name": "maybe", "type": ["null", "string"]},
    {"name": "one", "type": ["string"]},
    {"name": "inner", "type": ["null", {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}]}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
)


def test_every_type_has_values_that_fit_its_schema() -> None:
    records = records_of(EVERY)

    values = records.make(1, ROWS)

    values.validate(full=True)
    assert types_only(records.schema) == types_only(connect_schema(values.type))
    assert pa.concat_arrays([records.make(1, ROWS[:13]), records.make(1, ROWS[13:])]).equals(values)
    assert records.make(1, ROWS[:0]).to_pylist() == []
    assert {len(one) for one in values.field("fixed").to_pylist()} == {5}
    assert 300 < values.field("maybe").null_count < 700


def test_integers_cover_all_of_their_type() -> None:
    assert min(made("long")) < -(2**62)
    assert max(made("long")) > 2**62
    assert min(made("int")) < -(2**30)
    assert max(made("int")) < 2**31


def test_hints_say_which_values() -> None:
    assert set(made("int", range={"min": -2, "max": 2})) == {-2, -1, 0, 1}
    assert set(made("string", options=["a", "b"])) == {"a", "b"}
    assert set(made({"type": "array", "items": "int"}, options=[[1], [2, 3]])[0]) <= {1, 2, 3}
    assert set(made("string", prefix="User_", range={"min": 1, "max": 4})) == {"User_1", "User_2", "User_3"}
    assert made("string", ROWS[:3], suffix="!", iteration={"start": 5}) == ["5!", "6!", "7!"]
    assert {len(one) for one in made("string", length=3)} == {3}
    assert {len(one) for one in made("bytes", length={"min": 0, "max": 3})} == {0, 1, 2}
    assert {len(one) for one in made({"type": "array", "items": "int"}, length={"min": 1, "max": 3})} == {1, 2}
    assert all(5 <= one < 6 for one in made("double", range={"min": 5, "max": 6}))
    assert sum(made("boolean", odds=0.9)) > 800
    assert made("int", ROWS[:5], iteration={"start": 1, "restart": 3}) == [1, 2, 1, 2, 1]
    assert made("long", ROWS[:4], iteration={"start": 3, "restart": 0, "step": -2}) == [3, 1, 3, 1]
    assert made("float", ROWS[:3], iteration={"start": 0.5, "step": 0.25}) == [0.5, 0.75, 1.0]


def test_a_row_far_along_is_reached_directly() -> None:
    far = np.array([2**63 - 2, 2**63 - 1], np.uint64)

    assert len(set(made("long", far))) == 2
    assert random_bits(1, far)[1] == random_bits(1, far[1:])[0]


@pytest.mark.parametrize(
    ("avro", "text"),
    [
        ({"type": "string"}, "must be an Avro record"),
        ([], "must be an Avro record"),
        (record(), "without fields"),
        (record({"name": "a", "type": "text"}), 'the field a: the type "text" is not known'),
        (record({"name": "a", "type": ["int", "string"]}), "the field a: a union must be of null and one other"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), '"a" is there twice'),
        (record({"name": "a", "type": 5}), "the field a: "),
        (record({"type": "int"}), "the record: KeyError"),
        (record({"name": "a", "type": {"type": "array"}}), "the field a: KeyError: 'items'"),
        (record({"name": "a", "type": {"type": "array", "items": "r"}}), "the type r contains itself"),
    ],
)
def test_a_schema_that_cannot_be_made_is_refused_by_its_field(avro: Any, text: str) -> None:
    with pytest.raises(ConfigException) as raised:
        records_of(avro)

    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "hints", "text"),
    [
        ("string", {"regex": "a+"}, "regex is not supported: use options"),
        ("string", {"optoins": []}, "arg.properties has optoins; known are "),
        ("string", {"options": []}, "options must be a list of values"),
        ("int", {"options": ["x"]}, "the field a: "),
        ("int", {"range": {"min": 5, "max": 5}}, "from min 5 to below max 5 is empty"),
        ("int", {"range": {"min": 0, "max": 2**40}}, "too wide for int"),
        ("int", {"iteration": {"step": 1}}, "KeyError: 'start'"),
        ("int", {"iteration": {"start": 1, "step": 0}}, "step other than 0"),
        ("int", {"iteration": {"start": 1, "restart": 5, "step": -1}}, "does not reach restart=5"),
        ("string", {"length": -1}, "a length must be from 0"),
        ("string", {"length": {"min": 3, "max": 3}}, "max above min"),
    ],
)
def test_a_hint_that_makes_no_sense_is_refused_by_its_field(kind: str, hints: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigException) as raised:
        made(kind, **hints)

    assert text in str(raised.value)
    assert "the field a" in str(raised.value)
