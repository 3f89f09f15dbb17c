"""Connect schemas of Spark's types; ``arrow`` does the same for Arrow types. Pure; any thread.

A type may be a PySpark object or its ``jsonValue()``: only ``spark_type`` needs PySpark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.data import Date, Decimal, Field, Schema, Time, Timestamp, Type
from penstock.errors import DataException

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: The remedy for each type without a Connect schema.
_NO_COUNTERPART: Final = (
    (re.compile(r"interval"), "an interval has no type in Kafka Connect: make it a number or a text in the query"),
    (re.compile(r"void|null"), "a column of nulls has no type: cast it to one in the query"),
    (re.compile(r"variant"), "a VARIANT has no schema: take fields of it with variant_get, or to_json makes it text"),
    (re.compile(r"geo"), "geometries have no type in Kafka Connect: st_asbinary makes bytes of one"),
)
_PLAIN: Final[Mapping[str, Type]] = {
    "boolean": Type.BOOLEAN,
    "byte": Type.INT8,
    "tinyint": Type.INT8,
    "short": Type.INT16,
    "smallint": Type.INT16,
    "integer": Type.INT32,
    "int": Type.INT32,
    "long": Type.INT64,
    "bigint": Type.INT64,
    "float": Type.FLOAT32,
    "real": Type.FLOAT32,
    "double": Type.FLOAT64,
    "string": Type.STRING,
    "binary": Type.BYTES,
}
_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
_TIME: Final = re.compile(r"time(?:\s*\(\s*\d\s*\))?(?:\s+without\s+time\s+zone)?")
_TEXT: Final = re.compile(r"(?:var)?char(?:acter)?\s*\(\s*\d+\s*\)|string\s+collate\s+\S+")
#: Spark's default and maximum decimal precision.
_USUAL: Final = (10, 0)
_MOST_DIGITS: Final = 38


def connect_schema(spark: DataType | Mapping[str, Any] | str, *, optional: bool = False) -> Schema:
    """The Connect schema of the rows of a DataFrame, or of the values of a column.

    Args:
        spark: ``dataframe.schema``, whose rows are structs without a name, or the type of a column; or the JSON value
            of one.
        optional: True if the values may be null. Nested values follow the nullability of their fields.

    Returns:
        The schema. Timestamps, with a time zone or without (which count as UTC), are Timestamp, in milliseconds; a TIME
        is Time, a date Date, a decimal Decimal of its scale, char and varchar are STRING.

    Raises:
        DataException: A type has no counterpart in Connect: an interval, a VARIANT, a column of nulls, a user's own
            type. The text names the path to the column, the type, and a remedy.

    Source: Penstock's own.

    >>> row = connect_schema(parse_ddl("id bigint not null, tags array<string>"))
    >>> [(one.name, one.schema.type.name) for one in row.fields]
    [('id', 'INT64'), ('tags', 'ARRAY')]
    >>> connect_schema(parse_ddl("wait interval day"))
    Traceback (most recent call last):
    penstock.errors.DataException: The column wait has Spark's type interval day, ...
    """
    return _schema_of(spark if isinstance(spark, str | Mapping) else spark.jsonValue(), optional, "")


def _schema_of(kind: Any, optional: bool, path: str) -> Schema:
    if isinstance(kind, str):
        return _of_name(kind.lower(), optional, path)
    match kind.get("type"):
        case "struct":
            fields = (
                Field(one["name"], place, _schema_of(one["type"], one["nullable"], _below(path, one["name"])))
                for place, one in enumerate(kind["fields"])
            )
            return Schema(Type.STRUCT, optional=optional, fields=tuple(fields))
        case "array":
            element = _schema_of(kind["elementType"], kind["containsNull"], _below(path, "element"))
            return Schema(Type.ARRAY, optional=optional, value_schema=element)
        case "map":
            key = _schema_of(kind["keyType"], False, _below(path, "key"))
            value = _schema_of(kind["valueType"], kind["valueContainsNull"], _below(path, "value"))
            return Schema(Type.MAP, optional=optional, key_schema=key, value_schema=value)
    raise _refused(path, str(kind.get("type", kind)), "types of users have no counterpart in Kafka Connect: cast it")


def _of_name(name: str, optional: bool, path: str) -> Schema:
    if name in _PLAIN:
        return Schema(_PLAIN[name], optional=optional)
    if name in ("timestamp", "timestamp_ntz", "timestamp_ltz"):
        return _logical(Timestamp.LOGICAL_NAME, Type.INT64, optional)
    if name == "date":
        return _logical(Date.LOGICAL_NAME, Type.INT32, optional)
    if _TIME.fullmatch(name):
        return _logical(Time.LOGICAL_NAME, Type.INT32, optional)
    if _TEXT.fullmatch(name):
        return Schema(Type.STRING, optional=optional)
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        scale = decimal[2] or str(_USUAL[1])
        return _logical(Decimal.LOGICAL_NAME, Type.BYTES, optional, {Decimal.SCALE_FIELD: scale})
    for pattern, text in _NO_COUNTERPART:
        if pattern.search(name):
            raise _refused(path, name, text)
    raise _refused(path, name, "Kafka Connect has no type for it: cast it to another in the query")


def _logical(name: str, carrier: Type, optional: bool, parameters: Mapping[str, str] | None = None) -> Schema:
    return Schema(
        carrier, optional=optional, name=name, version=1, parameters=None if parameters is None else dict(parameters)
    )


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _refused(path: str, name: str, text: str) -> DataException:
    where = f"The column {path} has" if path else "A column has"
    return DataException(f"{where} Spark's type {name}, which no schema of Kafka Connect has: {text}")


def spark_type(schema: Schema | None) -> DataType:
    """The Spark type of a column whose values have a Connect schema: the inverse of ``connect_schema``.

    A Decimal has 38 digits. Fields, items and values of maps are nullable where their schemas are optional.

    Args:
        schema: The schema of the values; None: schemaless, a VARIANT.

    Raises:
        DataException: A Decimal has a scale that no decimal of Spark has.

    Source: Penstock's own.
    """
    from pyspark.sql import types

    if schema is None:
        return types.VariantType()
    logical = _logical_names().get((schema.name or "", schema.type))
    if logical is not None:
        made: DataType = getattr(types, logical)()
        return made
    if schema.name == Decimal.LOGICAL_NAME and schema.type is Type.BYTES:
        return types.DecimalType(_MOST_DIGITS, _scale_of(schema))
    match schema.type:
        case Type.STRUCT:
            return types.StructType(
                [types.StructField(one.name, spark_type(one.schema), one.schema.optional) for one in schema.fields]
            )
        case Type.ARRAY:
            item = schema.value_schema
            return types.ArrayType(spark_type(item), item is None or item.optional)
        case Type.MAP:
            value = schema.value_schema
            return types.MapType(spark_type(schema.key_schema), spark_type(value), value is None or value.optional)
    plain: DataType = getattr(types, _CLASSES[schema.type])()
    return plain


def _scale_of(schema: Schema) -> int:
    text = (schema.parameters or {}).get(Decimal.SCALE_FIELD, "")
    if not re.fullmatch(r"\d{1,2}", text) or int(text) > _MOST_DIGITS:
        raise DataException(f"Spark has no decimals of the scale {text!r}: from 0 to {_MOST_DIGITS} there are")
    return int(text)


def _logical_names() -> Mapping[tuple[str, Type], str]:
    return {
        (Timestamp.LOGICAL_NAME, Type.INT64): "TimestampType",
        (Time.LOGICAL_NAME, Type.INT32): "TimeType",
        (Date.LOGICAL_NAME, Type.INT32): "DateType",
    }


_CLASSES: Final = {
    Type.BOOLEAN: "BooleanType",
    Type.INT8: "ByteType",
    Type.INT16: "ShortType",
    Type.INT32: "IntegerType",
    Type.INT64: "LongType",
    Type.FLOAT32: "FloatType",
    Type.FLOAT64: "DoubleType",
    Type.STRING: "StringType",
    Type.BYTES: "BinaryType",
}

# ------------------------------------------------------------------------------------------------------------ DDL

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*')|([A-Za-z_]\w*|\d+)|([<>(),:]))")
#: A type in a DDL text, as its JSON value is called.
_JSON_NAMES: Final = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_KNOWN: Final = frozenset(
    {*_PLAIN, "timestamp", "timestamp_ntz", "timestamp_ltz", "date", "time", "decimal", "dec", "numeric", "char"}
    | {"varchar", "variant", "void", "interval", "array", "map", "struct"}
)


def parse_ddl(text: str) -> dict[str, Any]:
    """The columns of a DDL text, ``id bigint not null, name string``, as the JSON value of a StructType.

    ``StructType.fromJson`` of PySpark takes it; no session is needed.

    Raises:
        DataException: The text cannot be parsed; the error names the position and what was expected there.

    Source: Spark's DDL of schemas, ``StructType.fromDDL``.

    >>> parse_ddl("id bigint not null")["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': False, 'metadata': {}}]
    >>> parse_ddl("id bigin")
    Traceback (most recent call last):
    penstock.errors.DataException: At character 4 of "id bigin" ... bigin, which is no type of Spark; ...
    """
    reader = _Ddl(text)
    fields = reader.fields(":", None)
    reader.expect_end()
    return {"type": "struct", "fields": fields}


class _Ddl:
    """Reads a DDL text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[tuple[str, int]]:
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                rest = self._text[at:]
                at += len(rest) - len(rest.lstrip())
                raise self._fault(f'there is "{self._text[at]}", which no list of columns has', at)
            yield found[0].strip(), found.end() - len(found[0].strip())
            at = found.end()

    def fields(self, separator: str, closing: str | None) -> list[dict[str, Any]]:
        """The columns up to the end, or up to and including a closing bracket."""
        found: list[dict[str, Any]] = []
        if closing is not None and self._take(closing):
            return found
        while True:
            found.append(self._field(separator))
            name = found[-1]["name"]
            if any(one["name"].lower() == name.lower() for one in found[:-1]):
                raise self._fault(f"there is a second column {name}", self._place(-1))
            if self._take(","):
                continue
            if closing is None:
                return found
            self._expect(closing)
            return found

    def _field(self, separator: str) -> dict[str, Any]:
        name = self._name()
        self._take(separator)
        kind = self._type()
        nullable = True
        metadata: dict[str, str] = {}
        if self._take("not"):
            self._expect("null")
            nullable = False
        if self._take("comment"):
            metadata["comment"] = self._next("a text in single quotes")[1:-1]
        return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}

    def _name(self) -> str:
        token = self._next("the name of a column")
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.match(r"\w", token):
            raise self._fault(f"there is {token} where the name of a column is expected", self._place(-1))
        return token

    def _type(self) -> Any:
        word = self._next("a type").lower()
        if word not in _KNOWN:
            raise self._fault(f"there is {word}, which is no type of Spark", self._place(-1))
        match word:
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return {"type": "array", "elementType": element, "containsNull": True}
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
            case "struct":
                self._expect("<")
                return {"type": "struct", "fields": self.fields(":", ">")}
            case "interval":
                return " ".join(["interval", *self._words()])
        return self._with_numbers(word)

    def _with_numbers(self, word: str) -> str:
        numbers = []
        if self._take("("):
            numbers.append(self._number())
            while self._take(","):
                numbers.append(self._number())
            self._expect(")")
        name = _JSON_NAMES.get(word, word)
        if name == "decimal":
            precision, scale = (*numbers, *_USUAL[len(numbers) :])[:2] if numbers else _USUAL
            if not 0 <= scale <= precision <= _MOST_DIGITS or len(numbers) > 2:
                raise self._fault(f"there is no decimal of {precision} digits, {scale} of them places", self._place(-1))
            return f"decimal({precision},{scale})"
        if name == "time":
            return f"time({numbers[0] if numbers else 6})"
        return f"{name}({','.join(map(str, numbers))})" if numbers else name

    def _words(self) -> Iterator[str]:
        units = ("year", "month", "day", "hour", "minute", "second", "to")
        while self._at < len(self._tokens) and self._tokens[self._at][0].lower() in units:
            self._at += 1
            yield self._tokens[self._at - 1][0].lower()

    def _number(self) -> int:
        token = self._next("a number")
        if not token.isdigit():
            raise self._fault(f"there is {token} where a number is expected", self._place(-1))
        return int(token)

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._tokens):
            raise self._fault(f"it ends where {wanted} is expected", len(self._text))
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _take(self, token: str) -> bool:
        there = self._at < len(self._tokens) and self._tokens[self._at][0].lower() == token
        self._at += there
        return there

    def _expect(self, token: str) -> None:
        if not self._take(token):
            found = self._tokens[self._at][0] if self._at < len(self._tokens) else "the end"
            raise self._fault(f'there is {found} where "{token}" is expected', self._place(0))

    def expect_end(self) -> None:
        """Raises DataException if anything follows."""
        if self._at < len(self._tokens):
            raise self._fault(f'there is {self._tokens[self._at][0]} where "," or the end is expected', self._place(0))

    def _place(self, back: int) -> int:
        at = self._at + back
        return self._tokens[at][1] if at < len(self._tokens) else len(self._text)

    def _fault(self, what: str, place: int) -> DataException:
        return DataException(
            f'At character {place + 1} of "{self._text}" {what}; columns are written as in "id bigint, name string, '
            'tags array<string>"'
        )


def struct_type(ddl: str) -> StructType:
    """The columns of a DDL text as PySpark's type, without a session.

    Raises:
        DataException: See ``parse_ddl``.

    Source: Penstock's own.
    """
    from pyspark.sql.types import StructType

    return StructType.fromJson(parse_ddl(ddl))
