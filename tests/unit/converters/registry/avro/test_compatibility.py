"""Which Avro schemas can read data of another one; what Java says is among the recorded answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.converters.registry.avro.compatibility import cannot_read
from penstock.converters.registry.avro.forms import read_avro
from penstock.converters.registry.client import SchemaText


def why(reader: Any, writer: Any) -> str | None:
    return cannot_read(*(read_avro(SchemaText("AVRO", json.dumps(one))) for one in (reader, writer)))


def record(*fields: tuple[str, Any], name: str = "a.R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields], **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


NODE = record(("next", ["null", "a.R"]), ("value", "long"))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"), ("double", "long"), ("string", "bytes"), (["null", "long"], "int"), (["int", "string"], "int"),
        (record(("x", "long")), record(("x", "int"), ("y", "int"))),
        (record(("x", "int"), name="b.R"), record(("x", "int"))),
        (record(("x", "int"), name="b.S", aliases=["a.R"]), record(("x", "int"))),
        (enum("A", "B"), enum("A")), (enum("A", default="A"), enum("A", "B")),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        (NODE, record(("next", ["null", "a.R"]), ("value", "int"))),
    ],
)  # fmt: skip
def test_wider_types_read_narrower_ones(reader: Any, writer: Any) -> None:
    assert why(reader, writer) is None


@pytest.mark.parametrize(
    ("reader", "writer", "reason"),
    [
        ("int", "long", "the value is of type int there, and long here"),
        ("int", ["null", "int"], "the value is of type int there, and null here"),
        (["null", "string"], "int", "the value is no int there, but one of null, string"),
        (record(("x", "int"), ("y", "int")), record(("x", "int")), "the value has a field y there, not here"),
        (record(("x", "int"), name="S"), record(("x", "int")), "the value is called S there, and a.R here"),
        (enum("A"), enum("A", "B"), "the value has no symbol B there"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "an element of the value is of type"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "the value has 2 bytes"),
        (NODE, record(("next", ["null", "a.R"]), ("value", "string")), "field value of the value is of type long"),
    ],
)
def test_others_do_not_and_the_place_is_named(reader: Any, writer: Any, reason: str) -> None:
    assert (why(reader, writer) or "").startswith(reason)
