"""Sql: selects, filters and takes records apart with Spark SQL expressions. Class ``Sql``; not part of Kafka Connect.

``transforms.x.select`` is a list of expressions as behind SELECT, ``transforms.x.where`` a condition as behind WHERE;
at least one of them. For instance::

    transforms.x.type=Sql
    transforms.x.select=id, upper(name) as name, explode(items) as item, concat('orders-', country) as topic
    transforms.x.where=status = 'open' and topic like 'shop-%'

What they see:

* The fields of the value, by name. With a schema they have their types; Connect's Timestamp and Date are real
  timestamps and dates. Without one they are VARIANT, to be cast (``cast(amount as double)``, ``amount::double``);
  ``user.id`` is a field of a field. ``*`` is all of them.
* ``key``, ``topic``, ``partition``, ``offset`` (sinks), ``timestamp`` (milliseconds), ``headers`` (a map of VARIANTs;
  the last header of a name counts) and ``value`` (as a whole), unless the value has a field of that name. As
  ``record.key`` and so on they can always be had.

What becomes of it:

* Each column is a field of the new value. One called ``key``, ``topic``, ``partition``, ``timestamp`` or ``headers`` (a
  map) sets that part of the record instead, and one called ``value`` the whole value; where the value has a field of
  that name, the column has to be called ``record.topic`` (in backticks) and so on.
* The schema is the one Spark derives; a field that is only named, or renamed, keeps its own. Derived fields are
  optional. A value without schema stays without.
* A generator (``explode``) makes several records of one, or none. The offset of the original is committed once the
  last of them has been delivered. If one of them fails, the record has failed, and none of them is delivered.
* A record that ``where`` does not hold for is dropped. Records without value (tombstones) pass as they are.
* An expression that cannot be parsed is refused with the configuration. One that does not fit the records of a schema
  (a field that is not there) fails each of them, and one that fails for a value (a division by zero) fails that record.

Thread: configured once; ``apply`` on a pipeline thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.api import Frame, FrameTransformation
from penstock.config import ConfigDef, ConfigType, Importance, LambdaValidator
from penstock.data import Date, Schema, SchemaBuilder, Timestamp, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.expressions import parse_problem, spark_text
from penstock.pipeline.header_columns import HEADER_SCHEMAS, SCHEMALESS_HEADER
from penstock.pipeline.types import HEADERS_SPARK, logical_name, schema_of_spark
from penstock.pipeline.variant_building import null_variant
from penstock.pipeline.variant_columns import get_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEPT: Final = "__record"
_PARTS: Final = ("key", "topic", "partition", "timestamp", "headers", "value")
_READ_ONLY: Final = ("offset",)
_MAX_FIELDS: Final = 1_000
_PLAIN: Final = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)(?:\s+(?:as\s+)?(`[^`]+`|[A-Za-z_]\w*))?\s*\Z", re.IGNORECASE)
_PATH_PART: Final = re.compile(r"`((?:[^`]|``)*)`")


def split_items(text: str) -> list[str]:
    """The expressions of a list that commas part, except in brackets and quotes.

    >>> split_items("a, concat(b, ',') as c")
    ['a', "concat(b, ',') as c"]
    """
    items: list[str] = []
    depth, start, quote, at = 0, 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\" and quote != "`"
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [*items, text[start:].strip()]


def _ensure_parses(name: str, value: object) -> None:
    if value is None:
        return
    items = split_items(str(value)) if name == "select" else [str(value)]
    for item in items:
        if not item:
            raise ConfigException(name, value, "There is an expression missing")
        # Spark parses; while its session is not up yet, an expression is only refused once records come.
        problem = None if item == "*" else parse_problem(item)
        if problem is not None:
            raise ConfigException(name, value, f"Spark cannot parse it: {problem}")


CONFIG: Final = (
    ConfigDef()
    .define(
        "select",
        ConfigType.STRING,
        default=None,
        validator=LambdaValidator(_ensure_parses, "Spark SQL expressions, separated by commas"),
        importance=Importance.HIGH,
        doc="What the new value is made of, as behind SELECT: fields of the value, or expressions with a name. "
        "<code>key</code>, <code>topic</code>, <code>partition</code>, <code>timestamp</code> and <code>headers</code> "
        "set these parts of the record. Without it the record stays as it is.",
    )
    .define(
        "where",
        ConfigType.STRING,
        default=None,
        validator=LambdaValidator(_ensure_parses, "a Spark SQL condition"),
        importance=Importance.HIGH,
        doc="Which records go on, as behind WHERE. Without it all do.",
    )
)


class Sql(FrameTransformation):
    """Spark SQL over the fields of the value and the parts of the record."""

    takes_tombstones: ClassVar[bool] = False
    _select: str | None = None
    _where: str | None = None

    def configure(self, props: Mapping[str, object]) -> None:
        values = CONFIG.parse(props)
        self._select = cast("str | None", values["select"])
        self._where = cast("str | None", values["where"])
        if self._select is None and self._where is None:
            raise ConfigException("select", None, "Sql needs an expression: set select, where, or both")

    def config(self) -> ConfigDef:
        return CONFIG

    def apply(self, frame: Frame) -> Frame:
        query = _Query(frame, None if self._select is None else split_items(self._select), self._where)
        return query.run()


@dataclass
class _Query:
    """The expressions over one frame."""

    frame: Frame
    items: Sequence[str] | None
    where: str | None
    #: Fields of schemaless values that the expressions name: a tree of names.
    named: dict[str, object] = field(default_factory=dict)

    def run(self) -> Frame:
        """The frame that comes out.

        Raises:
            DataException: The expressions do not fit the frame.
        """
        try:
            selected = self._selected(self.frame.dataframe)
        except AnalysisException as error:
            raise DataException(spark_text(error)) from error
        return self.frame.replace(dataframe=selected) if self.items is None else self._assembled(selected)

    # ------------------------------------------------------------------ what is seen
    @property
    def schema(self) -> Schema | None:
        return self.frame.value_schema

    def _fields(self) -> Mapping[str, Schema]:
        schema = self.schema
        if schema is None or schema.type is not Type.STRUCT:
            return {}
        return {one.name: one.schema for one in schema.fields}

    def _seen(self, frame: DataFrame) -> DataFrame:
        fields = self._fields()
        headers = F.map_from_entries(
            F.transform(F.col("headers"), lambda one: F.struct(one.getField("key"), one.getField("value")))
        )
        parts = {name: F.col(name) for name in (*_PARTS, *_READ_ONLY)} | {"headers": headers}
        record = F.struct(*[column.alias(name) for name, column in parts.items()])
        seen = {name: _real(F.col("value").getField(name), schema) for name, schema in fields.items()}
        seen |= {name: _named(F.col("value"), name, inner) for name, inner in self.named.items()}
        seen = {**{name: column for name, column in parts.items() if name not in seen}, **seen}
        kept = F.struct(*[F.col(name) for name in frame.columns]).alias(_KEPT)
        seen.setdefault("record", record)
        return frame.select(kept, *[column.alias(name) for name, column in seen.items()])

    def _selected(self, frame: DataFrame) -> DataFrame:
        while True:
            try:
                seen = self._seen(frame)
                filtered = seen if self.where is None else seen.filter(F.expr(self.where))
                if self.items is None:
                    return filtered.select(f"{_KEPT}.*")
                return filtered.select(F.col(_KEPT), *self._columns())
            except AnalysisException as error:
                if not self._learns(error):
                    raise

    def _learns(self, error: AnalysisException) -> bool:
        """Notes a field of schemaless values that the expressions name; whether it is a new one."""
        parameters = error.getMessageParameters() or {}
        unknown = (error.getCondition() or "").startswith("UNRESOLVED_COLUMN")
        if not unknown or self.schema is not None or len(self.named) >= _MAX_FIELDS:
            return False
        path = [one.replace("``", "`") for one in _PATH_PART.findall(parameters.get("objectName", ""))]
        if not path:
            return False
        names = self.named
        for name in path[:-1]:
            inner = names.setdefault(name, {})
            if not isinstance(inner, dict):
                return False
            names = inner
        if path[-1] in names:
            return False
        names[path[-1]] = None
        return True

    # ------------------------------------------------------------------ what is made
    def _columns(self) -> list[Column]:
        columns: list[Column] = []
        for item in self.items or ():
            if item != "*":
                columns.append(self._column(item))
            elif self.schema is not None:
                columns += [self._raw(name).alias(name) for name in self._fields()]
        return columns

    def _column(self, item: str) -> Column:
        plain = self._plain(item)
        return F.expr(item) if plain is None else self._raw(plain[0]).alias(plain[1])

    def _raw(self, name: str) -> Column:
        """A field as it is stored: what is only named keeps its schema."""
        return F.col(_KEPT).getField("value").getField(name)

    def _plain(self, item: str) -> tuple[str, str] | None:
        """Field and new name, where an item is no more than that."""
        found = _PLAIN.match(item)
        if found is None:
            return None
        name = found[1].strip("`")
        return (name, (found[2] or found[1]).strip("`")) if name in self._fields() else None

    def _kept_schemas(self) -> dict[str, Schema]:
        fields = self._fields()
        kept: dict[str, Schema] = {}
        for item in self.items or ():
            plain = self._plain(item)
            kept |= fields if item == "*" else {} if plain is None else {plain[1]: fields[plain[0]]}
        return kept

    def _assembled(self, selected: DataFrame) -> Frame:
        columns = {one.name: one.dataType for one in selected.schema.fields if one.name != _KEPT}
        if len(columns) < len(selected.columns) - 1:
            raise DataException(f"select gives two columns one name: {', '.join(selected.columns[1:])}")
        fields = self._fields()
        sets: dict[str, str] = {}
        for name in columns:
            part = name.removeprefix("record.")
            if part in _PARTS and (name != part or part not in fields):
                sets[part] = name
        members = {name: kind for name, kind in columns.items() if name not in sets.values()}
        made = {name: F.col(_KEPT).getField(name) for name in self.frame.dataframe.columns}
        key_schema, value_schema = self.frame.key_schema, self.schema
        if "key" in sets:
            key_schema, made["key"] = _derived(F.col(f"`{sets['key']}`"), columns[sets["key"]])
        for part, kind in (("topic", "string"), ("partition", "int")):
            if part in sets:
                made[part] = F.col(f"`{sets[part]}`").cast(kind)
        if "timestamp" in sets:
            made["timestamp"] = _millis(F.col(f"`{sets['timestamp']}`"), columns[sets["timestamp"]])
        if "headers" in sets:
            made["headers"] = _headers(F.col(f"`{sets['headers']}`"), columns[sets["headers"]], made["headers"])
        if "value" in sets:
            if members:
                raise DataException(f"select sets the whole value and also fields of it: {', '.join(members)}")
            value_schema, made["value"] = _derived(F.col(f"`{sets['value']}`"), columns[sets["value"]])
        elif members or "*" in (self.items or ()):
            value_schema, made["value"] = self._value(members)
        done = selected.select(*[column.alias(name) for name, column in made.items()])
        return self.frame.replace(dataframe=done, key_schema=key_schema, value_schema=value_schema)

    def _value(self, members: Mapping[str, T.DataType]) -> tuple[Schema | None, Column]:
        if self.schema is None:
            return None, self._object(members)
        kept = self._kept_schemas()
        builder = SchemaBuilder.struct()
        columns: list[Column] = []
        for name, kind in members.items():
            column = F.col(f"`{name}`")
            schema = kept.get(name)
            if schema is None:
                schema, column = _derived(column, kind)
            if schema is None:
                raise DataException(f'"{name}" is a VARIANT: cast it, a value with schema needs a type for each field')
            builder.field(name, schema)
            columns.append(column.alias(name))
        return (builder.optional() if self.schema.optional else builder).build(), F.struct(*columns)

    def _object(self, members: Mapping[str, T.DataType]) -> Column:
        columns = [_variant(F.col(f"`{name}`"), kind) for name, kind in members.items()]
        if "*" not in (self.items or ()):
            return F.to_variant_object(
                F.struct(*[column.alias(name) for name, column in zip(members, columns, strict=True)])
            )
        everything = F.try_variant_get(F.col(_KEPT).getField("value"), "$", "map<string,variant>")
        if not columns:
            return F.to_variant_object(everything)
        entries = [part for pair in zip(map(F.lit, members), columns, strict=True) for part in pair]
        return F.to_variant_object(F.map_concat(everything, F.create_map(*entries)))


def _named(column: Column, name: str, inner: object) -> Column:
    """A field of a schemaless value that expressions name; a struct where they name its fields."""
    found = get_field(column, name)
    if not isinstance(inner, dict):
        return found
    return F.struct(*[_named(found, one, below).alias(one) for one, below in inner.items()])


def _real(column: Column, schema: Schema) -> Column:
    """A field as SQL knows it: real timestamps and dates."""
    name = logical_name(schema)
    if name == Timestamp.LOGICAL_NAME:
        return F.timestamp_millis(column)
    return F.date_from_unix_date(column) if name == Date.LOGICAL_NAME else column


def _derived(column: Column, kind: T.DataType) -> tuple[Schema | None, Column]:
    """The schema Spark derived, and the column as the pipeline stores it."""
    return schema_of_spark(_regular(kind)), _stored(column, kind)


def _regular(kind: T.DataType) -> T.DataType:
    return T.StringType() if isinstance(kind, T.NullType) else kind


def _stored(column: Column, kind: T.DataType) -> Column:
    match kind:
        case T.TimestampType():
            return F.unix_millis(column)
        case T.TimestampNTZType():
            return F.unix_millis(column.cast("timestamp"))
        case T.DateType():
            return F.unix_date(column)
        case T.DecimalType():
            return column.cast(f"decimal(38,{kind.scale})")
        case T.NullType():
            return column.cast("string")
        case T.ArrayType():
            return F.transform(column, lambda one: _stored(one, kind.elementType))
        case T.MapType():
            return F.transform_values(column, lambda _, one: _stored(one, kind.valueType))
        case T.StructType():
            members = [_stored(column.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
            return F.when(column.isNotNull(), F.struct(*members)) if members else column
        case _:
            return column


def _variant(column: Column, kind: T.DataType) -> Column:
    """A column as a part of a schemaless value; what Connect knows no schemaless form of becomes a double."""
    match kind:
        case T.VariantType():
            made = column
        case T.StructType() | T.MapType() | T.ArrayType():
            made = F.to_variant_object(column)
        case T.DecimalType() | T.FloatType():
            made = column.cast("double").cast("variant")
        case T.NullType():
            made = null_variant()
        case _:
            made = column.cast("variant")
    return F.coalesce(made, null_variant())


def _millis(column: Column, kind: T.DataType) -> Column:
    return F.unix_millis(column) if isinstance(kind, T.TimestampType) else column.cast("bigint")


def _headers(column: Column, kind: T.DataType, before: Column) -> Column:
    """A map as headers, in the order of its keys; null leaves them as they were."""
    if not isinstance(kind, T.MapType) or not isinstance(kind.keyType, T.StringType):
        raise DataException(f"headers must be a map with string keys, not {kind.simpleString()}")
    plain = isinstance(kind.valueType, T.VariantType)
    schema, _ = (None, None) if plain else _derived(F.lit(None), kind.valueType)
    number = SCHEMALESS_HEADER if schema is None else HEADER_SCHEMAS.number(schema)

    def entry(one: Column) -> Column:
        value = one.getField("value")
        stored = value if plain else _stored(value, kind.valueType)
        made = value if plain else _variant(stored, _storage(kind.valueType))
        return F.struct(
            one.getField("key").alias("key"),
            F.lit(number).cast("int").alias("schema"),
            F.coalesce(made, null_variant()).alias("value"),
        )

    return F.coalesce(F.transform(F.map_entries(column), entry).cast(HEADERS_SPARK), before)


def _storage(kind: T.DataType) -> T.DataType:
    """The type of ``_stored``."""
    return T.LongType() if isinstance(kind, (T.TimestampType, T.TimestampNTZType)) else kind
