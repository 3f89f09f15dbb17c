"""Inference of types: ``parse_string`` for texts, as in headers, and ``infer_schema`` for Python values.

The rules are Kafka Connect's, including its surprises: the smallest number type that fits; arrays and maps whose
elements are widened to a common type; a text that cannot be parsed stays a string.

Owning thread: none; pure functions.
Source: org.apache.kafka.connect.data.Values.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from typing import Any, Final

from penstock.data.logical import Date, Decimal, FarMoment, Time, Timestamp
from penstock.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    NULL_VALUE,
    STRING_SCHEMA,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Type,
)
from penstock.data.structs import Struct, map_key
from penstock.data.text import MILLIS_PER_DAY, nearest_float32, parse_date, parse_time, parse_timestamp
from penstock.errors import DataException, SchemaBuilderException

#: The characters that Java's ``trim`` removes.
BLANKS: Final = "".join(map(chr, range(0x21)))

_DELIMITERS: Final = frozenset(':,{}[]"')
_DECIMAL: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?)(\d+))?")
#: From narrow to wide; values of a type fit in any later one.
_NUMERIC: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
_INTEGERS: Final = (
    (1 << 7, INT8_SCHEMA),
    (1 << 15, INT16_SCHEMA),
    (1 << 31, INT32_SCHEMA),
    (1 << 63, INT64_SCHEMA),
)
_MAX_INT: Final = (1 << 31) - 1


def parse_string(text: str | None) -> SchemaAndValue | None:
    """Parses a text and infers the schema of its value.

    Returns:
        The value; None when the text is the word ``null``. A text that cannot be parsed is a string.

    >>> parse_string("300"), parse_string("[1, 2]")
    (SchemaAndValue(schema=<Schema{INT16}>, value=300), SchemaAndValue(schema=<Schema{ARRAY}>, value=[1, 2]))
    >>> parse_string("[1, x]")
    SchemaAndValue(schema=<Schema{STRING}>, value='[1, x]')

    Source: org.apache.kafka.connect.data.Values.parseString.
    """
    if text is None:
        return NULL_VALUE
    if not text:
        return SchemaAndValue(STRING_SCHEMA, text)
    try:
        return _Parser(text).parse(embedded=False)
    except RecursionError as problem:
        raise DataException("The text is nested too deeply to be parsed") from problem


def parse_decimal(text: str) -> decimal.Decimal | None:
    """Parses a number as Java's ``BigDecimal`` does: no blanks, words or underscores; None if it is not a number.

    >>> parse_decimal("+1.50e3"), parse_decimal("1_0"), parse_decimal(" 1")
    (Decimal('1.50E+3'), None, None)
    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    sign, digits, exponent_sign, exponent_digits = match.groups()
    exponent_digits = (exponent_digits or "0").lstrip("0") or "0"
    if len(exponent_digits) > 10:
        return None
    exponent = int(exponent_digits) * (-1 if exponent_sign == "-" else 1)
    scale = len(digits.partition(".")[2]) - exponent
    if not -_MAX_INT - 1 <= scale <= _MAX_INT:
        return None
    return decimal.Decimal(f"{sign}{digits}e{exponent}")


class _Parser:
    """Parses one text, token by token. A token is a delimiter, or the text between two delimiters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    def parse(self, *, embedded: bool) -> SchemaAndValue | None:
        """The next value; None for ``null`` and at the end."""
        if not self._has_next():
            return None
        if embedded and self._take('"'):
            return self._quoted()
        if self._literal("null", embedded):
            return None
        if self._literal("true", embedded):
            return SchemaAndValue(BOOLEAN_SCHEMA, True)
        if self._literal("false", embedded):
            return SchemaAndValue(BOOLEAN_SCHEMA, False)
        start = self._next
        try:
            if self._take("["):
                return self._array()
            if self._take("{"):
                return self._map()
        except DataException:
            # Not an array or map after all: the rest is a string, or an error of the enclosing collection.
            self._next = start
        token = self._tokens[self._next]
        self._next += 1
        trimmed = token.strip(BLANKS)
        return self._single(trimmed, embedded) if trimmed else SchemaAndValue(STRING_SCHEMA, token)

    def _has_next(self) -> bool:
        return self._next < len(self._tokens)

    def _take(self, expected: str) -> bool:
        """Skips a token if it is the expected one; always skips blank tokens before it."""
        if not self._has_next():
            return False
        while not self._tokens[self._next].strip(BLANKS) and self._next + 1 < len(self._tokens):
            self._next += 1
        if self._tokens[self._next].strip(BLANKS) != expected:
            return False
        self._next += 1
        return True

    def _literal(self, word: str, embedded: bool) -> bool:
        """True if the next token is this word; at the top level it must be the last one (``true}`` is a string)."""
        start = self._next
        if self._take(word) and (embedded or not self._has_next()):
            return True
        self._next = start
        return False

    def _quoted(self) -> SchemaAndValue:
        parts: list[str] = []
        while self._has_next():
            if self._take('"'):
                break
            parts.append(self._tokens[self._next])
            self._next += 1
        content = "".join(parts)
        return _temporal(content) or SchemaAndValue(STRING_SCHEMA, content)

    def _array(self) -> SchemaAndValue:
        elements: list[SchemaAndValue | None] = []
        while self._has_next():
            if self._take("]"):
                common = _common_schema(elements)
                if common is None:
                    return SchemaAndValue(SchemaBuilder.untyped_array().build(), [_value(item) for item in elements])
                schema = SchemaBuilder.array(common).build()
                return SchemaAndValue(schema, [_align(common, item) for item in elements])
            if self._take(","):
                raise DataException(f"Unable to parse an empty array element: {self._text}")
            elements.append(self.parse(embedded=True))
            after = self._next
            if self._take("]"):
                self._next = after
            elif not self._take(","):
                raise DataException("Array elements missing ',' delimiter")
        raise DataException(f"Array is missing terminating ']': {self._text}")

    def _map(self) -> SchemaAndValue:
        keys: list[SchemaAndValue | None] = []
        values: list[SchemaAndValue | None] = []
        while self._has_next():
            if self._take("}"):
                return _typed_map(keys, values)
            if self._take(","):
                raise DataException(f"Unable to parse a map entry with no key or value: {self._text}")
            key = self.parse(embedded=True)
            if key is None or key.value is None:
                raise DataException(f"Map entry may not have a null key: {self._text}")
            if not self._take(":"):
                raise DataException(f"Map entry is missing ':' in {self._text}")
            values.append(self.parse(embedded=True))
            keys.append(key)
            self._take(",")
        raise DataException(f"Map is missing terminating '}}': {self._text}")

    def _single(self, token: str, embedded: bool) -> SchemaAndValue:
        """A temporal value, a number, or at the top level the whole text as a string."""
        if token[0].isdecimal():
            # Colons are delimiters, so a time of day takes five tokens.
            rest = self._tokens[self._next : self._next + 4]
            if len(rest) == 4:
                found = _temporal(token + "".join(rest))
                if found is not None:
                    self._next += 4
                    return found
            found = _temporal(token)
            if found is not None:
                return found
        if token[0].isdecimal() or token[0] in "+-":
            number = parse_decimal(token)
            if number is not None:
                return _number(number)
        if embedded:
            raise DataException("Failed to parse embedded value")
        return SchemaAndValue(STRING_SCHEMA, self._text)


def _tokens(text: str) -> list[str]:
    """Delimiters and the texts between them; a backslash escapes a delimiter."""
    tokens: list[str] = []
    start = 0
    escaped = False
    for index, char in enumerate(text):
        if char == "\\":
            escaped = not escaped
            continue
        if char in _DELIMITERS and not escaped:
            if start < index:
                tokens.append(text[start:index])
            tokens.append(char)
            start = index + 1
        escaped = False
    if start < len(text):
        tokens.append(text[start:])
    return tokens


def _temporal(token: str) -> SchemaAndValue | None:
    """A date, time or timestamp; its length in Java's characters selects the format."""
    token = token.replace("\\:", ":")
    length = len(token) + sum(char > "\uffff" for char in token)
    if length == 10:
        millis = parse_date(token)
        if millis is not None:
            return SchemaAndValue(Date.SCHEMA, Date.to_logical(Date.SCHEMA, millis // MILLIS_PER_DAY))
    elif length == 13:
        millis = parse_time(token)
        if millis is not None:
            inside = 0 <= millis < MILLIS_PER_DAY
            return SchemaAndValue(Time.SCHEMA, Time.to_logical(Time.SCHEMA, millis) if inside else millis)
    elif length == 24:
        millis = parse_timestamp(token)
        if millis is not None:
            return SchemaAndValue(Timestamp.SCHEMA, Timestamp.to_logical(Timestamp.SCHEMA, millis))
    return None


def _number(number: decimal.Decimal) -> SchemaAndValue:
    """The number in the smallest type that holds it; a FLOAT32 even if that loses digits."""
    # 10**19 is beyond every integer type, so no large exponent is expanded into digits.
    magnitude = number.adjusted() if number else 0
    context = decimal.Context(prec=max(28, len(number.as_tuple().digits)))
    if 0 <= magnitude <= 18 and number == number.to_integral_value(decimal.ROUND_FLOOR, context):
        whole = int(number)
        for limit, schema in _INTEGERS:
            if -limit <= whole < limit:
                return SchemaAndValue(schema, whole)
    exponent = number.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    if scale != 0:
        single = nearest_float32(number)
        if not math.isinf(single):
            return SchemaAndValue(FLOAT32_SCHEMA, single)
        double = float(number)
        if not math.isinf(double):
            return SchemaAndValue(FLOAT64_SCHEMA, double)
    return SchemaAndValue(Decimal.schema(scale), number)


def _value(element: SchemaAndValue | None) -> object:
    return None if element is None else element.value


def _common_schema(elements: list[SchemaAndValue | None]) -> Schema | None:
    """The schema that fits the values of all elements; None if there is none. Nulls are ignored."""
    common: Schema | None = None
    for element in elements:
        if element is None or element.schema is None:
            continue
        if common is None:
            common = element.schema
            continue
        common = _merge(common, element.schema)
        if common is None:
            return None
    return common


def _merge(previous: Schema, new: Schema) -> Schema | None:
    if previous.type is new.type:
        # All parsed schemas are required, and the newest is taken: nested arrays are not compared.
        return new
    if previous.type in _NUMERIC and new.type in _NUMERIC:
        return max(previous, new, key=lambda schema: _NUMERIC.index(schema.type))
    return None


def _align(target: Schema, element: SchemaAndValue | None) -> object:
    """Converts an element to the common schema."""
    if element is None:
        raise DataException("Unable to convert a null value to a schema that requires a value")
    value = element.value
    if element.schema == target or target.type not in _NUMERIC:
        return value
    temporal = isinstance(value, (date, time, datetime)) or _is_temporal(element.schema)
    if _is_temporal(target):
        return value if temporal else _temporal_of(target, value)
    if temporal:
        raise DataException(f"Unable to convert {value} to {target}")
    if target.type is Type.FLOAT32 and isinstance(value, (int, float)):
        return nearest_float32(decimal.Decimal(value))
    if target.type is Type.FLOAT64 and isinstance(value, (int, float)):
        return float(value)
    return value


def _is_temporal(schema: Schema | None) -> bool:
    return schema is not None and schema.name in (Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME)


def _temporal_of(target: Schema, value: Any) -> object:
    """Converts a number among dates to a date."""
    if target.name == Date.LOGICAL_NAME:
        return Date.to_logical(target, int(value))
    if target.name == Time.LOGICAL_NAME:
        return Time.to_logical(target, int(value))
    return Timestamp.to_logical(target, int(value))


def _typed_map(keys: list[SchemaAndValue | None], values: list[SchemaAndValue | None]) -> SchemaAndValue:
    """A map with the common schemas of its keys and values; if the keys have none, the values stay as they are, too."""
    key_schema = _common_schema(keys)
    value_schema = _common_schema(values)
    if key_schema is None:
        value_schema = None
    result: dict[Any, object] = {}
    spelled: dict[Any, str] = {}
    for key, item in zip(keys, values, strict=True):
        name = _value(key) if key_schema is None else _align(key_schema, key)
        held = map_key(name)
        # Python treats 1 and true as the same key; as texts they differ.
        if spelled.setdefault(held, repr(held)) != repr(held):
            raise DataException("Python cannot hold these keys in one map")
        result[held] = _value(item) if value_schema is None else _align(value_schema, item)
    return SchemaAndValue(SchemaBuilder.untyped_map(key_schema, value_schema).build(), result)


_INT64_LIMIT: Final = 1 << 63


def infer_schema(value: object) -> Schema | None:
    """Infers the schema of a value; None if that is impossible.

    None for null, for empty lists and dicts, for elements of different types, and for numbers and dates that need an
    explicit schema in Connect (Decimal, date, time, datetime, integers beyond 64 bits). An int is INT64 and a float
    FLOAT64; a subclass may choose another type with a class attribute ``connect_type``.

    Raises:
        SchemaBuilderException: A list or dict holds only nulls.

    >>> infer_schema([1, None])._value_schema
    <Schema{INT64}>
    >>> infer_schema([1, "a"]) is None
    True

    Source: org.apache.kafka.connect.data.Values.inferSchema.
    """
    match value:
        case str():
            return STRING_SCHEMA
        case bool():
            return BOOLEAN_SCHEMA
        case FarMoment():
            return None
        case int():
            return _written_number(value, INT64_SCHEMA) if -_INT64_LIMIT <= value < _INT64_LIMIT else None
        case float():
            return _written_number(value, FLOAT64_SCHEMA)
        case bytes() | bytearray() | memoryview():
            return BYTES_SCHEMA
        case list() if value:
            found = _common(value)
            return None if found is None else SchemaBuilder.array(_element(*found)).build()
        case dict() if value:
            keys, items = _common(value), _common(value.values())
            if keys is None or items is None:
                return None
            return SchemaBuilder.map(_element(*keys), _element(*items)).build()
        case Struct():
            return value.schema
        case _:
            return None


def _written_number(value: int | float, usual: Schema) -> Schema | None:
    kind: Type | None = getattr(type(value), "connect_type", usual.type)
    if kind is usual.type:
        return usual
    return None if kind is None else Schema(kind)


def _common(values: Iterable[object]) -> tuple[Type | None, bool] | None:
    """The common type of all non-null values (None if they differ), and whether there is a null."""
    kind: Type | None = None
    optional = False
    for value in values:
        if value is None:
            optional = True
            continue
        schema = infer_schema(value)
        if schema is None or (kind is not None and kind is not schema.type):
            return None
        kind = schema.type
    return kind, optional


def _element(kind: Type | None, optional: bool) -> Schema:
    if kind is None:
        raise SchemaBuilderException("type cannot be null")
    # As in Java, only the type is kept: nested arrays have no element schema.
    return Schema(kind, optional=optional)
