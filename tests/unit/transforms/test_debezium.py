"""What ExtractNewRecordState does beyond what was recorded of Debezium: maps without schema, old and wrong settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.api import SinkRecord
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, ConnectHeaders, Header, Schema, SchemaBuilder, Struct
from penstock.errors import ConfigException, DataException
from penstock.plugins import PluginKind, Plugins
from penstock.transforms.debezium import (
    Deletes,
    ExtractNewRecordState,
    ExtractNewRecordStateConfig,
    FieldReference,
    Unwrap,
)

SOURCE = {"table": "t", "ts_ms": 7}


def applied(
    value: object, settings: Mapping[str, object] | None = None, *, schema: Schema | None = None, **more: object
) -> SinkRecord | None:
    transform = ExtractNewRecordState()
    transform.configure(settings or {})
    record = SinkRecord("topic", 0, 0, value, value_schema=schema, **more)  # type: ignore[arg-type]
    return transform.apply(record)


def map_of(op: str, before: object, after: object) -> dict[str, object]:
    return {"op": op, "before": before, "after": after, "source": SOURCE, "ts_ms": 9}


def test_both_names_find_the_class() -> None:
    plugins = Plugins.discover()

    for name in ("io.debezium.transforms.ExtractNewRecordState", "ExtractNewRecordState"):
        assert isinstance(plugins.new(PluginKind.TRANSFORMATION, name), ExtractNewRecordState)


@pytest.mark.parametrize(
    ("settings", "deletes", "keeps"),
    [
        ({}, Deletes.KEEP_SCHEMA, False),
        ({"delete.tombstone.handling.mode": ""}, Deletes.KEEP_SCHEMA, False),
        ({"delete.tombstone.handling.mode": "Delete-To-Tombstone"}, Deletes.EMPTY, False),
        ({"drop.tombstones": "true"}, Deletes.DROP, False),
        ({"drop.tombstones": "false"}, Deletes.DROP, True),
        ({"delete.handling.mode": "none"}, Deletes.KEEP_SCHEMA, False),
        ({"delete.handling.mode": "REWRITE", "drop.tombstones": "false"}, Deletes.REWRITE, True),
        ({"delete.handling.mode": "rewrite", "delete.tombstone.handling.mode": "drop"}, Deletes.DROP, False),
    ],
)
def test_the_older_settings_hold_where_the_newer_is_not_set(
    settings: Mapping[str, object], deletes: Deletes, keeps: bool
) -> None:
    assert ExtractNewRecordStateConfig.parse(settings).handling() == (deletes, keeps)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("op", FieldReference(None, "op", "__op")),
        (" table ", FieldReference("source", "table", "__table")),
        ("total_order:order", FieldReference("transaction", "total_order", "__order")),
        ("source.ts_ms", FieldReference("source", "ts_ms", "__source_ts_ms")),
        ("a.b:C", FieldReference("a", "b", "__C")),
    ],
)
def test_a_field_of_the_envelope_is_read(text: str, expected: FieldReference) -> None:
    assert FieldReference.parse("__", text) == expected


@pytest.mark.parametrize("text", ["", "a:b:c", "a:", ".a", "a."])
@pytest.mark.parametrize("name", ["add.fields", "add.headers"])
def test_what_names_no_field_is_refused_with_its_setting(name: str, text: str) -> None:
    with pytest.raises(ConfigException, match=rf"configuration {name}: .*FIELD or STRUCT.FIELD"):
        ExtractNewRecordState().configure({name: [text]})


def test_a_wrong_mode_is_refused() -> None:
    with pytest.raises(ConfigException, match="DELETE-TO-TOMBSTONE"):
        ExtractNewRecordState().configure({"delete.tombstone.handling.mode": "delete"})


def test_a_change_without_schema_becomes_its_row() -> None:
    found = applied(map_of("u", {"id": 1}, {"id": 2}), {"add.fields": "op,table,none", "add.headers": "source.ts_ms"})

    assert found is not None
    assert (found.value, found.value_schema) == ({"id": 2, "__op": "u", "__table": "t"}, None)
    assert list(found.headers) == [Header("__source_ts_ms", 7)]


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        ("tombstone", None),
        ("delete-to-tombstone", None),
        ("rewrite", {"id": 1, "__deleted": "true"}),
        ("rewrite-with-tombstone", {"id": 1, "__deleted": "true"}),
    ],
)
def test_a_delete_without_schema_goes_by_the_mode(mode: str, value: object) -> None:
    found = applied(map_of("d", {"id": 1}, None), {"delete.tombstone.handling.mode": mode})

    assert found is not None
    assert found.value == value


def test_a_delete_and_a_truncate_are_dropped() -> None:
    assert applied(map_of("d", {"id": 1}, None), {"delete.tombstone.handling.mode": "drop"}) is None
    assert applied(map_of("t", None, None)) is None


@pytest.mark.parametrize("value", [{"id": 1}, {"op": "c", "after": {}}, "text", [1], {"source": 1, "op": 2}])
def test_what_is_no_envelope_passes(value: object) -> None:
    found = applied(value)

    assert found is not None
    assert found.value == value


def test_a_row_that_is_no_map_is_refused() -> None:
    with pytest.raises(DataException, match='"after" of a change must be a map of columns; it is 5'):
        applied(map_of("c", None, 5))


def test_a_row_without_schema_is_routed() -> None:
    for text, topic in (("t2", "t2"), (" \t", "topic"), (None, "topic")):
        found = applied(map_of("c", None, {"dst": text}), {"route.by.field": "dst"})
        assert found is not None
        assert found.topic == topic
    with pytest.raises(DataException, match="Field 'dst' is not of type STRING"):
        applied(map_of("c", None, {"dst": 5}), {"route.by.field": "dst"})
    with pytest.raises(DataException, match="dst is not a valid field name"):
        applied(map_of("c", None, {}), {"route.by.field": "dst"})


def test_the_fields_that_a_header_names_are_removed_from_maps_and_keys() -> None:
    found = applied(
        map_of("c", None, {"id": 1, "secret": 2}),
        {"drop.fields.header.name": "gone", "drop.fields.from.key": "true"},
        key={"id": 1, "secret": 2},
        headers=ConnectHeaders([Header("gone", ["secret"])]),
    )

    assert found is not None
    assert (found.key, found.value) == ({"id": 1}, {"id": 1})


def test_a_header_that_holds_no_list_is_refused() -> None:
    headers = ConnectHeaders([Header("gone", "secret", STRING_SCHEMA)])

    with pytest.raises(DataException, match=r'header "gone" \(drop.fields.header.name\) must hold a list'):
        applied(map_of("c", None, {"id": 1}), {"drop.fields.header.name": "gone"}, headers=headers)


def test_a_field_of_a_struct_that_the_envelope_lacks_is_left_out() -> None:
    row = SchemaBuilder.struct().field("id", INT32_SCHEMA).optional().build()
    schema = SchemaBuilder.struct().name("t.Envelope").field("before", row).field("after", row).build()
    value = Struct.unchecked(schema, [None, Struct.unchecked(row, [1])])

    found = applied(value, {"add.fields": "total_order,lsn,op", "add.headers": "id"}, schema=schema)

    assert found is not None
    assert isinstance(found.value, Struct)
    assert [one.name for one in found.value.schema.fields] == ["id"]
    assert not list(found.headers)


def test_equal_settings_are_equal_steps() -> None:
    steps = []
    for _ in range(2):
        transform = ExtractNewRecordState()
        transform.configure({"add.fields": "op"})
        steps.append(transform.step())

    assert isinstance(steps[0], Unwrap)
    assert steps[0] == steps[1]
    assert hash(steps[0]) == hash(steps[1])
