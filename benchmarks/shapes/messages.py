"""The messages that `bin/bench shapes` measures: flat ones, nested ones, and ones of 1 KB with keys.

Main types: `Shape`, `Format`. Thread: constants and pure functions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.converters.json.converter import JsonConverter
from penstock.converters.registry.converters import AvroConverter
from penstock.data import SchemaAndValue

#: The key and the value of a message.
Message = tuple[bytes | None, bytes]

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_AVRO: Final = "io.confluent.connect.avro.AvroConverter"


class Format(Enum):
    """How messages are written."""

    JSON = "JSON"
    JSON_WITH_SCHEMAS = "JSON with schemas"
    AVRO = "Avro"

    def converter_settings(self, registry: str) -> dict[str, str]:
        """The converters of a connector for keys and values; `registry`: the address of the schema registry."""
        settings: dict[str, str] = {}
        for side in ("key", "value"):
            settings[f"{side}.converter"] = _AVRO if self is Format.AVRO else _JSON
            if self is Format.AVRO:
                settings[f"{side}.converter.schema.registry.url"] = registry
            else:
                settings[f"{side}.converter.schemas.enable"] = str(self is Format.JSON_WITH_SCHEMAS).lower()
        return settings


@dataclass(frozen=True)
class Shape:
    """Messages of one shape.

    Attributes:
        name: For the table.
        fields: The fields of their JSON schema.
        value: Makes the value of a message of its number.
        keys: Whether they have keys.
        weight: For how many records of the first shape one of these counts, where a number of records is asked for.
        tasks: How many tasks read them.
        compression: Of their record batches.
    """

    name: str
    fields: Sequence[Mapping[str, object]]
    value: Callable[[int], Mapping[str, object]]
    keys: bool = False
    weight: int = 1
    tasks: int = 1
    compression: str = "none"

    def json(self, count: int, *, schemas: bool) -> list[Message]:
        """So many messages as JSON."""
        schema = {"type": "struct", "name": "Shape", "optional": False, "fields": self.fields}
        key_schema = {"type": "string", "optional": False}
        made: list[Message] = []
        for row in range(count):
            key = _json(f"key-{row}", key_schema if schemas else None) if self.keys else None
            made.append((key, _json(self.value(row), schema if schemas else None)))
        return made

    def messages(self, form: Format, count: int, topic: str, registry: str) -> list[Message]:
        """So many messages in a format; of Avro the schemas are registered for a topic."""
        if form is not Format.AVRO:
            return self.json(count, schemas=form is Format.JSON_WITH_SCHEMAS)
        sides = [(_reader(is_key), _avro(registry, is_key)) for is_key in (True, False)]

        def written(message: bytes | None, is_key: bool) -> bytes | None:
            if message is None:
                return None
            reader, writer = sides[0] if is_key else sides[1]
            found: SchemaAndValue = reader.to_connect_data(topic, message)
            return writer.from_connect_data(topic, found.schema, found.value)

        made = [(written(key, True), written(value, False)) for key, value in self.json(count, schemas=True)]
        for _, writer in sides:
            writer.close()
        return [(key, value) for key, value in made if value is not None]


def _json(value: object, schema: object | None) -> bytes:
    whole = value if schema is None else {"schema": schema, "payload": value}
    return json.dumps(whole, separators=(",", ":")).encode()


def _reader(is_key: bool) -> JsonConverter:
    made = JsonConverter()
    made.configure({}, is_key)
    return made


def _avro(registry: str, is_key: bool) -> AvroConverter:
    made = AvroConverter()
    made.configure({"schema.registry.url": registry}, is_key)
    return made


def _field(name: str, kind: str) -> dict[str, object]:
    return {"field": name, "type": kind, "optional": True}


def _flat(row: int) -> Mapping[str, object]:
    chance = random.Random(row)
    return {
        "id": 100_000 + row,
        "name": f"cust-{chance.randrange(99_999):05}",
        "amount": round(1 + chance.random() * 1000, 2),
        "active": chance.random() < 0.5,
        "city": chance.choice(["Bern", "Lyon", "Graz"]),
        "at": 1_700_000_000_000 + row,
        "code": f"{chance.getrandbits(32):08x}",
        "none": None,
        "maybe": None if row % 2 else row % 1000,
        "qty": row % 99,
    }


_FLAT_TYPES: Final = ("int64", "string", "double", "boolean", "string", "int64", "string", "string", "int64", "int64")
FLAT: Final = Shape("flat", [_field(name, kind) for name, kind in zip(_flat(0), _FLAT_TYPES, strict=True)], _flat)
NESTED: Final = Shape(
    "nested",
    [
        _field("id", "int64"),
        {
            "field": "who",
            "type": "struct",
            "name": "Who",
            "optional": True,
            "fields": [_field("n", "string"), _field("a", "int64")],
        },
        {"field": "tags", "type": "array", "optional": True, "items": {"type": "string", "optional": True}},
    ],
    lambda row: {"id": row, "who": {"n": f"name-{row}", "a": row % 90}, "tags": ["red", "green", f"tag-{row}"]},
)
KILOBYTE: Final = Shape(
    "1 KB with keys",
    [_field("id", "int64"), *(_field(f"field{number}", "string") for number in range(10))],
    lambda row: {"id": row, **{f"field{number}": "abcdefghij" * 8 for number in range(10)}},
    keys=True,
    weight=2,
    tasks=4,
    compression="lz4",
)
SHAPES: Final = (FLAT, NESTED, KILOBYTE)
