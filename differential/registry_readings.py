"""Schemas that others registered, with payloads to read; and latest schemas of subjects, with values to write.

Main functions: ``readings``, ``with_the_latest``: cases of ``differential.registry``, chosen by hand.

Thread: pure functions.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any, Final

import fastavro

Json = Any
_ENHANCED: Final = ({"enhanced.avro.schema.support": "true"}, {"enhanced.avro.schema.support": "false"})


def readings() -> Iterator[dict[str, Json]]:
    """Cases with ``theirs``: a schema and a payload."""
    yield from _avro_bytes()
    yield from _avro_unions()
    yield from _avro_defaults()
    yield from _avro_properties()
    yield from _protobuf_wrappers()
    yield from _protobuf_fields()


def with_the_latest() -> Iterator[dict[str, Json]]:
    """Cases with ``latest``: the schema that values are written with; each with the check and without it."""
    for kind, latest, schema, value in (*_avro_latest(), *_protobuf_latest()):
        for strict in ("true", "false"):
            config = {"auto.register.schemas": "false", "use.latest.version": "true"}
            config["latest.compatibility.strict"] = strict
            yield {"format": kind, "config": config, "latest": latest, "schema": schema, "value": value}


# ------------------------------------------------------------------------------------------------ Avro
def _read(kind: str, text: str, payload: bytes, config: dict[str, str] | None = None) -> dict[str, Json]:
    # The older converter does not know the setting, and does what this says.
    config = {**({"flatten.singleton.unions": "false"} if kind == "AVRO" else {}), **(config or {})}
    theirs = {"text": text, "payload": base64.b64encode(payload).decode()}
    return {"format": kind, "config": config, "theirs": theirs}


def _avro(schema: Json, payload: bytes, config: dict[str, str] | None = None) -> dict[str, Json]:
    return _read("AVRO", json.dumps(schema), payload, config)


def _written(schema: Json, value: Json, config: dict[str, str] | None = None) -> dict[str, Json]:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return _avro(schema, stream.getvalue(), config)


def _record(*fields: Json, name: str = "R", **more: Json) -> dict[str, Json]:
    return {"type": "record", "name": name, "namespace": "a.b", "fields": list(fields), **more}


def _field(name: str, kind: Json, **more: Json) -> dict[str, Json]:
    return {"name": name, "type": kind, **more}


def _avro_bytes() -> Iterator[dict[str, Json]]:
    for data in (b"\0", b"\1", b"\5", b"\x80"):
        yield _avro("boolean", data)
    yield _avro(_record(_field("b", "boolean"), _field("c", ["null", "boolean"])), b"\x05\x02\x07")
    yield _avro(["boolean", "int"], b"\0\x05")
    yield _avro({"type": "array", "items": "boolean"}, b"\x04\x01\x05\0")
    yield _avro(_record(_field("b", ["null", "boolean", "string"])), b"\x02\x05")
    yield _avro("string", b"\x06a\xffb")
    yield _avro("string", b"\x06\xed\xa0\x80")
    yield _avro(_record(_field("s", ["null", "string"])), b"\x02\x04\xc3\x28")
    yield _avro({"type": "map", "values": "string"}, b"\x02\x02\xff\x02\xfe\0")
    yield _avro({"type": "fixed", "name": "x.F", "size": 2}, b"ab")
    yield _avro("bytes", b"ab")


def _avro_unions() -> Iterator[dict[str, Json]]:
    a, b = (_record(_field("x", "int"), name=name) for name in ("A", "B"))
    other = {"type": "record", "name": "A", "namespace": "c.d", "fields": [_field("y", "string")]}
    enum = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
    fixed = [{"type": "fixed", "name": name, "size": 2} for name in ("F", "G")]
    yield _written(["string"], "x")
    yield _written([{"type": "record", "name": "Q", "fields": [_field("a", "int")]}], {"a": 3})
    yield _written(_record(_field("u", ["string"], default="d")), {"u": "x"})
    yield _written(_record(_field("u", ["int"])), {"u": 3}, {"connect.meta.data": "false"})
    for config in _ENHANCED:
        for value in (("a.b.A", {"x": 1}), ("a.b.B", {"x": 1}), None):
            yield _written(_record(_field("u", ["null", a, b])), {"u": value}, config)
        for branch in (("c.d.A", {"y": "s"}), ("a.b.A", {"x": 1})):
            yield _written(_record(_field("u", ["null", a, other])), {"u": branch}, config)
        yield _written([a, other], ("c.d.A", {"y": "s"}), config)
        for text in (("a.b.E", "X"), "X"):
            yield _written(_record(_field("u", ["null", enum, "string"])), {"u": text}, config)
        for data in (("a.b.G", b"ab"), b"ab"):
            yield _written(_record(_field("u", ["null", *fixed, "bytes"])), {"u": data}, config)
    yield _avro(["null", "int"], b"\x02\x06")
    yield _avro(["null", "string", "int"], b"\x04\x06")
    yield _avro(["int", "long"], b"\x02\x06")
    yield _avro({"type": "array", "items": ["null", "string"]}, b"\x02\x00\0")


def _avro_defaults() -> Iterator[dict[str, Json]]:
    fields = [
        _field("a", "int", default=5),
        _field("b", "string", default="x"),
        _field("c", ["null", "int"], default=None),
        _field("d", ["int", "null"], default=7),
        _field("e", ["null", "int", "string"], default=None),
        _field("g", {"type": "int", "connect.default": 9}),
        _field("h", ["null", {"type": "int", "connect.default": 9}], default=None),
        _field("i", {"type": "array", "items": "int"}, default=[1, 2]),
        _field("j", {"type": "map", "values": "int"}, default={"a": 1}),
        _field("k", "float", default=0.1),
        _field("l", "double", default=0.1),
        _field("m", "bytes", default="\u00ff"),
        _field("n", "boolean", default=True),
        _field("o", "long", default=5),
    ]
    value = {"a": 1, "b": "s", "c": None, "d": None, "e": None, "g": 1, "h": None, "i": [], "j": {}, "k": 1.5}
    yield _written(_record(*fields), {**value, "l": 2.5, "m": b"a", "n": False, "o": 3})
    inner = _record(_field("x", "int", default=3), _field("y", ["null", "string"], default=None), name="In")
    yield _written(_record(_field("r", inner, default={"x": 4, "y": None})), {"r": {"x": 1, "y": "s"}})
    date, time = {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"}
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    number = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    yield _avro(
        _record(
            _field("d", date, default=5),
            _field("t", time, default=7),
            _field("m", moment, default=9),
            _field("n", ["null", date]),
        ),
        b"\x02\x04\x06\x02\x08",
    )
    yield _avro(_record(_field("d", number, default="\u0001")), b"\x02\x7b")
    yield _avro(number, b"\x02\x7b")


def _avro_properties() -> Iterator[dict[str, Json]]:
    enum = {"type": "enum", "name": "E", "symbols": ["X", "Y"], "doc": "ed", "default": "Y"}
    told = _field("i", {"type": "int", "connect.doc": "cd"}, doc="id", default=4)
    for config in (*_ENHANCED, {"discard.type.doc.default": "true"}, {"connect.meta.data": "false"}):
        schema = _record(_field("e", enum, doc="fd", default="X"), told, doc="rd")
        yield _written(schema, {"e": "Y", "i": 3}, config)
    for kind, logical in (
        ("int", "time-micros"), ("long", "timestamp-micros"), ("long", "time-micros"), ("int", "bogus"),
    ):  # fmt: skip
        yield _avro({"type": kind, "logicalType": logical}, b"\x02")
    yield _avro({"type": "string", "logicalType": "uuid"}, b"\x02a")
    yield _avro({"type": "int", "connect.type": "int8"}, b"\x90\x03")
    said = {"connect.version": 3, "connect.name": "n.N", "connect.parameters": {"a": "b"}, "connect.doc": "d"}
    yield _avro({"type": "int", "connect.type": "int16", **said, "connect.default": 4}, b"\x02")
    yield _avro({"type": "string", "avro.java.string": "String", "avro": "x"}, b"\x02a")
    yield _avro(_record(_field("s", {"type": "string", "avro.java.string": "String"})), b"\x02a")
    yield _avro({"type": "record", "name": "server-1.x.R", "fields": [_field("a", "int")]}, b"\x02")
    yield _avro({"type": "record", "name": "R", "namespace": "s-1.x", "fields": [_field("gr\u00fcn", "int")]}, b"\x02")
    yield _avro({"type": "enum", "name": "E", "symbols": ["gr\u00fcn", "b"]}, b"\x00")
    entry = [_field("key", "int"), _field("value", "string")]
    yield _avro({"type": "array", "items": _record(*entry, name="MapEntry")}, b"\x02\x02\x02a\0")
    own = {"type": "record", "name": "MapEntry", "namespace": "io.confluent.connect.avro", "fields": entry}
    yield _avro({"type": "array", "items": own}, b"\x02\x02\x02a\0")
    marked = {**_record(*entry, name="M"), "connect.internal.type": "MapEntry"}
    yield _avro({"type": "array", "items": marked}, b"\x02\x02\x02a\0")


def _avro_latest() -> Iterator[tuple[str, str, Json, Json]]:
    def latest(*fields: Json, **more: Json) -> str:
        return json.dumps({**_record(*fields), "namespace": "a", **more})

    whole, number, real = {"type": "int32"}, {"type": "int64"}, {"type": "float64"}
    x = {"x": 1}
    optional = {**whole, "optional": True}
    for fields, more, schema, value in (
        ([_field("x", "long")], {}, _struct(x=whole), x),
        ([_field("x", "double")], {}, _struct(x=whole), x),
        ([_field("x", "int")], {}, _struct(x=number), x),
        ([_field("x", ["null", "int"], default=None)], {}, _struct(x=whole), x),
        ([_field("x", "int")], {}, _struct(x=optional), x),
        ([_field("x", "int")], {}, _struct(x=whole, y={"type": "string"}), {"x": 1, "y": "z"}),
        ([_field("z", "int", aliases=["x"])], {}, _struct(x=whole), x),
        ([_field("x", "int")], {"name": "Other"}, _struct(x=whole), x),
        ([_field("x", "int")], {"namespace": "b"}, _struct(x=whole), x),
        ([_field("x", "string")], {}, _struct(x={"type": "bytes"}), {"x": {"$bytes": "YQ=="}}),
        ([_field("x", "float")], {}, _struct(x=real), {"x": 0.5}),
    ):
        yield "AVRO", latest(*fields, **more), schema, value
    yield "AVRO", '"long"', whole, 3
    yield "AVRO", '["null","int"]', whole, 3


def _struct(name: str = "a.R", **fields: Json) -> dict[str, Json]:
    return {"type": "struct", "name": name, "fields": [{"name": one, "schema": kind} for one, kind in fields.items()]}


# ------------------------------------------------------------------------------------------------ Protobuf
_IMPORTS: Final = "\n".join(
    f'import "google/{name}.proto";' for name in ("protobuf/wrappers", "protobuf/timestamp", "type/date")
)


def _proto(body: str, payload: bytes, syntax: str = "proto3", package: str = "a", **config: str) -> dict[str, Json]:
    text = f'syntax = "{syntax}";\npackage {package};\n{_IMPORTS}\n{body}\n'
    return _read("PROTOBUF", text, b"\0" + payload, {name.replace("_", "."): one for name, one in config.items()})


def _protobuf_wrappers() -> Iterator[dict[str, Json]]:
    kinds = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    fields = " ".join(f"google.protobuf.{kind}Value f{place} = {place};" for place, kind in enumerate(kinds, 1))
    nested = "In n = 22; message In { google.protobuf.BoolValue b = 1; }"
    several = "repeated google.protobuf.Int32Value r = 20; map<string, google.protobuf.StringValue> m = 21;"
    union = "oneof u { google.protobuf.Int32Value w = 23; google.protobuf.StringValue s = 25; }"
    payloads = (
        b"",
        b"\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x3a\x00\x42\x00\x4a\x00",
        b"\x22\x0b\x08" + b"\xff" * 9 + b"\x01\x32\x06\x08\xff\xff\xff\xff\x0f",
        b"\xa2\x01\x02\x08\x07\xaa\x01\x08\x0a\x01k\x12\x03\x0a\x01v\xb2\x01\x04\x0a\x02\x08\x01",
        b"\xba\x01\x02\x08\x05",
        b"\xca\x01\x03\x0a\x01x",
    )
    for config in (
        {},
        {"wrapper_for_raw_primitives": "false"},
        {"wrapper_for_nullables": "true"},
        {"wrapper_for_nullables": "true", "wrapper_for_raw_primitives": "false"},
        {"enhanced_protobuf_schema_support": "true"},
        {"optional_for_nullables": "true"},
    ):
        for payload in payloads:
            yield _proto(f"message M {{ {fields} {several} {nested} {union} }}", payload, **config)


def _protobuf_fields() -> Iterator[dict[str, Json]]:
    for data in (b"\x0a\x03a\xffb", b"\x0a\x03\xed\xa0\x80"):
        yield _proto("message M { string s = 1; }", data)
        yield _proto("message M { optional string s = 1; }", data, "proto2")
    for config in ({}, {"optional_for_nullables": "true"}, {"optional_for_proto2": "false"}):
        for data in (b"", b"\x08\x05\x12\x01x"):
            yield _proto("message M { optional int32 a = 1; optional string b = 2; }", data, **config)
            old = "message M { optional int32 a = 1 [default = 7]; optional string b = 2; required int32 c = 3; }"
            yield _proto(old, data + b"\x18\x01", "proto2", **config)
    deep = "message Deep { int32 z = 1; } Deep d = 3;"
    for config in ({}, {"enhanced_protobuf_schema_support": "true"}):
        for data in (b"\x08\x01", b"\x08\x05", b""):
            yield _proto("enum E { A = 0; B = 1; } message M { E e = 1; repeated E r = 2; }", data, **config)
            two = "message M { E e = 1; F g = 2; enum E { A = 0; B = 1; } enum F { A = 0; C = 1; } }"
            yield _proto(two, data + b"\x10\x01", **config)
        for package in ("server-1.db.t", "1a", "plain"):
            body = (
                f"message Envelope {{ Inner before = 1; .{package}.Inner after = 2; repeated Inner all = 4; {deep} }}"
            )
            body += " message Inner { int32 x = 1; }"
            data = b"\x0a\x02\x08\x05\x12\x00\x1a\x02\x08\x01\x22\x02\x08\x07"
            yield _proto(body, data, package=package, **config)
    moments = "google.protobuf.Timestamp t = 1; google.type.Date d = 2; repeated google.type.Date r = 3;"
    more = "map<int32, google.protobuf.Timestamp> m = 4;"
    yield _proto(f"message M {{ {moments} {more} }}", b"\x0a\x02\x08\x05\x12\x07\x08\xe8\x0f\x10\x02\x18\x1d")
    numbers = "uint32 a = 1; fixed32 b = 2; uint64 c = 3; fixed64 d = 4; sint32 e = 5; sfixed64 g = 6;"
    most = b"\x08\xff\xff\xff\xff\x0f\x15\xff\xff\xff\xff\x18" + b"\xff" * 9 + b"\x01\x21" + b"\xff" * 8
    yield _proto(f"message M {{ {numbers} repeated uint32 r = 7; }}", most + b"\x28\x03\x3a\x05\xff\xff\xff\xff\x0f")


def _protobuf_latest() -> Iterator[tuple[str, str, Json, Json]]:
    whole, text = {"type": "int32"}, {"type": "string"}
    x = {"x": 1}
    inner = _struct("In", a=whole)
    for body, package, schema, value in (
        ("int64 x = 1;", "a", _struct(x=whole), x),
        ("int32 x = 1;", "a", _struct(x=whole, y=text), {"x": 1, "y": "z"}),
        ("int32 x = 1; string y = 2;", "a", _struct(x=whole), x),
        ("int32 x = 1;", "b", _struct(x=whole), x),
        ("bytes x = 1;", "a", _struct(x=text), {"x": "a"}),
        ("oneof u { int32 x = 1; string y = 2; }", "a", _struct(x=whole), x),
        ("In x = 1; message In { int32 a = 1; }", "a", _struct(x=inner), {"x": {"a": 1}}),
        ("Oth x = 1; message Oth { int32 a = 1; }", "a", _struct(x=inner), {"x": {"a": 1}}),
    ):
        yield "PROTOBUF", f'syntax = "proto3"; package {package}; message R {{ {body} }}', schema, value
