"""Typed columns and VARIANT as JSON text, exactly as Connect's JsonConverter writes it.

A column whose Spark JSON text is already the right one is written by ``to_json`` in one go, after a rebuild where
defaults or decimals ask for it; other layouts (maps with keys that are no strings, wide decimals written as numbers)
are written piece by piece.

Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql import functions as F

from penstock.data import Schema, Struct, Time, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.pipeline.columns import expressions
from penstock.pipeline.columns.layout import (
    Layout,
    LayoutKind,
    TextBound,
    decimal_scale,
    default_physical,
    has_plain_keys,
    is_decimal,
    logical_name,
    members_of_layout,
    spark_type,
)
from penstock.pipeline.columns.sizes import anywhere
from penstock.pipeline.columns.variant import unscale, unscaled_bytes

if TYPE_CHECKING:
    from pyspark.sql import Column

NULL_REQUIRED: Final = "Conversion error: null value for field that is required and has no default value"
BAD_TIME: Final = "Kafka Connect Time type should not have any date fields set to non-zero values."
_KEEP_NULLS: Final = {"ignoreNullFields": "false"}
_BEYOND_BMP: Final = "[\\x{10000}-\\x{10FFFF}]"


def to_json(column: Column) -> Column:
    """Spark's JSON text of a struct, map, array or VARIANT; null fields are written."""
    return F.to_json(column, _KEEP_NULLS)


def escaped(text: Column) -> Column:
    """JSON text with characters beyond U+FFFF as two escapes, as Java's UTF-8 writer leaves them.

    ``text`` is used several times: name it first.
    """
    pieces = F.regexp_extract_all(text, F.lit(f"{_BEYOND_BMP}|[^\\x{{10000}}-\\x{{10FFFF}}]+"), F.lit(0))

    def piece(part: Column) -> Column:
        point = F.ascii(part) - F.lit(0x10000)
        high = F.shiftright(point, 10) + F.lit(0xD800)
        low = point.bitwiseAND(F.lit(0x3FF)) + F.lit(0xDC00)
        pair = F.concat(F.lit("\\u"), F.hex(high), F.lit("\\u"), F.hex(low))
        return F.when(part.rlike(f"^{_BEYOND_BMP}"), pair).otherwise(part)

    slow = F.array_join(F.transform(pieces, piece), "")
    plain = F.octet_length(text) == F.length(text)
    return F.when(plain, text).when(~text.rlike(_BEYOND_BMP), text).otherwise(slow)


def joined(parts: Sequence[Column | str]) -> Column:
    """One text of many, some of which are known; null where one is."""
    columns: list[Column] = []
    for known, run in groupby(parts, lambda part: isinstance(part, str)):
        some = list(run)
        columns += [F.lit("".join(cast("list[str]", some)))] if known else cast("list[Column]", some)
    return columns[0] if len(columns) == 1 else F.concat(*columns)


@dataclass(frozen=True)
class JsonText:
    """The form in which values are written.

    Attributes:
        numeric_decimals: Decimals are numbers; otherwise base64 of their unscaled bytes.
        defaults: A null is written as its schema's default.
        complete: No required value inside of the written values is null.
    """

    numeric_decimals: bool = False
    defaults: bool = True
    complete: bool = False

    def value_parts(
        self, column: Column, schema: Schema | None, physical: Layout, *, present: bool = False
    ) -> list[Column | str]:
        """Returns the parts of ``value_text``: ``joined`` joins them, with the text before and after, at once."""
        if schema is None or not self._is_clean(schema, physical):
            return [self._unclean_text(column, schema, physical)]
        parts = self._clean_parts(column, schema, physical)
        if present:
            return parts
        text = joined(parts)
        whole = F.when(column.isNotNull(), text) if schema.type is Type.STRUCT else text
        return [F.coalesce(whole, F.lit("null"))]

    def value_text(self, column: Column, schema: Schema | None, physical: Layout) -> Column:
        """The JSON text of a column, ``null`` for null; never null itself."""
        return joined(self.value_parts(column, schema, physical))

    def _unclean_text(self, column: Column, schema: Schema | None, physical: Layout) -> Column:
        """The same of what may need escapes."""
        if schema is None or physical.form is LayoutKind.VARIANT:
            return F.coalesce(to_json(column), F.lit("null"))
        if not self._is_native(schema, physical):
            return self._pieced(column, schema, physical)
        rebuilt = self._rebuilt(column, schema, physical)
        if schema.type in _WHOLE and logical_name(schema) is None:
            return F.coalesce(rebuilt.cast("string"), F.lit("null"))
        if physical.form in (LayoutKind.STRUCT, LayoutKind.ARRAY, LayoutKind.MAP, LayoutKind.ENTRIES):
            return F.coalesce(to_json(rebuilt), F.lit("null"))
        # As bytes: Spark walks a string's characters to find the sixth, or the last.
        wrapped = to_json(F.struct(rebuilt.alias("v"))).cast("binary")
        return F.substr(wrapped, F.lit(6), F.octet_length(wrapped) - F.lit(6)).cast("string")

    # ------------------------------------------------------------------ what needs no escapes
    def _is_clean(self, schema: Schema, physical: Layout) -> bool:
        """True if the values can be joined from their parts as they are: a fraction of what Jackson costs."""
        if self.defaults and schema.default is not None:
            return False
        if schema.type is Type.STRUCT and physical.form is LayoutKind.STRUCT:
            pairs = list(zip(schema.fields, physical.children, strict=True))
            return 0 < len(pairs) <= _MAX_PIECES and all(self._is_clean(field.schema, child) for field, child in pairs)
        if physical.form is not LayoutKind.SCALAR:
            return False
        if schema.type is Type.STRING:
            return physical.text is TextBound.CLEAN
        # Temporal types are the integers they are written as.
        return schema.type in _WHOLE or schema.type in _FLOATS

    def _clean_parts(self, column: Column, schema: Schema, physical: Layout) -> list[Column | str]:
        """Texts that make up a value that is there; of a null, other than of a struct, one of them is null."""
        if schema.type is Type.STRING:
            return ['"', column, '"']
        if schema.type in _FLOATS:
            text = column.cast("string")
            infinite = F.isnan(column) | (F.abs(column) == float("inf"))
            return [F.when(infinite, F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text)]
        if schema.type is not Type.STRUCT:
            return [column.cast("string")]
        parts: list[Column | str] = []
        for index, (field, child) in enumerate(zip(schema.fields, physical.children, strict=True)):
            parts.append(f"{',' if index else '{'}{json.dumps(field.name, ensure_ascii=False)}:")
            value = column.getField(field.name)
            inner = self.value_parts(value, field.schema, child, present=self._is_there(field.schema))
            # A struct's many parts are joined for themselves: generated code has a limit.
            parts += inner if not child.children else [joined(inner)]
        return [*parts, "}"]

    def _is_there(self, schema: Schema | None) -> bool:
        """True if no value of this schema is null, where it is inside of another."""
        return self.complete and schema is not None and not schema.optional

    # ------------------------------------------------------------------ what Spark writes as Java does
    def _is_native(self, schema: Schema | None, physical: Layout) -> bool:
        if physical.form is LayoutKind.UNSCALED:
            return not self.numeric_decimals
        if physical.form is LayoutKind.ENTRIES and not has_plain_keys(cast("Schema", schema)):
            return False
        return all(self._is_native(one, child) for one, child in members_of_layout(schema, physical))

    def _is_plain(self, schema: Schema | None, physical: Layout) -> bool:
        """True if the column can be written as it is: nothing in it has a default or another form."""
        if schema is None:
            return True
        if self.defaults and schema.default is not None:
            return False
        if physical.form in (LayoutKind.ENTRIES, LayoutKind.UNSCALED):
            return False
        if physical.form is LayoutKind.DECIMAL:
            return self.numeric_decimals
        members = members_of_layout(schema, physical)
        # No key of a map column is null, so its default is not used.
        if physical.form is LayoutKind.MAP:
            members = members[1:]
        return all(self._is_plain(one, child) for one, child in members)

    def _rebuilt(self, column: Column, schema: Schema | None, physical: Layout) -> Column:
        if schema is None or self._is_plain(schema, physical):
            return column
        filled = self._filled(column, schema, physical)
        match physical.form:
            case LayoutKind.UNSCALED:
                return filled.getField("unscaled")
            case LayoutKind.DECIMAL:
                return filled if self.numeric_decimals else expressions.unscaled_bytes(filled)
            case LayoutKind.ARRAY:
                return F.transform(filled, lambda x: self._rebuilt(x, schema.value_schema, physical.children[0]))
            case LayoutKind.MAP:
                return F.transform_values(
                    filled, lambda _, x: self._rebuilt(x, schema.value_schema, physical.children[1])
                )
            case LayoutKind.ENTRIES:

                def entry(x: Column) -> Column:
                    value = self._rebuilt(x.getField("value"), schema.value_schema, physical.children[1])
                    return F.struct(F.coalesce(x.getField("key"), F.lit("null")).alias("key"), value.alias("value"))

                return F.map_from_entries(F.transform(filled, entry))
            case LayoutKind.STRUCT:
                fields = zip(schema.fields, physical.children, strict=True)
                rebuilt = [self._rebuilt(filled.getField(f.name), f.schema, child).alias(f.name) for f, child in fields]
                return F.when(filled.isNotNull(), F.struct(*rebuilt))
            case _:
                return filled

    def _filled(self, column: Column, schema: Schema, physical: Layout) -> Column:
        """The column with the default in place of null. A default struct is an error instead: see ``faults``."""
        if not self.defaults or schema.default is None or schema.type is Type.STRUCT:
            return column
        return F.coalesce(column, literal(schema.default, schema, physical))

    # ------------------------------------------------------------------ what it does not
    def _pieced(self, column: Column, schema: Schema, physical: Layout) -> Column:
        filled = self._filled(column, schema, physical)
        match physical.form:
            case LayoutKind.UNSCALED:
                text = expressions.java_text(filled.getField("unscaled"), filled.getField("scale"))
            case LayoutKind.ARRAY:
                items = F.transform(filled, lambda x: self.value_text(x, schema.value_schema, physical.children[0]))
                text = F.concat(F.lit("["), F.array_join(items, ","), F.lit("]"))
            case LayoutKind.MAP | LayoutKind.ENTRIES:
                text = self._map_text(filled, schema, physical)
            case _:
                parts: list[Column] = []
                for index, (field, child) in enumerate(zip(schema.fields, physical.children, strict=True)):
                    comma = "," if index else ""
                    parts.append(F.lit(f"{comma}{json.dumps(field.name, ensure_ascii=False)}:"))
                    parts.append(self.value_text(filled.getField(field.name), field.schema, child))
                text = F.when(filled.isNotNull(), F.concat(F.lit("{"), *parts, F.lit("}")))
        return F.coalesce(text, F.lit("null"))

    def _map_text(self, column: Column, schema: Schema, physical: Layout) -> Column:
        entries = F.map_entries(column) if physical.form is LayoutKind.MAP else column
        text_keys = has_plain_keys(schema)

        def entry(x: Column) -> Column:
            value = self.value_text(x.getField("value"), schema.value_schema, physical.children[1])
            key = x.getField("key")
            if text_keys:
                named = self.value_text(F.coalesce(key, F.lit("null")), _TEXT, _TEXT_LAYOUT)
                return F.concat(named, F.lit(":"), value)
            return F.concat(
                F.lit("["), self.value_text(key, schema.key_schema, physical.children[0]), F.lit(","), value, F.lit("]")
            )

        first, last = ("{", "}") if text_keys else ("[", "]")
        return F.concat(F.lit(first), F.array_join(F.transform(entries, entry), ","), F.lit(last))

    # ------------------------------------------------------------------ what cannot be written
    def problem(
        self, column: Column, schema: Schema | None, physical: Layout, *, present: bool = False
    ) -> Column | None:
        """Returns the reason why a value cannot be written, as a message; null if it can. None if any value can."""
        found = [] if schema is None else list(self._problems(column, schema, physical, present))
        return F.coalesce(*found) if len(found) > 1 else found[0] if found else None

    def _problems(self, column: Column, schema: Schema, physical: Layout, present: bool) -> Iterator[Column]:
        if self.defaults and schema.default is not None:
            if schema.type is Type.STRUCT:
                yield F.when(column.isNull(), F.lit("Mismatching schema."))
        elif not schema.optional and not present:
            yield F.when(column.isNull(), F.lit(NULL_REQUIRED))
        match physical.form:
            case LayoutKind.UNSCALED if not self.numeric_decimals:
                yield self._scale_problem(column, schema)
            case LayoutKind.STRUCT:
                for field, child in zip(schema.fields, physical.children, strict=True):
                    there = self._is_there(field.schema)
                    inner = self.problem(column.getField(field.name), field.schema, child, present=there)
                    if inner is not None:
                        yield F.when(column.isNotNull(), inner)
            case LayoutKind.ARRAY:
                yield from self._item_problems(column, schema.value_schema, physical.children[0])
            case LayoutKind.MAP:
                yield from self._item_problems(F.map_values(column), schema.value_schema, physical.children[1])
            case LayoutKind.ENTRIES:
                values = F.transform(column, lambda x: x.getField("value"))
                yield from self._item_problems(values, schema.value_schema, physical.children[1])
            case LayoutKind.SCALAR if logical_name(schema) == Time.LOGICAL_NAME:
                yield F.when((column < 0) | (column > MILLIS_PER_DAY), F.lit(BAD_TIME))
            case _:
                pass

    def _can_fail(self, schema: Schema | None, physical: Layout) -> bool:
        """True if ``problem`` gives a column, for values inside of others.

        Asking ``problem`` would double the work with each level of nesting.
        """
        if schema is None:
            return False
        if self.defaults and schema.default is not None:
            if schema.type is Type.STRUCT:
                return True
        elif not schema.optional and not self._is_there(schema):
            return True
        if physical.form is LayoutKind.SCALAR:
            return logical_name(schema) == Time.LOGICAL_NAME
        members = members_of_layout(schema, physical)
        if physical.form in (LayoutKind.MAP, LayoutKind.ENTRIES):
            members = members[1:]
        return physical.form is LayoutKind.UNSCALED or any(self._can_fail(one, child) for one, child in members)

    def _item_problems(self, column: Column, schema: Schema | None, physical: Layout) -> Iterator[Column]:
        if not self._can_fail(schema, physical):
            return
        there = self._is_there(schema)
        texts = F.transform(column, lambda x: cast("Column", self.problem(x, schema, physical, present=there)))
        yield F.get(F.filter(texts, lambda text: text.isNotNull()), F.lit(0))

    def _scale_problem(self, column: Column, schema: Schema) -> Column:
        scale = decimal_scale(schema)
        if scale is None:
            return F.when(column.isNotNull(), F.lit("Invalid Decimal schema: scale parameter not found."))
        before = "Decimal value has mismatching scale for given Decimal schema. Schema has scale"
        message = F.concat(
            F.lit(f"{before} {scale}, value has scale "), column.getField("scale").cast("string"), F.lit(".")
        )
        return F.when(column.getField("scale") != F.lit(scale), message)


#: A struct of more fields is written by Jackson: generated code has a limit.
_MAX_PIECES: Final = 50
_WHOLE: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN))
_FLOATS: Final = frozenset((Type.FLOAT32, Type.FLOAT64))
_TEXT: Final = Schema(Type.STRING, optional=True)
_TEXT_LAYOUT: Final = default_physical(_TEXT)


def literal(value: object, schema: Schema, physical: Layout) -> Column:
    """A Connect value as a literal column in the given layout (defaults)."""
    kind = spark_type(schema, physical)
    if value is None:
        return F.lit(None).cast(kind)
    from penstock.pipeline.columns.records import to_arrow

    if isinstance(value, Struct):
        # A default is a struct of the schema as it was before it had the default.
        value = Struct.unchecked(schema, value.values)
    array, errors, _ = to_arrow([value], schema)
    if errors:
        raise errors[0]
    return _of_python(array[0].as_py(), schema, physical).cast(kind)


def _of_python(value: Any, schema: Schema | None, physical: Layout) -> Column:
    if value is None or schema is None:
        return F.lit(None)
    match schema.type:
        case Type.ARRAY:
            return F.array(*[_of_python(item, schema.value_schema, physical.children[0]) for item in value])
        case Type.MAP:
            pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in value]
            keys = [_of_python(key, schema.key_schema, physical.children[0]) for key, _ in pairs]
            values = [_of_python(item, schema.value_schema, physical.children[1]) for _, item in pairs]
            if physical.form is LayoutKind.MAP:
                return F.map_from_arrays(F.array(*keys), F.array(*values))
            return F.array(
                *[F.struct(key.alias("key"), item.alias("value")) for key, item in zip(keys, values, strict=True)]
            )
        case Type.STRUCT:
            fields = zip(schema.fields, physical.children, strict=True)
            return F.struct(*[_of_python(value[f.name], f.schema, child).alias(f.name) for f, child in fields])
        case _ if is_decimal(schema) and physical.form is LayoutKind.UNSCALED:
            if isinstance(value, dict):
                return F.struct(F.lit(value["unscaled"]).alias("unscaled"), F.lit(value["scale"]).alias("scale"))
            unscaled, scale = unscale(value)
            return F.struct(F.lit(unscaled_bytes(unscaled)).alias("unscaled"), F.lit(scale).alias("scale"))
        case _:
            return F.lit(value)


def has_struct_default(schema: Schema | None) -> bool:
    """True if a struct schema with a default is anywhere in a schema; Java cannot write such a schema."""
    return anywhere(schema, lambda one: one.type is Type.STRUCT and isinstance(one.default, Struct))
