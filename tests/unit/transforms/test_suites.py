"""Every transform that comes with Penstock, through the suite of the authors' kit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.api import ConnectRecord, SinkRecord, SourceRecord
from penstock.config import import_class
from penstock.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    ConnectHeaders,
    SchemaBuilder,
    Struct,
)
from penstock.plugins.kinds import PluginKind
from penstock.plugins.stock import STOCK
from penstock.testing import PluginSuite, TransformSuite
from penstock.transforms.definition import ClassCastError, NullPointerError, UnknownFieldError

ROW = (
    SchemaBuilder.struct()
    .name("Row")
    .field("id", INT32_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("at", INT64_SCHEMA)
    .build()
)
STRUCT = Struct(ROW).put("id", 7).put("name", "pen").put("at", 1_700_000_000_000)
MAP = {"id": 7, "name": "pen", "at": 1_700_000_000_000}
BEFORE_AND_AFTER = (
    SchemaBuilder.struct()
    .field("before", SchemaBuilder.struct().field("id", INT32_SCHEMA).optional().build())
    .field("after", SchemaBuilder.struct().field("id", INT32_SCHEMA).optional().build())
    .field("op", STRING_SCHEMA)
    .build()
)


def headers() -> ConnectHeaders:
    return ConnectHeaders().add_string("trace", "abc").add_string("other", "d")


def rows() -> list[ConnectRecord]:
    """Structs and maps, of sources and of sinks."""
    made: list[ConnectRecord] = []
    for value, schema in ((STRUCT, ROW), (MAP, None)):
        sides: dict[str, Any] = {"value_schema": schema, "key": value, "key_schema": schema, "headers": headers()}
        made.append(SourceRecord({"file": "f"}, {"line": 1}, "t", value, timestamp=1_700_000_000_000, **sides))
        sides["headers"] = headers()
        made.append(SinkRecord("t", 0, 5, value, timestamp=1_700_000_000_000, **sides))
    return made


def changes() -> list[ConnectRecord]:
    """Debezium's envelopes."""
    after = Struct(BEFORE_AND_AFTER.fields[1].schema).put("id", 7)
    value = Struct(BEFORE_AND_AFTER).put("after", after).put("op", "c")
    return [
        SourceRecord({"s": 1}, {"o": 2}, "t", value, value_schema=BEFORE_AND_AFTER),
        SinkRecord("t", 0, 5, {"before": None, "after": {"id": 7}, "op": "c"}),
    ]


#: Settings that are right and wrong, by the names of classes.
SETTINGS: Mapping[str, tuple[dict[str, str], dict[str, str]]] = {
    "Cast": ({"spec": "id:string"}, {"spec": "id:nothing"}),
    "ExtractField": ({"field": "id"}, {}),
    "Flatten": ({}, {}),
    "HeaderFrom": (
        {"fields": "id,name", "headers": "h1,h2", "operation": "copy"},
        {"operation": "steal", "headers": "h1"},
    ),
    "HoistField": ({"field": "inner"}, {}),
    "InsertField": ({"static.field": "made", "static.value": "here"}, {}),
    "MaskField": ({"fields": "name"}, {}),
    "ReplaceField": ({"exclude": "name"}, {"renames": "name"}),
    "SetSchemaMetadata": ({"schema.name": "Other", "schema.version": "2"}, {}),
    "TimestampConverter": ({"field": "at", "target.type": "Timestamp"}, {"target.type": "sometime"}),
    "DropHeaders": ({"headers": "trace"}, {}),
    "Filter": ({}, {}),
    "InsertHeader": ({"header": "made", "value.literal": "here"}, {}),
    "RegexRouter": ({"regex": "(.*)", "replacement": "$1-x"}, {"regex": "("}),
    "TimestampRouter": ({}, {}),
    "ValueToKey": ({"fields": "id"}, {}),
    "Sql": ({"select": "id"}, {}),
    "ExtractNewRecordState": ({}, {"delete.tombstone.handling.mode": "maybe"}),
}
TARGETS = [one.target.replace(":", ".") for one in STOCK if one.kind is PluginKind.TRANSFORMATION]


def given_to(name: str) -> list[ConnectRecord]:
    if name == "ExtractNewRecordState":
        return changes()
    return rows()[:2] if name == "SetSchemaMetadata" else rows()


def suite_of(target: str) -> type[PluginSuite]:
    name = target.rpartition(".")[2]
    bare = next(one for one in sorted(SETTINGS, key=len, reverse=True) if name in (one, f"{one}Key", f"{one}Value"))
    given, refused = SETTINGS[bare]
    body: dict[str, Any] = {
        "transform": import_class(target),
        "settings": given,
        "wrong": refused,
        "__module__": __name__,
    }
    if bare == "Sql":
        # It works on frames, with Spark: tests/real/transforms/test_frame_suites.py has the rest.
        body["make"] = TransformSuite.make
        return type(f"Test{name}", (PluginSuite,), body)
    # They are called as Java's are, since dead letters say so.
    body["told"] = (*TransformSuite.told, ClassCastError, NullPointerError, UnknownFieldError)
    body["records"] = lambda self: given_to(bare)
    return type(f"Test{name}", (TransformSuite,), body)


for _target in TARGETS:
    _suite = suite_of(_target)
    globals()[_suite.__name__] = _suite


def test_there_is_a_suite_for_each_transform() -> None:
    assert sum(name.startswith("Test") for name in globals()) >= len(TARGETS) - 1


@pytest.mark.parametrize("target", TARGETS)
def test_transforms_are_found(target: str) -> None:
    assert import_class(target) is not None
