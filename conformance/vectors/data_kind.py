"""Vectors of the data model: validation of values and Structs, projection, inference of schemas.

Main function: ``run``. No Spark is needed.

Owning thread: none; pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.vectors.codec import decode_schema, decode_value, encode_schema, encode_value
from conformance.vectors.model import Failure, Outcome, Success, Vector
from penstock import data
from penstock.data import Struct, validate_value


def run(vector: Vector) -> Outcome:
    """Runs a vector against the data model."""
    runners = {
        "ConnectSchema.validateValue": _validate_value,
        "Struct.validate": _validate_struct,
        "SchemaProjector.project": _project,
        "Values.inferSchema": _infer,
    }
    runner = runners.get(vector.cls)
    if runner is None:
        return Failure("apply", "", None, "unknown class")
    try:
        return Success(runner(vector.input))
    except Exception as error:
        return Failure.of("apply", error)


def _validate_value(given: Mapping[str, Any]) -> dict[str, Any]:
    schema = decode_schema(given["schema"])
    assert schema is not None
    validate_value(schema, decode_value(given["value"], schema), given.get("name"))
    return {"valid": True}


def _validate_struct(given: Mapping[str, Any]) -> dict[str, Any]:
    schema = decode_schema(given["schema"])
    assert schema is not None
    struct = Struct(schema)
    for name, value in given["puts"]:
        field = schema.field(name)
        struct.put(name, decode_value(value, None if field is None else field.schema))
    struct.validate()
    with_defaults = {field.name: encode_value(struct.get(field), field.schema) for field in schema.fields}
    stored = {field.name: encode_value(struct.get_without_default(field.name), field.schema) for field in schema.fields}
    return {"toString": str(struct), "get": with_defaults, "getWithoutDefault": stored}


def _project(given: Mapping[str, Any]) -> dict[str, Any]:
    source, target = decode_schema(given["source"]), decode_schema(given["target"])
    assert source is not None
    assert target is not None
    projected = data.SchemaProjector.project(source, decode_value(given["value"], source), target)
    return {"value": encode_value(projected, target)}


def _infer(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": encode_schema(data.infer_schema(decode_value(given["value"], None)))}
