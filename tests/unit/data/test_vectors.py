"""Recorded behaviour of Kafka Connect's data classes, run against ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.vectors.codec import decode_schema, decode_value, encode_schema, encode_value, equal_values

from penstock.data import SchemaProjector, Struct, infer_schema, parse_string, validate_value, value_text
from penstock.errors import ConnectException, java_class_name

VECTORS = Path(__file__).parents[2] / "data" / "vectors"


def _load() -> list[dict[str, Any]]:
    lines = [
        line
        for name in ("visible.jsonl", "visible_more.jsonl")
        for line in (VECTORS / name).read_text("ascii").splitlines()
    ]
    return [json.loads(line) for line in lines]


ALL = _load()
DATA = [vector for vector in ALL if vector["kind"] == "data"]
HEADERS = [vector for vector in ALL if vector["kind"] == "header" and vector["class"] == "SimpleHeaderConverter"]


def _schema(data: dict[str, Any]) -> Any:
    schema = decode_schema(data)
    assert schema is not None
    return schema


def _run(vector: dict[str, Any]) -> dict[str, Any]:
    given = vector["input"]
    match vector["class"]:
        case "ConnectSchema.validateValue":
            schema = _schema(given["schema"])
            validate_value(schema, decode_value(given["value"], schema), given.get("name"))
            return {"valid": True}
        case "Struct.validate":
            schema = _schema(given["schema"])
            struct = Struct(schema)
            for name, value in given["puts"]:
                struct.put(name, decode_value(value, schema.field(name).schema))
            struct.validate()
            return {
                "toString": str(struct),
                "get": {f.name: encode_value(struct.get(f), f.schema) for f in schema.fields},
                "getWithoutDefault": {
                    f.name: encode_value(struct.get_without_default(f), f.schema) for f in schema.fields
                },
            }
        case "SchemaProjector.project":
            source, target = _schema(given["source"]), _schema(given["target"])
            value = SchemaProjector.project(source, decode_value(given["value"], source), target)
            return {"value": encode_value(value, target)}
        case "Values.inferSchema":
            return {"schema": encode_schema(infer_schema(decode_value(given["value"], None)))}
        case other:
            raise AssertionError(f"no runner for {other}")


@pytest.mark.parametrize("vector", DATA, ids=lambda vector: vector["id"])
def test_data_behaves_as_recorded(vector: dict[str, Any]) -> None:
    if "error" in vector:
        expected = vector["error"]
        with pytest.raises(ConnectException) as caught:
            _run(vector)
        assert java_class_name(caught.value).rpartition(".")[2] == expected["class"]
        if not expected.get("javaText"):
            assert str(caught.value) == expected["message"]
    else:
        actual = _run(vector)
        assert equal_values(vector["expect"], actual), actual


@pytest.mark.parametrize("vector", HEADERS, ids=lambda vector: vector["id"])
def test_header_text_is_read_and_written_as_recorded(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["expect"]
    if given["op"] == "toConnectHeader":
        found = parse_string(given["text"])
        if found is None:
            assert expected == {"null": True}
        else:
            assert equal_values(expected["schema"], encode_schema(found.schema))
            assert equal_values(expected["value"], encode_value(found.value, found.schema))
    else:
        schema = decode_schema(given["schema"])
        value = decode_value(given["value"], schema)
        assert (None if value is None else value_text(value, schema)) == expected.get("text")


def test_the_vectors_cover_all_four_data_classes() -> None:
    assert {vector["class"] for vector in DATA} == {
        "ConnectSchema.validateValue",
        "Struct.validate",
        "SchemaProjector.project",
        "Values.inferSchema",
    }
    assert len(HEADERS) > 100
