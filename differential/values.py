"""Random schemas and values, in the notation of the vectors (``conformance.vectors.codec``).

Main type: ``Values``. They are few and odd on purpose: limits, blanks, texts that look like something else. What
Penstock is known to differ in (docs/compatibility.md) is left out, so that each difference that is found counts.

Thread: any; an instance belongs to one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

NAMES: Final = ("a", "b", "c", "d", "ts", "x y", "a.b", "id", "n")
TEXTS: Final = (
    *("", "a", "abc", " 1", "12", "-7", "+5", "1.5", "1e3", "true", "TRUE", "null", "NaN", "128", "1e400", "0x1F"),
    *("2017-01-03", "2017-01-03T10:11:12.123Z", "10:11:12.123Z", "2016-02-29 23:59:60", "1483425001864", "AQI="),
    *("\u00e9\u00df", "\u6f22\u5b57", "\U0001f600", "\u0663", 'a\t"b"\n', "\\", "$1", '{"a":1}', "[1,2]", "\x00"),
)
_LOGICAL: Final = "org.apache.kafka.connect.data."
_RANGES: Final = {"int8": 127, "int16": 32_767, "int32": 2_147_483_647, "int64": 9_223_372_036_854_775_807}
_WHOLE: Final = (0, 1, -1, 5, 127, -128, 300, -32_768, 70_000, 2_147_483_647, 86_400_000, 1_483_425_001_864, 2**40)
_REAL: Final = (0.0, -0.0, 1.0, 1.5, -2.5, 0.1, 1e7, 1e-4, 123456789.125, 1e300, 0.001, 9999999.0, 70000.7)
_REAL32: Final = (0.0, -0.0, 1.0, 1.5, -2.5, 1e10, 3.4028235e38)
_MILLIS: Final = (0, -1, 1, 1_483_425_001_864, 86_399_999, 951_782_400_000, 253_402_300_799_999, -62_135_596_800_000)
_DAYS: Final = (0, 1, -1, 17_169, 11_016, -719_162, 2_932_896)
_BYTES: Final = ("", "YWJj", "AP+A", "AQ==")
_SCALARS: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "bytes")
_TEMPORAL: Final = {"Date": "int32", "Time": "int32", "Timestamp": "int64"}
#: Above this JSON has no exact number everywhere.
_EXACT: Final = 2**53
_DAY_MILLIS: Final = 86_400_000

Json = Any


class Values:
    """Makes schemas and values.

    Args:
        chance: Where the randomness is from.
    """

    def __init__(self, chance: random.Random) -> None:
        self.random = chance

    def likely(self, share: float) -> bool:
        """True in that share of calls."""
        return self.random.random() < share

    def pick(self, choices: Sequence[Json]) -> Json:
        """One of them."""
        return self.random.choice(choices)

    # ------------------------------------------------------------------ with a schema
    def schema(self, depth: int, *, struct: bool = False) -> dict[str, Json]:
        """A schema of at most so many levels."""
        nested = ["struct", "array", "map"] * 3 if depth else []
        kind = "struct" if struct else self.pick([*_SCALARS * 2, *[*_TEMPORAL, "Decimal"] * 2, *nested])
        made = self._bare(kind, depth)
        if self.likely(0.4):
            made["optional"] = True
        if self.likely(0.1):
            made["doc"] = "some doc"
        if self.likely(0.1) and kind in _SCALARS:
            made["name"] = "my.Name"
        if self.likely(0.2) and kind not in ("struct", "array", "map"):
            made["default"] = self.value({**made, "optional": False})
        return made

    def _bare(self, kind: str, depth: int) -> dict[str, Json]:
        if kind in _SCALARS:
            return {"type": kind}
        if kind in _TEMPORAL:
            return {"type": _TEMPORAL[kind], "name": f"{_LOGICAL}{kind}", "version": 1}
        if kind == "Decimal":
            scale = {"scale": self.pick(["0", "2", "5"])}
            return {"type": "bytes", "name": f"{_LOGICAL}Decimal", "version": 1, "parameters": scale}
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "map":
            keys = self.pick([{"type": "string"}, {"type": "string"}, {"type": "int32"}])
            return {"type": "map", "keys": keys, "values": self.schema(depth - 1)}
        names = self.random.sample(NAMES, self.random.randint(1, 4))
        fields = [{"name": name, "schema": self.schema(max(0, depth - 1))} for name in names]
        named = {"name": "org.x.Rec"} if self.likely(0.3) else {}
        return {"type": "struct", "fields": fields, **named}

    def value(self, schema: Mapping[str, Json]) -> Json:
        """A value of a schema; null now and then where it may be."""
        if schema.get("optional") and self.likely(0.25):
            return None
        short = schema.get("name", "").removeprefix(_LOGICAL)
        if short == "Decimal":
            scale = int(schema["parameters"]["scale"])
            return {"$decimal": f"{self.pick([0, 12, -5, 123456789])}.{'30500'[:scale]}".rstrip("."), "$scale": scale}
        if short in _TEMPORAL:
            return {f"${short.lower()}": self._millis(short)}
        match schema["type"]:
            case "array":
                return [self.value(schema["items"]) for _ in range(self.random.randint(0, 3))]
            case "map":
                return self._map(schema)
            case "struct":
                return {field["name"]: self.value(field["schema"]) for field in schema["fields"]}
            case kind:
                return self._scalar(kind)

    def _millis(self, kind: str) -> int:
        if kind == "Date":
            return _DAY_MILLIS * int(self.pick(_DAYS))
        return int(self.pick((0, 1, _DAY_MILLIS - 1) if kind == "Time" else _MILLIS))

    def _map(self, schema: Mapping[str, Json]) -> Json:
        if schema["keys"]["type"] == "string":
            return {self.pick(["k", "l", ""]): self.value(schema["values"]) for _ in range(self.random.randint(0, 3))}
        # In the order of a HashMap, which JSON shows.
        keys = sorted(self.random.sample([1, 2, 3], self.random.randint(0, 3)))
        return {"$map": [[key, self.value(schema["values"])] for key in keys]}

    def _scalar(self, kind: str) -> Json:
        if kind in _RANGES:
            limit = _RANGES[kind]
            return _exact(self.pick([one for one in (*_WHOLE, limit, -limit - 1) if -limit - 1 <= one <= limit]))
        if kind.startswith("float"):
            if self.likely(0.1):
                return {f"${kind}": self.pick(["NaN", "Infinity", "-Infinity"])}
            return self.pick(_REAL if kind == "float64" else _REAL32)
        if kind == "bytes":
            return {"$bytes": self.pick(_BYTES)}
        return self.likely(0.5) if kind == "boolean" else self.pick(TEXTS)

    # ------------------------------------------------------------------ without
    def plain(self, depth: int) -> Json:
        """A schemaless value."""
        kind = self.random.random()
        if depth and kind < 0.15:
            return [self.plain(depth - 1) for _ in range(self.random.randint(0, 3))]
        if depth and kind < 0.3:
            return self.plain_map(depth)
        return self.pick(
            [None, self._scalar("int64"), self._scalar("float64"), self.likely(0.5), *[self.pick(TEXTS)] * 3]
        )

    def plain_map(self, depth: int) -> dict[str, Json]:
        """A schemaless map."""
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        return {name: self.plain(depth - 1) for name in names}


def _exact(number: int) -> Json:
    return number if abs(number) <= _EXACT else {"$int64": str(number)}
