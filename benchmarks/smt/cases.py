"""What `bin/bench smt` measures: each stock transform and converter, and the records they are given.

Main types: `Case` (a row of the table), `Data` (the records). The records are made here as JSON messages, which both
sides read with their own JsonConverter, so that both have the same ones.

Thread: constants and pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

_TRANSFORMS: Final = "org.apache.kafka.connect.transforms"
_CONVERTERS: Final = "org.apache.kafka.connect.converters"
JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER: Final = "org.apache.kafka.connect.storage.StringConverter"
BATCHES: Final = (20, 50_000)
TOPIC: Final = "orders-eu"


class Kind(Enum):
    """What is done with the records: transforms, or a converter in one direction."""

    CHAIN = "chain"
    WRITE = "write"
    READ = "read"


class Data(Enum):
    """The records: their values, and whether they have a header."""

    FLAT = "flat"
    NESTED = "nested"
    TEXT = "text"
    HEADERS = "headers"
    SHORT = "int16"
    INTEGER = "int32"
    LONG = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    BYTES = "bytes"


@dataclass(frozen=True)
class Link:
    """One transform or converter: its Java class and settings."""

    java: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: What the table says.
        kind: What is done.
        links: The transforms in order, or the one converter.
        data: The records.
        typed: Whether they have a schema.
    """

    name: str
    kind: Kind
    links: Sequence[Link]
    data: Data
    typed: bool


def _value(name: str, **settings: str) -> Link:
    return Link(f"{_TRANSFORMS}.{name}$Value", _dotted(settings))


def _plain(name: str, **settings: str) -> Link:
    return Link(f"{_TRANSFORMS}.{name}", _dotted(settings))


def _dotted(settings: Mapping[str, str]) -> Mapping[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


#: Rows of transforms: name, transform, records.
_STEPS: Final[Sequence[tuple[str, Link, Data]]] = (
    ("Cast, two fields", _value("Cast", spec="id:string,amount:int32"), Data.FLAT),
    ("Cast, text to number", _value("Cast", spec="code:int64"), Data.FLAT),
    ("DropHeaders", _plain("DropHeaders", headers="trace"), Data.HEADERS),
    ("ExtractField", _value("ExtractField", field="name"), Data.FLAT),
    ("Flatten", _value("Flatten", delimiter="_"), Data.NESTED),
    ("HeaderFrom, copy", _value("HeaderFrom", fields="city", headers="city", operation="copy"), Data.FLAT),
    ("HeaderFrom, move", _value("HeaderFrom", fields="city", headers="city", operation="move"), Data.FLAT),
    ("HoistField", _value("HoistField", field="payload"), Data.FLAT),
    ("InsertField, static", _value("InsertField", static_field="source", static_value="bench"), Data.FLAT),
    ("InsertField, topic", _value("InsertField", topic_field="topic", timestamp_field="time"), Data.FLAT),
    ("InsertHeader", _plain("InsertHeader", header="source", value_literal="bench"), Data.FLAT),
    ("MaskField", _value("MaskField", fields="name,amount"), Data.FLAT),
    ("MaskField, replacement", _value("MaskField", fields="name", replacement="***"), Data.FLAT),
    ("RegexRouter", _plain("RegexRouter", regex="(.*)-eu", replacement="$1-all"), Data.FLAT),
    ("ReplaceField, exclude", _value("ReplaceField", exclude="city,code"), Data.FLAT),
    ("ReplaceField, include", _value("ReplaceField", include="id,name"), Data.FLAT),
    ("ReplaceField, renames", _value("ReplaceField", renames="id:key,name:customer"), Data.FLAT),
    ("TimestampConverter, to text", _value("TimestampConverter", field="at", target_type="string"), Data.FLAT),
    ("TimestampConverter, from text", _value("TimestampConverter", field="day", target_type="unix"), Data.FLAT),
    ("TimestampRouter", _plain("TimestampRouter", topic_format="${topic}-${timestamp}"), Data.FLAT),
    ("ValueToKey", _plain("ValueToKey", fields="id"), Data.FLAT),
)
_FORMATS: Final = {
    "TimestampConverter, to text": "yyyy-MM-dd HH:mm:ss",
    "TimestampConverter, from text": "yyyy-MM-dd",
}
_SCHEMA_ONLY: Final = (
    "SetSchemaMetadata",
    _value("SetSchemaMetadata", schema_name="bench", schema_version="2"),
    Data.FLAT,
)
#: Filter drops every record.
_FILTER: Final = ("Filter", _plain("Filter"), Data.FLAT)

_WIRE: Final[Sequence[tuple[str, Link, Data, Sequence[bool]]]] = (
    ("JsonConverter", Link(JSON_CONVERTER), Data.FLAT, (True, False)),
    ("StringConverter", Link(STRING_CONVERTER), Data.TEXT, (True, False)),
    ("StringConverter, objects", Link(STRING_CONVERTER), Data.FLAT, (True, False)),
    ("ByteArrayConverter", Link(f"{_CONVERTERS}.ByteArrayConverter"), Data.BYTES, (True,)),
    ("BooleanConverter", Link(f"{_CONVERTERS}.BooleanConverter"), Data.BOOLEAN, (True, False)),
    ("ShortConverter", Link(f"{_CONVERTERS}.ShortConverter"), Data.SHORT, (True,)),
    ("IntegerConverter", Link(f"{_CONVERTERS}.IntegerConverter"), Data.INTEGER, (True,)),
    ("LongConverter", Link(f"{_CONVERTERS}.LongConverter"), Data.LONG, (True, False)),
    ("FloatConverter", Link(f"{_CONVERTERS}.FloatConverter"), Data.FLOAT, (True,)),
    ("DoubleConverter", Link(f"{_CONVERTERS}.DoubleConverter"), Data.DOUBLE, (True, False)),
)
#: Java's text of an object is not read back into one.
_WRITE_ONLY: Final = "StringConverter, objects"

#: The chain of five of the end to end runs, on objects.
FIVE: Final = (
    _value("InsertField", static_field="source", static_value="bench"),
    _value("Cast", spec="amount:string"),
    _value("MaskField", fields="name", replacement="***"),
    _value("ReplaceField", exclude="code", renames="city:town"),
    _value("TimestampConverter", field="at", target_type="string", format="yyyy-MM-dd HH:mm:ss"),
)
#: The chain of two of the batch of fifty schemas.
TWO: Final = (FIVE[0], _value("ReplaceField", renames="id:key"))


def empty(data: Data, *, typed: bool) -> Case:
    """A chain without transforms: what the others are compared with."""
    return Case("no transform", Kind.CHAIN, (), data, typed)


def transform_cases() -> Iterator[Case]:
    """Each stock transform, with schema and without."""
    for name, link, data in (*_STEPS, _FILTER, _SCHEMA_ONLY):
        if name in _FORMATS:
            link = Link(link.java, {**link.settings, "format": _FORMATS[name]})
        for typed in (True, False):
            # Java's SetSchemaMetadata needs a schema.
            if typed or name != _SCHEMA_ONLY[0]:
                yield Case(name, Kind.CHAIN, (link,), data, typed)
    for typed in (True, False):
        yield Case("chain of five", Kind.CHAIN, FIVE, Data.FLAT, typed)


def converter_cases() -> Iterator[Case]:
    """Each stock converter in both directions."""
    for name, link, data, forms in _WIRE:
        for typed in forms:
            settings = {"schemas.enable": str(typed).lower()} if link.java == JSON_CONVERTER else {}
            for kind in (Kind.WRITE, Kind.READ):
                # Those that have one schema for all they read are read once.
                if kind is Kind.READ and (name == _WRITE_ONLY or (not typed and link.java != JSON_CONVERTER)):
                    continue
                yield Case(f"{name}, {kind.value}", kind, (Link(link.java, settings),), data, typed)


def _field(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "optional": False, "field": name}


_FLAT_FIELDS: Final = [
    _field("int64", "id"),
    _field("string", "name"),
    _field("double", "amount"),
    _field("string", "code"),
    _field("int64", "at"),
    _field("string", "day"),
    _field("string", "city"),
]
_NESTED_FIELDS: Final = [
    _field("int64", "id"),
    {**_field("struct", "address"), "fields": [_field("string", "street"), _field("string", "city")]},
    {**_field("struct", "order"), "fields": [_field("double", "amount"), _field("int64", "count")]},
]


def schema_of(data: Data) -> Mapping[str, Any]:
    """The schema of the records' values, as in a message."""
    match data:
        case Data.FLAT | Data.HEADERS:
            return {"type": "struct", "optional": False, "fields": _FLAT_FIELDS}
        case Data.NESTED:
            return {"type": "struct", "optional": False, "fields": _NESTED_FIELDS}
        case Data.TEXT:
            return {"type": "string", "optional": True}
        case _:
            return {"type": data.value, "optional": True}


def payload(data: Data, number: int) -> Any:
    """The value of a record, as JSON has it."""
    match data:
        case Data.FLAT | Data.HEADERS:
            return {
                "id": number,
                "name": f"customer {number}",
                "amount": number / 8 + 0.125,
                "code": str(number * 7),
                "at": 1_700_000_000_000 + number * 1000,
                "day": f"2024-{number % 12 + 1:02}-{number % 28 + 1:02}",
                "city": "Lisbon",
            }
        case Data.NESTED:
            return {
                "id": number,
                "address": {"street": f"{number} High Street", "city": "Lisbon"},
                "order": {"amount": number / 8 + 0.125, "count": number % 9},
            }
        case Data.TEXT:
            return f"line {number}"
        case Data.BOOLEAN:
            return number % 2 == 0
        case Data.FLOAT | Data.DOUBLE:
            return number / 8 + 0.125
        case Data.BYTES:
            return "AAECAwQFBgc="
        case _:
            return number % 30_000


def messages(data: Data, *, typed: bool, count: int) -> Iterator[bytes]:
    """The values as JSON messages."""
    schema = json.dumps(schema_of(data), separators=(",", ":"))
    for number in range(count):
        text = json.dumps(payload(data, number), separators=(",", ":"))
        yield (f'{{"schema":{schema},"payload":{text}}}' if typed else text).encode()
