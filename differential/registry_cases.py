"""Random schemas, values and settings for the converters with a schema registry.

Main type: ``RegistryCases``. Types, optional parts, defaults, nesting, arrays, maps, logical types, enums, unions and
structs that are used more than once cross each other and all settings of a converter. What the compatibility page
lists as different is left out, so that each difference that is found counts.

Thread: any; an instance belongs to one.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any, Final

from differential.values import TEXTS, Values

Json = Any

AVRO: Final = "io.confluent.connect.avro"
PROTOBUF: Final = "io.confluent.connect.protobuf"
_FIELDS: Final = ("a", "b", "c", "id", "key", "value", "some_name", "camelCase", "Z1", "_x")
_NAMES: Final = ("Rec", "org.x.Rec", "org.x.Other", "server-1.db.t.Envelope", "gr\u00fcn.db.Key", "io.y.In_ner", "1a.B")
_DOCS: Final = ("some doc", 'with "quotes"\n', "gr\u00fcn \u6f22", "\x7f\x1f")
_LOGICAL: Final = "org.apache.kafka.connect.data."
_SETTINGS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "AVRO": {
        "enhanced.avro.schema.support": ("true", "false"),
        "connect.meta.data": ("true", "true", "false"),
        "scrub.invalid.names": ("true", "false"),
        "allow.optional.map.keys": ("true", "false"),
        "discard.type.doc.default": ("true", "false", "false"),
    },
    "PROTOBUF": {
        "enhanced.protobuf.schema.support": ("true", "false"),
        "scrub.invalid.names": ("true", "false"),
        "optional.for.nullables": ("true", "false"),
        "optional.for.proto2": ("true", "false"),
        "wrapper.for.nullables": ("true", "false"),
        "wrapper.for.raw.primitives": ("true", "false"),
    },
}


class RegistryCases(Values):
    """Makes cases.

    Args:
        seed: Equal seeds make equal cases.
        kind: ``AVRO`` or ``PROTOBUF``.
    """

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__(random.Random(f"{seed}-{kind}"))
        self.format = kind
        self._avro = kind == "AVRO"
        self._structs: list[dict[str, Json]] = []
        self._config: dict[str, str] = {}
        self._made = 0

    def case(self) -> dict[str, Json]:
        """One case: settings, a schema and a value."""
        self._structs, self._made = [], 0
        config = {name: self.pick(values) for name, values in _SETTINGS[self.format].items() if self.likely(0.4)}
        if self.likely(0.3):
            config = {}
        if self._avro:
            # What the older converter does without being told.
            config["flatten.singleton.unions"] = "false"
        self._config = config
        root = self.schema(3, struct=not self._avro or self.likely(0.7))
        if not self._avro:
            root.pop("optional", None)
        root.pop("default", None)
        return {"format": self.format, "config": config, "schema": root, "value": self._present(root)}

    # ------------------------------------------------------------------ schemas
    def schema(self, depth: int, *, struct: bool = False) -> dict[str, Json]:
        """See ``Values``."""
        if self._structs and not struct and self.likely(0.12):
            return self._used_again()
        if not struct and self.likely(0.12):
            return self._special(depth)
        made = super().schema(depth, struct=struct)
        if not self._avro and not made.get("name", "").startswith(_LOGICAL):
            # Java writes it into a file of proto3, and reads it in place of 0.
            made.pop("default", None)
        if made["type"] == "struct":
            self._structs.append(made)
        elif made["type"] == "map" and self.likely(0.2):
            made["keys"] = {"type": "string", "optional": True}
        if self.likely(0.08) and made["type"] not in ("struct",) and "name" not in made and made["type"] != "map":
            made["version"] = 3
        if self.likely(0.1):
            made["doc"] = self.pick(_DOCS)
        if self.likely(0.1):
            made.setdefault("parameters", {})["p"] = self.pick(["q", "", "gr\u00fcn"])
        if self._config.get("wrapper.for.nullables") == "true" and made["type"] in ("int8", "int16"):
            # The width of a wrapped number is not read by Java.
            made.pop("optional", None)
        if self.likely(0.06) and made["type"] == "array":
            made["items"].setdefault("parameters", {})[f"{PROTOBUF}.Tag"] = str(self.random.randint(1, 5))
        if self.likely(0.06):
            made.setdefault("parameters", {})[f"{AVRO}.field.default"] = "true"
        if self.likely(0.2) and _is_whole(made) and made["type"] in ("array", "map", "struct") and not struct:
            made["default"] = self._present(made)
        return made

    def _bare(self, kind: str, depth: int) -> dict[str, Json]:
        if kind == "struct":
            names = self.random.sample(_FIELDS, self.random.randint(1, 4))
            fields = [{"name": name, "schema": self.schema(max(0, depth - 1))} for name in names]
            self._made += 1
            name = f"{self.pick(_NAMES)}{self._made}" if self.likely(0.7) else None
            made: dict[str, Json] = {"type": "struct", "fields": fields}
            return {**made, "name": name} if name else made
        made = super()._bare(kind, depth)
        if not self._avro and kind == "array":
            while made["items"]["type"] in ("array", "map") or _is_union(made["items"]):
                made["items"] = self.schema(depth - 1)
            made["items"].pop("optional", None) if self.likely(0.5) else None
        if not self._avro and kind == "map":
            # The older converter forgets of which width these are.
            small = ("int8", "int16", "bytes")
            while made["values"]["type"] in small or (
                made["values"]["type"] == "array" and made["values"]["items"]["type"] in small
            ):
                made["values"] = self.schema(depth - 1)
        if not self._avro and kind in ("int32", "int64") and self.likely(0.2):
            kinds = ("sint32", "sfixed32", "uint32", "fixed32") if kind == "int32" else ()
            wide = ("uint32", "fixed32", "uint64", "fixed64", "sint64", "sfixed64")
            made["parameters"] = {f"{PROTOBUF}.Type": self.pick(kinds or wide)}
        return made

    def _used_again(self) -> dict[str, Json]:
        again: dict[str, Json] = copy.deepcopy(self.pick(self._structs))
        for name, value in (("optional", True), ("doc", "other doc"), ("version", 7)):
            if self.likely(0.4):
                again[name] = value
            elif self.likely(0.3):
                again.pop(name, None)
        again.pop("default", None)
        return again

    def _special(self, depth: int) -> dict[str, Json]:
        self._made += 1
        number = self._made
        optional = {"optional": True} if self.likely(0.5) else {}
        # Members of a union are not optional in the older converter when this is set, and cannot be null.
        plain = self._config.get("optional.for.nullables") == "true"
        kind = self.pick(["enum", "union", "fixed"] if self._avro else ["enum"] if plain else ["enum", "union"])
        if kind == "enum":
            space, symbols = (AVRO, ["RED", "gr\u00fcn", "B_1"]) if self._avro else (PROTOBUF, ["RED", "GREEN", "B_1"])
            name = f"{self.pick(['org.x.', '', 's-1.'])}Colour{number}"
            called = name if self._avro else name.rpartition(".")[2]
            parameters = {f"{space}.Enum": called}
            for place, symbol in enumerate(symbols):
                parameters[f"{space}.Enum.{symbol}"] = symbol if self._avro else str(place)
            return {"type": "string", "name": name, "parameters": parameters, **optional}
        if kind == "fixed":
            return {"type": "bytes", "name": f"org.x.F{number}", "parameters": {"connect.fixed.size": "3"}, **optional}
        return self._union(depth, number)

    def _union(self, depth: int, number: int) -> dict[str, Json]:
        if self._avro:
            kinds = {"int": "int32", "long": "int64", "string": "string", "boolean": "boolean", "double": "float64"}
            names = self.random.sample(sorted(kinds), self.random.randint(1, 3))
            fields = [{"name": name, "schema": {"type": kinds[name], "optional": True}} for name in names]
            optional = {"optional": True} if self.likely(0.5) else {}
            return {"type": "struct", "name": f"{AVRO}.Union", "fields": fields, **optional}
        fields = []
        for place, kind in enumerate(self.random.sample(["int32", "string", "boolean", "float64", "bytes"], 2)):
            tag = {f"{PROTOBUF}.Tag": str(100 + 10 * number + place)}
            schema = {"type": kind, "parameters": tag, "optional": True}
            fields.append({"name": f"m{number}_{place}", "schema": schema})
        return {"type": "struct", "name": f"{PROTOBUF}.Union.u{number}", "optional": True, "fields": fields}

    # ------------------------------------------------------------------ values
    def value(self, schema: Mapping[str, Json]) -> Json:
        """See ``Values``."""
        if schema.get("optional") and self.likely(0.25) and not _is_union(schema):
            return None
        return self._present(schema)

    def _present(self, schema: Mapping[str, Json]) -> Json:
        parameters = schema.get("parameters", {})
        if _is_union(schema):
            chosen = self.random.randrange(len(schema["fields"]))
            return {
                one["name"]: self._present(one["schema"]) if place == chosen else None
                for place, one in enumerate(schema["fields"])
            }
        if "connect.fixed.size" in parameters:
            return {"$bytes": "AQID"}
        symbols = [name.rpartition(".Enum.")[2] for name in parameters if ".Enum." in name]
        if symbols:
            return self.pick(symbols)
        return super().value({**schema, "optional": False})

    def _millis(self, kind: str) -> int:
        # Java's calendar is another one before 1582.
        return super()._millis(kind) if self._avro else max(super()._millis(kind), 0)

    def _scalar(self, kind: str) -> Json:
        if kind == "float32":
            return self.pick([0.1, 1.5, -2.5e8, 1e-7, 3.4028235e38, 16777216.0])
        if kind == "float64":
            return self.pick([0.1, -2.5, 1e300, 1e7, 1e-7])
        if kind == "string":
            return self.pick([*TEXTS, "\x1f\x7f", "\ud800x", "\udc00"])
        return super()._scalar(kind)

    def _map(self, schema: Mapping[str, Json]) -> Json:
        if not self._avro:
            # Java reads another value in place of null.
            schema = {**schema, "values": {**schema["values"], "optional": False}}
        made = super()._map(schema)
        return made if schema["keys"]["type"] != "string" else dict(list(made.items())[:2])


def _is_whole(schema: Json) -> bool:
    """True if a default of a schema is one in Java too: there are neither entries nor optional parts in it."""
    if not isinstance(schema, dict):
        return not isinstance(schema, list) or all(map(_is_whole, schema))
    lost = schema.get("optional") or schema.get("type") == "map" or _is_union(schema)
    return not lost and all(map(_is_whole, schema.values()))


def _is_union(schema: Mapping[str, Json]) -> bool:
    return ".Union" in str(schema.get("name", ""))
