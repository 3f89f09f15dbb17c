"""Reads values of a schema from a JSON payload (a VARIANT), by JsonConverter's lenient rules.

Other JSON becomes 0 for a number schema, false for boolean, null for string and bytes; numbers are truncated to their
width; an object counts as an array of its values. Only nulls, structs, maps, base64 and the logical types can fail. A
struct also rejects a null that replaces other JSON in a required string or bytes, at any depth outside nested structs.
Integers are read as Spark's widest type and then checked, so that an integer that is too large for its field is an
error and not null; decimals keep their original scale.

Source: org.apache.kafka.connect.json.JsonConverter, TO_CONNECT_CONVERTERS and LOGICAL_CONVERTERS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.converters.json.values import BAD_DECIMAL, BAD_SCALE, LONG_DECIMAL, denied_type
from penstock.data import LOGICAL_NAMES, Date, Schema, Time, Timestamp, Type
from penstock.data.structs import null_refused
from penstock.data.text import MILLIS_PER_DAY
from penstock.pipeline.columns import expressions
from penstock.pipeline.columns.json_text import literal
from penstock.pipeline.columns.layout import (
    SCALAR,
    UNSCALED,
    Layout,
    LayoutKind,
    decimal_scale,
    default_physical,
    has_plain_keys,
    is_decimal,
    logical_name,
    spark_type,
)
from penstock.pipeline.columns.sizes import anywhere
from penstock.pipeline.columns.variant import MAX_UNSCALED_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The treatment of numbers: as in schemaless data; exact; as marked strings of their text.
Numbers = Literal["schemaless", "typed", "text"]
#: Marks a number that is kept as text; JSON texts cannot contain raw control characters.
NUMBER_MARK: Final = "\x03"

_BITS_OF: Final = {"byte": 8, "short": 16, "integer": 32}


@lru_cache(maxsize=1024)
def layout_of(schema: Schema | None) -> Layout:
    """The layout of read values: decimals keep their original scale."""
    if schema is None:
        return default_physical(None)
    if is_decimal(schema):
        return UNSCALED
    match schema.type:
        case Type.ARRAY:
            return Layout(LayoutKind.ARRAY, (layout_of(schema.value_schema),))
        case Type.MAP:
            form = LayoutKind.MAP if has_plain_keys(schema) else LayoutKind.ENTRIES
            return Layout(form, (layout_of(schema.key_schema), layout_of(schema.value_schema)))
        case Type.STRUCT:
            return Layout(LayoutKind.STRUCT, tuple(layout_of(field.schema) for field in schema.fields))
        case _:
            return SCALAR


def widened(kind: T.DataType) -> T.DataType:
    """A wider type for the first read of numbers: doubles for floats, as in Java, and 64 bits for all integers.

    In a struct that Spark makes of a VARIANT, an integer that is too large for its field would become null.
    """
    match kind:
        case T.FloatType():
            return T.DoubleType()
        case T.ByteType() | T.ShortType() | T.IntegerType():
            return T.LongType()
        case T.ArrayType():
            return T.ArrayType(widened(kind.elementType), kind.containsNull)
        case T.StructType():
            return T.StructType([T.StructField(one.name, widened(one.dataType), one.nullable) for one in kind])
        case _:
            return kind


def in_range(column: Column, kind: T.DataType) -> Column | None:
    """True if no integer of a widened value is too large for its type; None if there are no such integers."""
    match kind:
        case T.ByteType() | T.ShortType() | T.IntegerType():
            half = 1 << (_BITS_OF[kind.typeName()] - 1)
            return column.isNull() | column.between(F.lit(-half), F.lit(half - 1))
        case T.ArrayType():
            element = kind.elementType
            if not _has_narrow_integers(element):
                return None
            return column.isNull() | F.forall(column, lambda item: cast("Column", in_range(item, element)))
        case T.StructType():
            parts = [found for one in kind if (found := in_range(column.getField(one.name), one.dataType)) is not None]
            return reduce(and_, parts) if parts else None
        case _:
            return None


def _has_narrow_integers(kind: T.DataType) -> bool:
    """True if ``in_range`` returns a column."""
    if isinstance(kind, T.ArrayType):
        return _has_narrow_integers(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_has_narrow_integers(one.dataType) for one in kind)
    return isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType))


def lenient_numbers(schema: Schema | None) -> Numbers:
    """Returns how a schema needs numbers to be parsed: decimals need their text, with the scale."""
    if schema is None:
        return "schemaless"
    return "text" if anywhere(schema, is_decimal) else "typed"


_WIDE: Final = "decimal(38,0)"
_MISSING_KIND: Final = "DATE"
_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_SPARK_WHOLE: Final = {Type.INT8: "tinyint", Type.INT16: "smallint", Type.INT32: "int", Type.INT64: "bigint"}
_EXPECTED: Final = {Type.STRING: "STRING", Type.BOOLEAN: "BOOLEAN", **dict.fromkeys(_BITS, "BIGINT")}
#: Spark reads a number with a point as a decimal, unless it is too long, Java as a double; both become the same double.
_POINT: Final = "DOUBLE|DECIMAL\\([0-9]+,[1-9][0-9]*\\)|DECIMAL\\((?:[1-9]|1[0-8]),0\\)"
#: Integers become the nearest double, but not the nearest float, because that would round twice.
_FLOATING: Final = {Type.FLOAT32: f"(?:{_POINT})", Type.FLOAT64: "(?:DOUBLE|BIGINT|DECIMAL\\([0-9]+,[0-9]+\\))"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FALLIBLE: Final = frozenset((Type.BYTES, Type.MAP, Type.STRUCT))
_FALLIBLE_NAMES: Final = frozenset((Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME))
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@dataclass(frozen=True, order=True)
class Usual:
    """The results of ``schema_of_variant`` for values that need no leniency: the most frequent one, and a regular
    expression for all; nulls are ``VOID``.
    """

    text: str
    pattern: str

    def inside(self, name: str) -> Usual:
        """The same for an object whose only field is such a value."""
        return Usual(f"OBJECT<{name}: {self.text}>", f"OBJECT<{name}: {self.pattern}>")

    def holds(self, kinds: Column) -> Column:
        """True if a text of kinds contains one of these."""
        if self.text == self.pattern:
            return kinds == self.text
        return (kinds == self.text) | kinds.rlike(f"^{self.pattern}$")


@dataclass(frozen=True)
class Lenient:
    """The rules for reading values; ``defaults``: null is replaced by the default."""

    defaults: bool
    numbers: Numbers

    def usual(self, schema: Schema | None) -> Usual | None:
        """The kinds that Spark may convert itself; None = none."""
        if schema is None or self.numbers == "text":
            return None
        return self._usual(schema)

    def _usual(self, schema: Schema) -> Usual | None:
        if schema.name == Time.LOGICAL_NAME or (schema.name in LOGICAL_NAMES and logical_name(schema) is None):
            return None
        found: Usual | None = None
        if schema.type in _EXPECTED:
            found = Usual(_EXPECTED[schema.type], _EXPECTED[schema.type])
        elif schema.type in _FLOATING:
            found = Usual("DOUBLE", _FLOATING[schema.type])
        elif schema.type is Type.ARRAY and schema.value_schema is not None and schema.value_schema.optional:
            # One kind describes all items, so it may hide an integer.
            mixed = schema.value_schema.type is Type.FLOAT32
            item = None if mixed else self._usual(schema.value_schema)
            found = None if item is None else Usual(f"ARRAY<{item.text}>", f"ARRAY<(?:{item.pattern}|VOID)>")
        elif schema.type is Type.STRUCT:
            found = self._usual_struct(schema)
        if found is not None and schema.optional and (schema.default is None or not self.defaults):
            return Usual(found.text, f"(?:{found.pattern}|VOID)")
        return found

    def _usual_struct(self, schema: Schema) -> Usual | None:
        parts: list[tuple[str, Usual]] = []
        for field in schema.fields:
            inner = self._usual(field.schema)
            if inner is None or not _NAME.fullmatch(field.name):
                return None
            parts.append((field.name, inner))
        # VARIANT sorts its keys by their bytes.
        parts.sort()
        text = ", ".join(f"{name}: {inner.text}" for name, inner in parts)
        pattern = ", ".join(f"{name}: {inner.pattern}" for name, inner in parts)
        return Usual(f"OBJECT<{text}>", f"OBJECT<{pattern}>")

    def read(self, column: Column, schema: Schema) -> Column:
        """The value of a VARIANT; null or arbitrary if it cannot be read, see ``problem``."""
        value = self._value(column, schema)
        kind = spark_type(schema, layout_of(schema))
        if self.defaults and schema.default is not None and schema.type is not Type.STRUCT:
            default = literal(schema.default, schema, layout_of(schema))
            return F.when(_is_null(column), default).otherwise(value.cast(kind))
        return F.when(~_is_null(column), value.cast(kind))

    def _value(self, column: Column, schema: Schema) -> Column:
        if is_decimal(schema):
            return self._decimal(column, schema)
        match schema.type:
            case Type.INT8 | Type.INT16 | Type.INT32 | Type.INT64:
                return self._whole(column, schema.type)
            case Type.FLOAT32 | Type.FLOAT64:
                return self._floating(column, "float" if schema.type is Type.FLOAT32 else "double")
            case Type.BOOLEAN:
                return F.coalesce(F.when(_kind(column) == "BOOLEAN", _get(column, "boolean")), F.lit(False))
            case Type.STRING:
                return F.when(self._is_text(column), _get(column, "string"))
            case Type.BYTES:
                return F.when(self._is_text(column), F.try_to_binary(_get(column, "string"), F.lit("base64")))
            case Type.ARRAY:
                return F.transform(_items(column), lambda x: self._part(x, schema.value_schema))
            case Type.MAP:
                return self._map(column, schema)
            case _:
                fields = [
                    self._part(_member(column, field.name), field.schema).alias(field.name) for field in schema.fields
                ]
                return F.struct(*fields)

    def _part(self, column: Column, schema: Schema | None) -> Column:
        return column if schema is None else self.read(column, schema)

    def _map(self, column: Column, schema: Schema) -> Column:
        if has_plain_keys(schema):
            members = F.when(_is_kind(column, "OBJECT<"), column).try_cast("map<string,variant>")
            return F.transform_values(members, lambda _, x: self._part(x, schema.value_schema))

        def entry(x: Column) -> Column:
            pair = x.try_cast("array<variant>")
            key = self._part(F.get(pair, F.lit(0)), schema.key_schema)
            return F.struct(key.alias("key"), self._part(F.get(pair, F.lit(1)), schema.value_schema).alias("value"))

        return F.transform(_items(column), entry)

    def _is_text(self, column: Column) -> Column:
        text = _kind(column) == "STRING"
        return text & ~self._is_number(column) if self.numbers == "text" else text

    def _is_number(self, column: Column) -> Column:
        if self.numbers == "text":
            return (_kind(column) == "STRING") & _get(column, "string").startswith(NUMBER_MARK)
        return _kind(column).rlike("^(?:BIGINT|DOUBLE|DECIMAL)")

    def _number_text(self, column: Column) -> Column:
        return F.substring(_get(column, "string"), 2, 1_000_000)

    def _is_integral(self, column: Column) -> Column:
        if self.numbers == "text":
            return self._is_number(column) & self._number_text(column).rlike("^-?[0-9]+$")
        return _kind(column).rlike("^(?:BIGINT|DECIMAL)")

    def _as_wide(self, column: Column) -> Column:
        """The number without its fraction, as ``decimal(38, 0)``; null if it is not a number, or too large."""
        if self.numbers == "text":
            number = F.when(self._is_number(column), self._number_text(column)).try_cast("double")
            whole = F.when(self._is_integral(column), self._number_text(column)).try_cast(_WIDE)
            return F.coalesce(whole, _truncated(number))
        kind = _kind(column)
        whole = F.when(kind.rlike("^(?:BIGINT|DECIMAL)"), F.try_variant_get(column, "$", _WIDE))
        return F.when(kind == "DOUBLE", _truncated(_get(column, "double"))).otherwise(whole)

    def _whole(self, column: Column, kind: Type) -> Column:
        bits = _BITS[kind]
        half = F.lit(str(2 ** (bits - 1))).cast(_WIDE)
        wrapped = F.pmod(self._as_wide(column) + half, F.lit(str(2**bits)).cast(_WIDE)) - half
        wide = F.coalesce(wrapped.try_cast(_SPARK_WHOLE[kind]), F.lit(0).cast(_SPARK_WHOLE[kind]))
        if self.numbers == "text":
            return wide
        # Nearly all numbers fit.
        fitting = F.when(_kind(column) == "BIGINT", F.try_variant_get(column, "$", _SPARK_WHOLE[kind]))
        return F.coalesce(fitting, wide)

    def _floating(self, column: Column, kind: str) -> Column:
        if self.numbers == "text":
            number = F.when(self._is_number(column), self._number_text(column)).try_cast(kind)
        else:
            number = F.when(self._is_number(column), F.try_variant_get(column, "$", kind))
        # Java's decimal tree has no minus zero.
        positive = F.when(number == 0, F.lit(0.0).cast(kind)).otherwise(number)
        return F.coalesce(positive, F.lit(0.0).cast(kind))

    def _decimal(self, column: Column, schema: Schema) -> Column:
        number = expressions.plain_parts(self._number_text(column))
        data = F.try_to_binary(_get(column, "string"), F.lit("base64"))
        scale = F.lit(decimal_scale(schema) or 0)
        encoded = F.when(data.isNotNull(), F.struct(data.alias("unscaled"), scale.cast("int").alias("scale")))
        return F.when(self._is_number(column), number).when(_kind(column) == "STRING", encoded)

    def problem(self, column: Column, schema: Schema | None) -> Column | None:
        """Returns the error message for a VARIANT that cannot be read; null if it can. None if every VARIANT can be
        read.
        """
        found = [] if schema is None else list(self._problems(column, schema))
        return F.coalesce(*found) if len(found) > 1 else found[0] if found else None

    def _problems(self, column: Column, schema: Schema) -> Iterator[Column]:
        null = _is_null(column)
        if not schema.optional and (schema.default is None or not self.defaults):
            yield F.when(null, F.lit(f"Invalid null value for required {schema.type.name} field"))
        for inner in self._kind_problems(column, schema):
            yield F.when(~null, inner)

    def _kind_problems(self, column: Column, schema: Schema) -> Iterator[Column]:
        # Java checks only the name.
        name = schema.name
        denied = denied_type(schema)
        if denied is not None:
            yield F.lit(denied)
            return
        if is_decimal(schema):
            yield F.when(
                ~(self._is_number(column) | (_kind(column) == "STRING")),
                self._told("Invalid type for Decimal, underlying representation should be numeric or bytes", column),
            )
            yield F.when(self._is_text(column), _bad_decimal(column, schema))
            yield F.when(
                self._is_number(column) & expressions.is_beyond(self._number_text(column)), F.lit(LONG_DECIMAL)
            )
            return
        if name == Timestamp.LOGICAL_NAME:
            told = "Invalid type for Timestamp, underlying representation should be integral"
            yield F.when(~self._is_integral(column), self._told(told, column))
        elif name in (Date.LOGICAL_NAME, Time.LOGICAL_NAME):
            short = "Date" if name == Date.LOGICAL_NAME else "Time"
            value = self._as_wide(column)
            in_int = F.coalesce((value >= -(2**31)) & (value < 2**31), F.lit(False))
            told = f"Invalid type for {short}, underlying representation should be integer"
            yield F.when(~(self._is_integral(column) & in_int), self._told(told, column))
            if short == "Time":
                limit = "Time values must use number of milliseconds greater than 0 and less than 86400000"
                yield F.when((value < 0) | (value > MILLIS_PER_DAY), F.lit(limit))
        elif schema.type is Type.BYTES:
            yield F.when(self._is_text(column) & ~_get(column, "string").rlike(_BASE64), F.lit("Invalid bytes field"))
        elif schema.type is Type.ARRAY:
            yield from self._item_problems(_items(column), schema.value_schema)
        elif schema.type is Type.MAP:
            yield from self._map_problems(column, schema)
        elif schema.type is Type.STRUCT:
            told = "Structs should be encoded as JSON objects, but found "
            yield F.when(~_is_kind(column, "OBJECT<"), F.concat(F.lit(told), self._node_kind(column)))
            for field in schema.fields:
                member = _member(column, field.name)
                inner = self.problem(member, field.schema)
                if inner is not None:
                    yield F.when(_is_kind(column, "OBJECT<"), inner)
                refused = self._null_problem(member, field.schema, f'field: "{field.name}"')
                if refused is not None:
                    yield F.when(_is_kind(column, "OBJECT<"), refused)

    def _null_problem(self, column: Column, schema: Schema | None, place: str) -> Column | None:
        """Returns why a struct cannot hold a value: a value without text where text is required. None if it can hold
        every value.

        Nulls in the JSON have been found before, and nested structs have been checked separately.
        """
        if schema is None or not _becomes_null(schema):
            return None
        if schema.type in (Type.STRING, Type.BYTES):
            told = F.lit(null_refused(schema, place))
            return F.when(~_is_null(column) & ~self._is_text(column), told)
        if schema.type is Type.ARRAY:
            inside = partial(self._null_problem, schema=schema.value_schema, place=f"element of array {place}")
            return _first(F.transform(_items(column), lambda x: cast("Column", inside(x))))
        value = partial(self._null_problem, schema=schema.value_schema, place=f"value of map {place}")
        if has_plain_keys(schema):
            members = F.when(_is_kind(column, "OBJECT<"), column).try_cast("map<string,variant>")
            return _first(F.transform(F.map_values(members), lambda x: cast("Column", value(x))))
        key = partial(self._null_problem, schema=schema.key_schema, place=f"key of map {place}")

        def entry(x: Column) -> Column:
            pair = x.try_cast("array<variant>")
            parts = [key(F.get(pair, F.lit(0))), value(F.get(pair, F.lit(1)))]
            return F.coalesce(*[one for one in parts if one is not None])

        entries = F.when(_is_kind(column, "ARRAY<"), column).try_cast("array<variant>")
        return _first(F.transform(entries, entry))

    def _map_problems(self, column: Column, schema: Schema) -> Iterator[Column]:
        if has_plain_keys(schema):
            told = "Maps with string fields should be encoded as JSON objects, but found "
            is_object = _is_kind(column, "OBJECT<")
            yield F.when(~is_object, F.concat(F.lit(told), self._node_kind(column)))
            values = F.map_values(F.when(is_object, column).try_cast("map<string,variant>"))
            yield from self._item_problems(values, schema.value_schema)
            return
        told = "Maps with non-string fields should be encoded as JSON arrays of tuples, but found "
        is_array = _is_kind(column, "ARRAY<")
        yield F.when(~is_array, F.concat(F.lit(told), self._node_kind(column)))

        def entry(x: Column) -> Column:
            pair = F.when(_is_kind(x, "ARRAY<"), x).try_cast("array<variant>")
            parts = [
                F.when(
                    pair.isNull(),
                    F.concat(F.lit("Found invalid map entry instead of array tuple: "), self._node_kind(x)),
                ),
                F.when(
                    F.size(pair) != 2,
                    F.concat(
                        F.lit("Found invalid map entry, expected length 2 but found :"), F.size(pair).cast("string")
                    ),
                ),
                self.problem(F.get(pair, F.lit(0)), schema.key_schema),
                self.problem(F.get(pair, F.lit(1)), schema.value_schema),
            ]
            return F.coalesce(*[one for one in parts if one is not None])

        yield _first(F.transform(F.when(is_array, column).try_cast("array<variant>"), entry))

    def _can_fail(self, schema: Schema | None) -> bool:
        """True if ``problem`` returns a column. Calling ``problem`` would double the work for each level of nesting."""
        if schema is None:
            return False
        if not schema.optional and (schema.default is None or not self.defaults):
            return True
        if schema.type is Type.ARRAY:
            return self._can_fail(schema.value_schema)
        return schema.type in _FALLIBLE or is_decimal(schema) or logical_name(schema) in _FALLIBLE_NAMES

    def _item_problems(self, column: Column, schema: Schema | None) -> Iterator[Column]:
        if not self._can_fail(schema):
            return
        yield _first(F.transform(column, lambda x: cast("Column", self.problem(x, schema))))

    def _told(self, text: str, column: Column) -> Column:
        return F.concat(F.lit(f"{text} but was "), self._node_kind(column))

    def _node_kind(self, column: Column) -> Column:
        """Returns Java's name of this kind of JSON node."""
        return (
            F.when(self._is_number(column), F.lit("NUMBER"))
            .when(_is_kind(column, "OBJECT<"), F.lit("OBJECT"))
            .when(_is_kind(column, "ARRAY<"), F.lit("ARRAY"))
            .when(_kind(column) == "BOOLEAN", F.lit("BOOLEAN"))
            .when(_kind(column) == "STRING", F.lit("STRING"))
            .when(_kind(column) == _MISSING_KIND, F.lit("MISSING"))
            .otherwise(F.lit("NULL"))
        )


@lru_cache(maxsize=1024)
def _becomes_null(schema: Schema) -> bool:
    """True if JSON that is not null can become a null that a struct rejects: a string from another kind of value."""
    if schema.type is Type.ARRAY:
        return schema.value_schema is not None and _becomes_null(schema.value_schema)
    if schema.type is Type.MAP:
        # The names of an object always exist.
        parts = [schema.value_schema] if has_plain_keys(schema) else [schema.key_schema, schema.value_schema]
        return any(one is not None and _becomes_null(one) for one in parts)
    plain = schema.type in (Type.STRING, Type.BYTES) and not is_decimal(schema)
    return plain and not schema.optional and denied_type(schema) is None


def _first(texts: Column) -> Column:
    """The first text that is not null; null if all are."""
    return F.get(F.filter(texts, lambda text: text.isNotNull()), F.lit(0))


def missing() -> Column:
    """Returns the marker for missing JSON: a VARIANT of a kind that no JSON has."""
    return F.date_from_unix_date(F.lit(0)).cast("variant")


def _kind(column: Column) -> Column:
    return F.schema_of_variant(column)


def _is_kind(column: Column, prefix: str) -> Column:
    return F.coalesce(_kind(column).startswith(prefix), F.lit(False))


def _get(column: Column, kind: str) -> Column:
    return F.try_variant_get(column, "$", kind)


def _member(column: Column, name: str) -> Column:
    if "'" not in name and "\\" not in name and "]" not in name:
        return F.try_variant_get(column, f"$['{name}']", "variant")
    members = F.when(_is_kind(column, "OBJECT<"), column).try_cast("map<string,variant>")
    return F.try_element_at(members, F.lit(name))


def _is_null(column: Column) -> Column:
    return column.isNull() | F.is_variant_null(column)


def _items(column: Column) -> Column:
    """The items of an array or the values of an object; empty for anything else."""
    items = F.when(_is_kind(column, "ARRAY<"), column).try_cast("array<variant>")
    members = F.map_values(F.when(_is_kind(column, "OBJECT<"), column).try_cast("map<string,variant>"))
    return F.coalesce(items, members, F.array().cast("array<variant>"))


def _truncated(number: Column) -> Column:
    # Spark's floor supports only whole numbers of 64 bits; larger doubles have no fraction.
    small = F.when(number < 0, F.ceil(number)).otherwise(F.floor(number)).try_cast(_WIDE)
    return F.when(F.abs(number) < 2.0**62, small).otherwise(number.try_cast(_WIDE))


def _bad_decimal(column: Column, schema: Schema) -> Column:
    if decimal_scale(schema) is None:
        return F.lit(BAD_SCALE)
    text = _get(column, "string")
    size = F.octet_length(F.try_to_binary(text, F.lit("base64")))
    return F.when(~text.rlike(_BASE64) | (size == 0), F.lit(BAD_DECIMAL)).when(
        size > MAX_UNSCALED_BYTES, F.lit(LONG_DECIMAL)
    )
