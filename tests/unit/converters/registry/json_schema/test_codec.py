"""Which JSON Schemas can read values of another one, by Confluent's rules."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.converters.registry.json_schema.codec import cannot_read

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
TEXT = {"type": "string"}
NULL = {"type": "null"}
TREE = {"type": "object", "properties": {"next": {"$ref": "#"}, "value": INTEGER}}


def struct(closed: bool = False, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    more: dict[str, Any] = {"additionalProperties": False} if closed else {}
    return {"type": "object", "properties": properties, **more, **({"required": list(required)} if required else {})}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (struct(a=INTEGER), struct(a=INTEGER)),
        (struct(a=NUMBER), struct(a=INTEGER)),
        (struct(a=INTEGER), struct(a=INTEGER, b=TEXT)),
        (struct(a=INTEGER, b=TEXT), struct(closed=True, a=INTEGER)),
        (struct(a={**INTEGER, "default": 1}, required=("a",)), struct(a=INTEGER)),
        ({"oneOf": [NULL, INTEGER]}, INTEGER),
        ({"oneOf": [NULL, NUMBER]}, {"oneOf": [NULL, INTEGER]}),
        ({"anyOf": [TEXT, NUMBER, NULL]}, {"oneOf": [NULL, INTEGER]}),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}),
        (TEXT, {**TEXT, "maxLength": 3}),
        ({**INTEGER, "minimum": 1}, {**INTEGER, "minimum": 2}),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}),
        ({}, INTEGER),
        (INTEGER, False),
        ({"$ref": "#/definitions/x", "definitions": {"x": NUMBER}}, INTEGER),
        (TREE, {**TREE, "title": "Tree"}),
        ({**NUMBER, "connect.type": "bytes"}, {**TEXT, "connect.type": "bytes"}),
        ({"type": "object", "additionalProperties": NUMBER}, {"type": "object", "additionalProperties": INTEGER}),
    ],
)
def test_what_is_wider_reads_what_is_narrower(reader: Any, writer: Any) -> None:
    assert cannot_read((reader, {}), (writer, {})) is None


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (struct(a=INTEGER), struct(a=NUMBER), "field a of the value is an integer there, and a number here"),
        (struct(a=INTEGER, b=TEXT), struct(a=INTEGER), 'field b of the value is {"type": "string"} there, and true'),
        (struct(closed=True, a=INTEGER), struct(closed=True, a=INTEGER, b=TEXT), "field b of the value is false there"),
        (struct(a=INTEGER, required=("a",)), struct(a=INTEGER), "field a of the value is required there"),
        (INTEGER, {"oneOf": [NULL, INTEGER]}, "the value is number there, and oneOf here"),
        ({"oneOf": [NULL, INTEGER]}, {"oneOf": [NULL, TEXT]}, "the value is"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, 'the value has no "b" there'),
        ({**TEXT, "maxLength": 3}, TEXT, "maxLength of the value is 3 there, and None here"),
        ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, "pattern of the value"),
        ({**INTEGER, "minimum": 2}, {**INTEGER, "minimum": 1}, "minimum of the value is 2 there, and 1 here"),
        ({"type": "array", "items": INTEGER}, {"type": "array", "items": TEXT}, "an element of the value is number"),
        (struct(next=struct(a=TEXT)), struct(next=struct(a=INTEGER)), "field a of field next of the value is string"),
        (INTEGER, {}, "the value is"),
        (False, INTEGER, "the value is"),
    ],
)
def test_what_is_narrower_does_not_and_the_place_is_named(reader: Any, writer: Any, why: str) -> None:
    assert (cannot_read((reader, {}), (writer, {})) or "").startswith(why)


def test_references_are_followed_on_both_sides() -> None:
    texts = {"number.json": '{"type": "number"}', "text.json": '{"type": "string"}'}
    to_number, to_text = ({"$ref": name} for name in texts)

    assert cannot_read((to_number, texts), (INTEGER, {})) is None
    assert cannot_read((to_text, texts), (to_number, texts)) == "the value is string there, and number here"
