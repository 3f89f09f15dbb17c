"""Avro schemas as columns of random values, with the hints of ``arg.properties``, and the built-in schemas.

Main function: ``records_of``. Main object: ``QUICKSTARTS``, by the names that ``quickstart`` takes. Pure; any thread.

Source: Apache Avro, Specification, "Schema Declaration"; for the hints, Confluent's avro-random-generator, README; the
names and fields of ``QUICKSTARTS`` are those of Confluent's kafka-connect-datagen, the values are Penstock's own.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.api.arrow import connect_schema
from penstock.connectors.datagen.columns import (
    Affixed,
    Booleans,
    Constant,
    Floats,
    Integers,
    Lists,
    Nullable,
    Options,
    RecordGenerator,
    Steps,
    Texts,
    ValueGenerator,
)
from penstock.data import Date, Field, Schema, Time, Timestamp, Type
from penstock.errors import ConfigException

_KNOWN: Final = frozenset({"options", "range", "iteration", "length", "prefix", "suffix", "odds"})
_INTEGERS: Final[Mapping[str, tuple[pa.DataType, Type, int]]] = {
    "int": (pa.int32(), Type.INT32, 32),
    "long": (pa.int64(), Type.INT64, 64),
}
_FLOATS: Final[Mapping[str, tuple[pa.DataType, Type]]] = {
    "float": (pa.float32(), Type.FLOAT32),
    "double": (pa.float64(), Type.FLOAT64),
}
_LOGICAL: Final[Mapping[str, str]] = {
    "date": Date.LOGICAL_NAME,
    "time-millis": Time.LOGICAL_NAME,
    "timestamp-millis": Timestamp.LOGICAL_NAME,
}
#: The length of a text or an array without a hint.
_LENGTH: Final = (8, 16)
_ITEMS: Final = (1, 5)
_MOST: Final = 100_000


def records_of(avro: object) -> RecordGenerator:
    """The columns of a record schema.

    Raises:
        ConfigException: It is no record schema, or has a type or a hint that is not known; it names the field.
    """
    if not isinstance(avro, Mapping) or avro.get("type") != "record":
        raise ConfigException('the schema must be an Avro record: {"type": "record", "name": .., "fields": [..]}')
    found = _Reader().column(avro, "the record")
    assert isinstance(found, RecordGenerator), "the type is record"
    return found


class _Reader:
    """Reads one schema; knows the named types that were read before."""

    def __init__(self) -> None:
        self._named: dict[str, ValueGenerator | None] = {}

    def column(self, avro: object, where: str) -> ValueGenerator:
        """The column of a type, with or without hints."""
        if isinstance(avro, str):
            if avro in self._named:
                known = self._named[avro]
                if known is None:
                    raise _fault(where, f"the type {avro} contains itself")
                return known
            avro = {"type": avro}
        if isinstance(avro, list):
            return self._union(avro, where)
        if not isinstance(avro, Mapping) or "type" not in avro:
            raise _fault(where, f"{avro!r:.80} is no Avro type")
        kind = avro["type"]
        if isinstance(kind, (list, Mapping)) or kind in self._named:
            hints = avro.get("arg.properties")
            return self.column(
                {**kind, "arg.properties": hints} if hints and isinstance(kind, Mapping) else kind, where
            )
        hints = _hints(avro.get("arg.properties", {}), where)
        name = str(avro.get("name", ""))
        if kind in ("record", "enum", "fixed") and name:
            self._named[name] = None
        try:
            found = self._typed(str(kind), avro, hints, where)
        except (TypeError, ValueError, KeyError, pa.ArrowException, decimal.DecimalException) as error:
            raise _fault(where, f"{type(error).__name__}: {error}") from error
        if kind in ("record", "enum", "fixed") and name:
            self._named[name] = found
        return found

    def _union(self, avro: list[Any], where: str) -> ValueGenerator:
        others = [one for one in avro if one != "null"]
        if len(others) > 1 or not avro:
            raise _fault(where, "a union must be of null and one other type")
        if not others:
            return self.column("null", where)
        inner = self.column(others[0], where)
        if len(avro) == 1:
            return inner
        return Nullable(_optional(inner.schema), inner.type, inner, 0.5)

    def _typed(self, kind: str, avro: Mapping[str, Any], hints: Mapping[str, Any], where: str) -> ValueGenerator:
        if kind == "record":
            return self._record(avro, hints, where)
        if kind == "array":
            items = self.column(avro["items"], f"{where}[]")
            type_ = pa.list_(pa.field("item", items.type, nullable=items.schema.optional))
            schema = Schema(Type.ARRAY, value_schema=items.schema)
            return _options(schema, type_, hints) or Lists(schema, type_, items, *_length(hints, _ITEMS))
        if kind == "map":
            values = self.column(avro["values"], f"{where}{{}}")
            type_ = pa.map_(pa.string(), pa.field("value", values.type, nullable=values.schema.optional))
            schema = Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=values.schema)
            return Lists(schema, type_, values, *_length(hints, _ITEMS))
        if kind in _INTEGERS:
            return _integers(kind, avro, hints)
        if kind in _FLOATS:
            return _floats(kind, hints)
        if kind in ("string", "bytes", "enum", "fixed"):
            return _text(kind, avro, hints)
        if kind == "boolean":
            schema = Schema(Type.BOOLEAN)
            return _options(schema, pa.bool_(), hints) or Booleans(schema, pa.bool_(), float(hints.get("odds", 0.5)))
        if kind == "null":
            return Constant(Schema(Type.STRING, optional=True), pa.string())
        raise _fault(where, f'the type "{kind}" is not known')

    def _record(self, avro: Mapping[str, Any], hints: Mapping[str, Any], where: str) -> ValueGenerator:
        fields, names, columns, arrow = [], [], [], []
        for index, one in enumerate(avro["fields"]):
            name = str(one["name"])
            if name in names:
                raise _fault(where, f'the field "{name}" is there twice')
            found = self.column(one["type"], f"the field {name}" if where == "the record" else f"{where}.{name}")
            names.append(name)
            columns.append(found)
            arrow.append(pa.field(name, found.type, nullable=found.schema.optional))
            fields.append(Field(name, index, found.schema))
        if not names:
            raise _fault(where, "a record without fields")
        full = ".".join(str(avro[part]) for part in ("namespace", "name") if avro.get(part))
        schema = Schema(Type.STRUCT, name=full or None, doc=avro.get("doc"), fields=fields)
        return _options(schema, pa.struct(arrow), hints) or RecordGenerator(schema, pa.struct(arrow), names, columns)


def _fault(where: str, text: str) -> ConfigException:
    return ConfigException(f"{where}: {text}")


def _hints(found: object, where: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise _fault(where, f"arg.properties must be an object, not {found!r:.80}")
    if "regex" in found:
        raise _fault(
            where, 'arg.properties.regex is not supported: use options, or range with prefix ("User_", 1 to 9)'
        )
    unknown = sorted(set(found) - _KNOWN)
    if unknown:
        raise _fault(where, f"arg.properties has {', '.join(unknown)}; known are {', '.join(sorted(_KNOWN))}")
    return found


def _options(schema: Schema, type_: pa.DataType, hints: Mapping[str, Any]) -> ValueGenerator | None:
    values = hints.get("options")
    if values is None:
        return None
    if not isinstance(values, list) or not values or None in values:
        raise ValueError("options must be a list of values, not empty and without null")
    return Options(schema, type_, pa.array(values, type_))


def _length(hints: Mapping[str, Any], default: tuple[int, int]) -> tuple[int, int]:
    found = hints.get("length", {"min": default[0], "max": default[1] + 1})
    low, high = (found, found) if isinstance(found, int) else (int(found.get("min", 0)), int(found["max"]) - 1)
    if not 0 <= low <= high <= _MOST:
        raise ValueError(f"a length must be from 0 to {_MOST}, and max above min")
    return low, high


def _range(hints: Mapping[str, Any], low: Any, high: Any) -> tuple[Any, Any]:
    found = hints.get("range", {})
    low, high = found.get("min", low), found.get("max", high)
    if not low < high:
        raise ValueError(f"the range from min {low} to below max {high} is empty")
    return low, high


def _steps(schema: Schema, type_: pa.DataType, hints: Mapping[str, Any]) -> ValueGenerator:
    found = hints["iteration"]
    start, restart = found["start"], found.get("restart")
    step = found.get("step", 1 if restart is None or restart > start else -1)
    if step == 0:
        raise ValueError("an iteration needs a step other than 0")
    count = None
    if restart is not None:
        count = int(-(-(restart - start) // step))
        if count < 1:
            raise ValueError(f"an iteration from {start} by {step} does not reach restart={restart}")
    return Steps(schema, type_, start, step, count)


def _integers(kind: str, avro: Mapping[str, Any], hints: Mapping[str, Any]) -> ValueGenerator:
    type_, carrier, bits = _INTEGERS[kind]
    logical = _LOGICAL.get(str(avro.get("logicalType")))
    schema = Schema(carrier, name=logical, version=None if logical is None else 1)
    arrow = connect_type(schema, type_)
    if "options" in hints:
        return Options(schema, arrow, pa.array(hints["options"], type_).cast(arrow))
    if "iteration" in hints:
        return _steps(schema, arrow, hints)
    if logical == Date.LOGICAL_NAME:
        low, high = 0, 30_000
    elif logical == Time.LOGICAL_NAME:
        low, high = 0, 86_400_000
    elif logical == Timestamp.LOGICAL_NAME:
        low, high = 1_500_000_000_000, 1_800_000_000_000
    else:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
    low, high = (int(one) for one in _range(hints, low, high))
    if not -(2 ** (bits - 1)) <= low < high <= 2 ** (bits - 1):
        raise ValueError(f"the range from {low} to below {high} is too wide for {kind}")
    return Integers(schema, arrow, low, high)


def connect_type(schema: Schema, plain: pa.DataType) -> pa.DataType:
    """The Arrow type of integers, by the logical name of their schema."""
    match schema.name:
        case Date.LOGICAL_NAME:
            return pa.date32()
        case Time.LOGICAL_NAME:
            return pa.time32("ms")
        case Timestamp.LOGICAL_NAME:
            return pa.timestamp("ms", "UTC")
        case _:
            return plain


def _floats(kind: str, hints: Mapping[str, Any]) -> ValueGenerator:
    type_, carrier = _FLOATS[kind]
    schema = Schema(carrier)
    found = _options(schema, type_, hints)
    if found is not None:
        return found
    if "iteration" in hints:
        return _steps(schema, type_, hints)
    return Floats(schema, type_, *(float(one) for one in _range(hints, 0.0, 1.0)))


def _text(kind: str, avro: Mapping[str, Any], hints: Mapping[str, Any]) -> ValueGenerator:
    if avro.get("logicalType") == "decimal":
        return _decimals(avro, hints)
    if kind == "enum":
        values = list(avro["symbols"])
        return Options(Schema(Type.STRING), pa.string(), pa.array(values, pa.string()))
    if kind in ("bytes", "fixed"):
        size = int(avro["size"]) if kind == "fixed" else None
        shortest, longest = (size, size) if size is not None else _length(hints, _LENGTH)
        return Texts(Schema(Type.BYTES), pa.binary(), shortest, longest)
    schema, type_ = Schema(Type.STRING), pa.string()
    inner: ValueGenerator | None = _options(schema, type_, hints)
    if inner is None and "iteration" in hints:
        inner = _steps(schema, pa.int64(), hints)
    if inner is None and "range" in hints:
        inner = Integers(schema, pa.int64(), *(int(one) for one in _range(hints, 0, 2**31)))
    if inner is None:
        inner = Texts(schema, type_, *_length(hints, _LENGTH))
    prefix, suffix = str(hints.get("prefix", "")), str(hints.get("suffix", ""))
    plain = not prefix and not suffix and inner.type == type_
    return inner if plain else Affixed(schema, type_, inner, prefix, suffix)


def _decimals(avro: Mapping[str, Any], hints: Mapping[str, Any]) -> ValueGenerator:
    precision, scale = int(avro["precision"]), int(avro.get("scale", 0))
    type_ = pa.decimal128(precision, scale)
    schema = connect_schema(type_)
    assert schema is not None, "decimals have one"
    most = 10 ** min(precision, 18)
    low, high = (int(decimal.Decimal(str(one)).scaleb(scale)) for one in _range(hints, 0, most / 10**scale))
    if not -most <= low < high <= most:
        raise ValueError(f"the range does not fit decimals of {min(precision, 18)} digits")
    return _Decimals(schema, type_, low, high)


class _Decimals(Integers):
    """Decimals, made of their digits as integers."""

    def make(self, key: int, numbers: Any) -> pa.Array:
        """See ``ValueGenerator``."""
        digits = Integers(self.schema, pa.int64(), self.low, self.high).make(key, numbers)
        whole = digits.cast(pa.decimal128(38, 0))
        return pa.Array.from_buffers(pa.decimal128(38, self.type.scale), len(whole), whole.buffers()).cast(self.type)


def _optional(schema: Schema) -> Schema:
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if schema.type in (Type.MAP, Type.ARRAY) else None,
        fields=schema.fields if schema.type is Type.STRUCT else (),
    )


_START_MS: Final = 1_700_000_000_000


def _field(name: str, kind: str, **hints: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, "arg.properties": hints} if hints else kind}


def _numbered(name: str, prefix: str, count: int) -> dict[str, Any]:
    return _field(name, "string", prefix=prefix, range={"min": 1, "max": count + 1})


def _any(name: str, *values: object, kind: str = "string") -> dict[str, Any]:
    return _field(name, kind, options=list(values))


def _counted(name: str, kind: str = "int", start: int = 0, step: int = 1) -> dict[str, Any]:
    return _field(name, kind, iteration={"start": start, "step": step})


def _within(name: str, kind: str, low: float, high: float) -> dict[str, Any]:
    return _field(name, kind, range={"min": low, "max": high})


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "datagen", "fields": list(fields)}


#: By name: the schema, and the field that is the key.
QUICKSTARTS: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "orders": (
        _record(
            "orders",
            _counted("ordertime", "long", _START_MS, 1000),
            _counted("orderid"),
            _numbered("itemid", "Item_", 500),
            _within("orderunits", "double", 0.1, 10.0),
            {
                "name": "address",
                "type": _record(
                    "address",
                    _numbered("city", "City_", 50),
                    _numbered("state", "State_", 50),
                    _within("zipcode", "long", 10_000, 100_000),
                ),
            },
        ),
        "orderid",
    ),
    "users": (
        _record(
            "users",
            _within("registertime", "long", 1_487_715_775_521, 1_519_273_364_600),
            _numbered("userid", "User_", 9),
            _numbered("regionid", "Region_", 9),
            _any("gender", "MALE", "FEMALE", "OTHER"),
        ),
        "userid",
    ),
    "pageviews": (
        _record(
            "pageviews",
            _counted("viewtime", "long", 1, 10),
            _numbered("userid", "User_", 9),
            _numbered("pageid", "Page_", 99),
        ),
        "viewtime",
    ),
    "clickstream": (
        _record(
            "clickstream",
            _any("ip", "111.152.45.45", "111.203.236.146", "122.145.8.244", "222.203.236.146", "233.90.225.227"),
            _within("userid", "int", 1, 41),
            _any("remote_user", "-"),
            _counted("time", "long", _START_MS, 10),
            _counted("_time", "long", _START_MS, 10),
            _any(
                "request", "GET /index.html HTTP/1.1", "GET /site/login.html HTTP/1.1", "GET /images/track.png HTTP/1.1"
            ),
            _any("status", "200", "302", "404", "405", "406", "407"),
            _any("bytes", "278", "1289", "2048", "2331", "4006", "4096", "14096"),
            _any("referrer", "-"),
            _any("agent", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "curl/8.5.0"),
        ),
        "ip",
    ),
    "stock_trades": (
        _record(
            "stock_trades",
            _any("side", "BUY", "SELL"),
            _within("quantity", "int", 1, 5000),
            _any("symbol", "ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"),
            _within("price", "int", 5, 1000),
            _any("account", "ABC123", "LMN456", "XYZ789"),
            _numbered("userid", "User_", 9),
        ),
        "symbol",
    ),
    "ratings": (
        _record(
            "ratings",
            _counted("rating_id", "long", 1),
            _within("user_id", "int", 1, 20),
            _within("stars", "int", 1, 6),
            _within("route_id", "int", 1, 10_000),
            _counted("rating_time", "long", _START_MS, 13),
            _any("channel", "web", "ios", "iOS-test", "android"),
            _any("message", "meh", "thank you for the most friendly, helpful experience today", "worst. flight. ever."),
        ),
        "rating_id",
    ),
    "inventory": (
        _record(
            "inventory",
            _counted("id", "long"),
            _within("quantity", "long", 1, 1000),
            _within("productid", "long", 1, 100),
        ),
        "id",
    ),
}
