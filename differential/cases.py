"""Random cases: a chain of stock transforms, converters, and a batch of records.

Main type: ``Cases``. A case is a dict as ``Answers.java`` reads it:

* ``direction``: ``sink`` or ``source``.
* ``schemas``: whether JsonConverter, at both sides, has its schemas.
* ``chain``: ``{"class", "config"}`` each, now and then with ``predicate`` and ``negate``.
* ``records``: as in vectors. Java turns those of a sink into messages first.

Thread: any; an instance belongs to one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from differential.values import NAMES, TEXTS, Values

_TYPES: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
_TOPICS: Final = ("test", "t", "my.topic", "orders-2017")
_PATTERNS: Final = (
    "yyyy-MM-dd",
    "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "EEE, d MMM yyyy",
    "D yyyy",
    "h a",
)
_REGEXES: Final = ("(.*)", "t(.*)", "([a-z]+)-(\\d+)", ".*\\.(.*)", "(?<n>t+).*", "(.*?)(-suffix)?", "\\p{Lower}+")
_TARGETS: Final = ("string", "unix", "Date", "Time", "Timestamp")
_UNITS: Final = ("seconds", "milliseconds", "microseconds", "nanoseconds")
_NO_MESSAGES: Final = ("{bad", "", "null", "[]", "1", '{"a":1}', '{"schema":null,"payload":{"a":1}}')
#: Transforms with a form for keys and one for values.
_SIDED: Final = (
    *("Cast", "ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField", "MaskField", "ReplaceField"),
    *("SetSchemaMetadata", "TimestampConverter"),
)
_OTHERS: Final = ("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey")
_DEFAULTS: Final = frozenset(_SIDED) - {"Flatten", "HoistField"} | {"ValueToKey"}

Json = Any
Settings = dict[str, str]


class Cases:
    """Makes cases.

    Args:
        seed: Equal seeds make equal cases.
        rows: How many records each has.
    """

    def __init__(self, seed: int, rows: int) -> None:
        self._values = Values(random.Random(seed))
        self._rows = rows
        self._settings: Mapping[str, Callable[[Mapping[str, Json], str], Settings]] = {
            "Cast": self._cast,
            "DropHeaders": lambda _record, _side: {"headers": self._values.pick(["a", "b", "a,h"])},
            "ExtractField": self._extract,
            "Flatten": lambda _record, _side: self._maybe("delimiter", ["_", "::", "-", ""]),
            "HeaderFrom": self._header_from,
            "HoistField": lambda _record, _side: {"field": self._values.pick(["f", "a", "x.y"])},
            "InsertField": self._insert,
            "InsertHeader": lambda _record, _side: {"header": "new", "value.literal": self._values.pick(TEXTS)},
            "MaskField": self._mask,
            "RegexRouter": lambda _record, _side: {
                "regex": self._values.pick(_REGEXES),
                "replacement": self._values.pick(["$1", "x", "$0-y", "${n}", "$2$1", "$3"]),
            },
            "ReplaceField": self._replace,
            "SetSchemaMetadata": lambda _record, _side: {
                **self._maybe("schema.name", ["org.new.Name", "x"]),
                **self._maybe("schema.version", ["1", "-1"]),
            },
            "TimestampConverter": self._convert,
            "TimestampRouter": lambda _record, _side: {
                **self._maybe("topic.format", ["${topic}-${timestamp}", "${timestamp}", "x-${topic}"]),
                **self._maybe("timestamp.format", _PATTERNS),
            },
            "ValueToKey": lambda record, _side: {"fields": self._names(record, "value", 3)},
        }

    def case(self) -> dict[str, Json]:
        """One case."""
        pick, likely = self._values.pick, self._values.likely
        direction = pick(["sink", "source"])
        with_schemas = likely(0.6)
        kinds: list[Json] = [
            self._values.schema(pick([1, 2, 3]), struct=likely(0.85)) if with_schemas else None
            for _ in range(pick([1, 1, 2, 4, 8]))
        ]
        key_kind = self._values.schema(1) if with_schemas and likely(0.4) else None
        keyed = likely(0.5)
        records = [self._record(direction, place, pick(kinds), keyed, key_kind) for place in range(self._rows)]
        links = [self._link(pick(records)) for _ in range(pick([1, 2, 3, 4]))]
        return {"direction": direction, "schemas": with_schemas, "chain": links, "records": records}

    def _record(self, direction: str, place: int, kind: Json, keyed: bool, key_kind: Json) -> dict[str, Json]:
        values, pick = self._values, self._values.pick
        record: dict[str, Json] = {
            "recordType": direction,
            "topic": pick(_TOPICS),
            "partition": pick([0, 1, 3]),
            "timestamp": pick([1_483_425_001_864] * 5 + [None, 0]),
            "headers": [
                {"key": pick(["a", "b", "h"]), "schema": {"type": "string"}, "value": pick(TEXTS)}
                for _ in range(pick([0, 0, 1, 2]))
            ],
            "keySchema": None,
            "key": None,
            "valueSchema": kind,
            "value": values.plain_map(3) if kind is None else values.value(kind),
        }
        if keyed:
            record |= {"keySchema": key_kind, "key": values.plain(1) if key_kind is None else values.value(key_kind)}
        if values.likely(0.05):
            record |= {"valueSchema": None, "value": None}
        if direction == "sink":
            record["offset"] = place
            if values.likely(0.04):
                record["message"] = pick(_NO_MESSAGES)
        return record

    # ------------------------------------------------------------------ chains
    def _link(self, record: Mapping[str, Json]) -> dict[str, Json]:
        pick = self._values.pick
        name = pick([*_SIDED * 2, *_OTHERS])
        side = pick(["key", "value", "value", "value"])
        config = self._settings[name](record, side) if name in self._settings else {}
        if name in _DEFAULTS:
            config |= self._maybe("replace.null.with.default", ["true", "false"], share=0.25)
        link: dict[str, Json] = {"class": f"{name}${side.title()}" if name in _SIDED else name, "config": config}
        if self._values.likely(0.25):
            link["predicate"] = pick(
                [
                    {"class": "HasHeaderKey", "config": {"name": pick(["a", "b"])}},
                    {"class": "RecordIsTombstone", "config": {}},
                    {"class": "TopicNameMatches", "config": {"pattern": pick(["t.*", "my.*", "test"])}},
                ]
            )
            link["negate"] = self._values.likely(0.4)
        return link

    def _maybe(self, key: str, choices: tuple[str, ...] | list[str], share: float = 0.6) -> Settings:
        return {key: self._values.pick(choices)} if self._values.likely(share) else {}

    def _name(self, record: Mapping[str, Json], side: str) -> str:
        """Mostly a field that the record has."""
        schema, value = record[f"{side}Schema"], record[side]
        if schema is None:
            there = [name for name in value if not name.startswith("$")] if isinstance(value, dict) else []
        else:
            there = [field["name"] for field in schema.get("fields", ())]
        return str(self._values.pick(there if there and self._values.likely(0.85) else [*NAMES, "nope"]))

    def _names(self, record: Mapping[str, Json], side: str, most: int) -> str:
        found = [self._name(record, side) for _ in range(self._values.random.randint(1, most))]
        return ",".join(dict.fromkeys(found))

    def _cast(self, record: Mapping[str, Json], side: str) -> Settings:
        if self._values.likely(0.3):
            return {"spec": self._values.pick(_TYPES)}
        names = self._names(record, side, 3).split(",")
        return {"spec": ",".join(f"{name}:{self._values.pick(_TYPES)}" for name in names)}

    def _extract(self, record: Mapping[str, Json], side: str) -> Settings:
        name = self._name(record, side)
        if self._values.likely(0.5):
            return {"field": name}
        quoted = f"`{name}`" if "." in name else name
        inner = f".{self._values.pick(['a', 'b', 'id'])}" if self._values.likely(0.4) else ""
        return {"field": f"{quoted}{inner}", "field.syntax.version": "V2"}

    def _header_from(self, record: Mapping[str, Json], side: str) -> Settings:
        names = self._names(record, side, 2)
        headers = ",".join(["h1", "a"][: len(names.split(","))])
        return {"fields": names, "headers": headers, "operation": self._values.pick(["copy", "move"])}

    def _insert(self, record: Mapping[str, Json], side: str) -> Settings:
        fields = ["topic.field", "partition.field", "timestamp.field", "offset.field", "static.field"]
        chosen = self._values.random.sample(fields, self._values.random.randint(1, 3))
        made = {one: f"{self._values.pick(['t', 'p', 'a'])}{self._values.pick(['', '!', '?'])}" for one in chosen}
        return made | ({"static.value": self._values.pick(TEXTS)} if "static.field" in made else {})

    def _mask(self, record: Mapping[str, Json], side: str) -> Settings:
        replacements = ["x", "0", "128", "3.5", "1e3", "NaN", "999999999999"]
        return {"fields": self._names(record, side, 3), **self._maybe("replacement", replacements)}

    def _replace(self, record: Mapping[str, Json], side: str) -> Settings:
        made: Settings = {}
        if self._values.likely(0.4):
            made["exclude"] = self._names(record, side, 2)
        if self._values.likely(0.3):
            made["include"] = self._names(record, side, 3)
        if self._values.likely(0.5):
            made["renames"] = f"{self._name(record, side)}:{self._values.pick(['n1', 'a'])}"
        return made

    def _convert(self, record: Mapping[str, Json], side: str) -> Settings:
        field = "" if self._values.likely(0.3) else self._name(record, side)
        units = self._maybe("unix.precision", _UNITS, share=0.3)
        formats = self._maybe("format", _PATTERNS, share=0.7)
        return {"target.type": self._values.pick(_TARGETS), "field": field, **units, **formats}
