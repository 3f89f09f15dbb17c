"""Sql: selects, filters and splits records with Spark SQL expressions. Class ``Sql``; not part of Kafka Connect.

``transforms.x.select`` is a list of expressions as after SELECT, ``transforms.x.where`` a condition as after WHERE; at
least one of the two is required. For instance::

    transforms.x.type=Sql
    transforms.x.select=id, upper(name) as name, explode(items) as item, concat('orders-', country) as topic
    transforms.x.where=status = 'open' and topic like 'shop-%'

Input of the expressions:

* The fields of the value, by name. With a schema they have their types; Connect's Timestamp and Date are real
  timestamps and dates. Without one they have the types of the values: ``amount * 2`` accepts numbers, and texts that
  contain a number. Objects in which a field has another type than in most objects are processed separately. A path to a
  missing field is null. A field stays VARIANT if it is written as one (``user:id``, ``variant_get(...)``), or if an
  object or an array is cast (``items::array<struct<price: double>>``, ``user::string``, which is JSON). ``user.id`` is
  a nested field, ``items[0].name`` a field of an array element. ``*`` means all fields; it fails for a value without
  fields (a line of text): use ``value as line``, which turns the value into a field.
* ``key``, ``topic``, ``partition``, ``offset`` (sinks), ``timestamp`` (milliseconds), ``headers`` (a map of VARIANTs;
  the last header of a name counts) and ``value`` (as a whole), unless the value has a field with that name. Without a
  schema this is decided for each value. They are always available as ``record.key`` and so on.
* In the same way fields take precedence over functions that Spark accepts without brackets, such as ``current_date``.
  Without a schema ``user``, ``session_user`` and ``current_user`` are always fields.

Result:

* Each column is a field of the new value. A column called ``key``, ``topic``, ``partition``, ``timestamp`` or
  ``headers`` (a map) sets that part of the record instead, and a column called ``value`` the whole value; if the value
  has a field with that name, call the column ``record.topic`` (in backticks) and so on.
* Spark derives the schema; a field that is only named, or renamed, keeps its own schema. Derived fields are optional. A
  schemaless value stays schemaless.
* A generator (``explode``) turns a record into several records, or none. The offset of the original is committed once
  the last of them has been delivered. If one of them fails, the record has failed, and none of them is delivered.
* A record that does not satisfy ``where`` is dropped. Records without a value (tombstones) pass unchanged.
* An expression that fails for all possible records makes the configuration invalid: a syntax error, an unknown
  function, an aggregate, two columns with the same name. During the start of the worker this check waits for its Spark
  session, up to a minute. An expression that does not fit a schema (a missing field, a wrong type) fails every record
  of the schema; one that fails for a value (a division by zero), or sets no topic or a negative partition, fails that
  record.

Thread: configured once; ``apply`` on a pipeline thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.api import Frame, FrameTransformation
from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, setting
from penstock.data import Date, Schema, SchemaBuilder, Timestamp, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.batch.frames import TYPED, PlannedFrame
from penstock.pipeline.batch.headers import HEADER_SCHEMAS, SCHEMALESS_HEADER
from penstock.pipeline.columns.expressions import spark_text
from penstock.pipeline.columns.layout import HEADERS_SPARK, logical_name, schema_of_spark
from penstock.pipeline.plan.frame_values import get_field, null_variant
from penstock.transforms.sql.checks import check_select, check_where, read, refuse_parsed
from penstock.transforms.sql.fields import FieldsAsked, fields_asked, type_at
from penstock.transforms.sql.text import (
    SqlRefused,
    names_in,
    split_items,
    untyped_paths,
    with_typed_paths,
    with_variant_paths,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The time limit of the expressions for one batch: a hundred times the time of the largest batch on a busy machine.
LIMIT_S: Final = 60.0
_KEPT: Final = "__record"
_PARTS: Final = ("key", "topic", "partition", "timestamp", "headers", "value")
_READ_ONLY: Final = ("offset",)
_SEEN_PARTS: Final = frozenset((*_PARTS, *_READ_ONLY))
#: The message for a value without fields; the kind of value comes between the two parts.
_NO_OBJECT: Final = "select=* stands for the fields of the value, and it has none, it is of type "
_NAME_IT: Final = ": write value as line, say, to make a field of it, or value to leave it as it is"
#: Names that Spark treats as functions even without brackets, unless a field has the name.
_MOMENTS: Final = frozenset(("current_date", "current_time", "current_timestamp", "localtime"))
#: The same, but these are always fields here, so that none can reveal the account of the worker.
_USERS: Final = frozenset(("user", "current_user", "session_user", "current_path"))
_PLAIN: Final = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)(?:\s+(?:as\s+)?(`[^`]+`|[A-Za-z_]\w*))?\s*\Z", re.IGNORECASE)
#: The first name in Spark's message about an unknown name.
_PATH_PART: Final = re.compile(r"`((?:[^`]|``)*)`")


class _EitherGiven:
    """Rejects a transform without any expression; a validator sees only one setting."""

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        _ensure_either(parsed)
        return []

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return True


def _ensure_either(values: Mapping[str, object]) -> None:
    if values["select"] is None and values["where"] is None:
        raise ConfigException("select", None, "Sql needs an expression: set select, where, or both")


class SqlConfig(AbstractConfig):
    """The settings of ``Sql``."""

    select: str | None = setting(
        default=None,
        validator=LambdaValidator(check_select, "Spark SQL expressions, separated by commas"),
        recommender=_EitherGiven(),
        importance=Importance.HIGH,
        doc="What the new value is made of, as behind SELECT: fields of the value, or expressions with a name. "
        "<code>key</code>, <code>topic</code>, <code>partition</code>, <code>timestamp</code> and <code>headers</code> "
        "set these parts of the record. Without it the record stays as it is.",
    )
    where: str | None = setting(
        default=None,
        validator=LambdaValidator(check_where, "a Spark SQL condition"),
        importance=Importance.HIGH,
        doc="Which records go on, as behind WHERE. Without it all do.",
    )


class Sql(FrameTransformation):
    """Spark SQL over the fields of the value and the parts of the record."""

    takes_tombstones: ClassVar[bool] = False
    #: See ``penstock.pipeline.batch.frames.LimitedInTime``.
    limit_s: float = LIMIT_S
    _select: str | None = None
    _where: str | None = None
    #: See ``penstock.pipeline.batch.frames.PartsByFields``.
    parting_fields: frozenset[str] = frozenset()
    #: See ``penstock.pipeline.batch.frames.TypesFields``.
    typed_names: frozenset[str] = frozenset()
    _asked: FieldsAsked = FieldsAsked({}, frozenset(), frozenset())
    #: The fields of schemaless values that the expressions name, as far as Spark has reported them.
    _named: frozenset[str] = frozenset()

    def configure(self, props: Mapping[str, object]) -> None:
        config = SqlConfig.parse(props)
        _ensure_either({"select": config.select, "where": config.where})
        self._select, self._where = config.select, config.where
        names = names_in(self._select or "") | names_in(self._where or "")
        self.parting_fields = frozenset(name for name in names if name in _SEEN_PARTS or name.lower() in _MOMENTS)
        self._named = frozenset(name for name in names if name.lower() in _USERS)
        self._asked = fields_asked(one for one in (self._select, self._where) if one)
        self.typed_names = frozenset(self._asked.kinds)

    def config(self) -> ConfigDef:
        return SqlConfig.definition()

    def typed(self, columns: Mapping[str, pa.Array], mixed: frozenset[str]) -> Mapping[str, pa.Array]:
        return self._asked.filled(columns, mixed)

    def apply(self, frame: Frame) -> Frame:
        items = None if self._select is None else split_items(self._select)
        present = frame.present_fields if isinstance(frame, PlannedFrame) else frozenset()
        typed = frame.typed_fields if isinstance(frame, PlannedFrame) else {}
        query = _Query(frame, items, self._where, present, set(self._named), typed)
        made = query.run()
        self._named |= query.named
        return made


@dataclass
class _Query:
    """The expressions over one frame."""

    frame: Frame
    items: Sequence[str] | None
    where: str | None
    #: The fields of its schemaless values that share their name with a part of the record or a function.
    present: frozenset[str]
    #: Other fields of schemaless values that the expressions name; Spark's analysis reports more of them.
    named: set[str]
    #: The types of the fields of its schemaless values that are typed columns.
    typed: Mapping[str, pa.DataType]

    def run(self) -> Frame:
        """Returns the resulting frame; raises DataException if the expressions do not fit the frame."""
        if self.schema is None:
            # An alias with the same name would take precedence over a field that Spark has not reported yet.
            plain = {found[0] for item in self.items or () if (found := self._plain(item)) is not None}
            self.named.update(plain - self.present)
        try:
            selected = self._selected(self.frame.dataframe)
        except SqlRefused as error:
            raise DataException(f"It is no expression over the fields of one record: {error}") from error
        except AnalysisException as error:
            raise DataException(spark_text(error) + self._advice(error)) from error
        except Py4JJavaError as error:
            told = str(error.java_exception.getMessage()).partition("\n")[0]
            raise DataException(f"Spark cannot plan the expressions: {told}") from error
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

    def _computed(self) -> frozenset[str]:
        """Returns the names that the expressions use, except in items that only name a field."""
        items = [item for item in self.items or () if self._plain(item) is None]
        return frozenset().union(*map(names_in, [*items, self.where or ""]))

    def _free_fields(self) -> frozenset[str]:
        """The fields of schemaless values that the expressions see; those without a type are VARIANTs."""
        return self.present | self.named if self.schema is None else frozenset()

    def _kind_of_path(self, names: tuple[str, ...]) -> Literal["text", "other"] | None:
        """Returns the kind of a path into a typed column, or None if it does not lead into one."""
        if names[0] not in self.typed or names[0] not in self._free_fields():
            return None
        return "text" if pa.types.is_string(type_at(self.typed, names)) else "other"

    def _expression(self, text: str) -> Column:
        """Rewrites all paths into VARIANTs in Spark's syntax for them."""
        written = with_typed_paths(with_variant_paths(text, self._variants()), self._kind_of_path)
        read(written)
        refuse_parsed(self.frame.dataframe.sparkSession, written)
        return F.expr(written)

    def _advice(self, error: AnalysisException) -> str:
        """Returns advice on the types to write if an operator or a function rejects a VARIANT."""
        if '"VARIANT"' not in str(error):
            return ""
        texts, variants = [*(self.items or ()), self.where or ""], self._variants()
        untyped = dict.fromkeys(path for text in texts for path in untyped_paths(text, variants))
        if not untyped:
            return ""
        return (
            f". Values without a schema have no types: write the one that is meant, as in "
            f"{', '.join(f'{path}::double or {path}::string' for path in untyped)}"
        )

    def _variants(self) -> set[tuple[str | None, ...]]:
        """The paths that are VARIANTs."""
        fields = {*self._fields(), *self._free_fields()}
        variants: set[tuple[str | None, ...]] = {(name,) for name in self._free_fields() if name not in self.typed}
        variants |= {("record", "headers", None)} | ({("headers", None)} if "headers" not in fields else set())
        for part, schema in (("key", self.frame.key_schema), ("value", self.schema)):
            if schema is None:
                variants |= {("record", part)} | ({(part,)} if part not in fields else set())
        return variants

    def _seen(self, frame: DataFrame) -> DataFrame:
        fields = self._fields()
        headers = F.map_from_entries(
            F.transform(F.col("headers"), lambda one: F.struct(one.getField("key"), one.getField("value")))
        )
        parts = {name: F.col(name) for name in (*_PARTS, *_READ_ONLY)} | {"headers": headers}
        record = F.struct(*[column.alias(name) for name, column in parts.items()])
        computed = self._computed()
        # Spark evaluates all columns of small batches, even unused ones: they must not fail.
        seen = {
            name: _real(F.col("value").getField(name), schema) if name in computed else F.col("value").getField(name)
            for name, schema in fields.items()
        }
        seen |= {
            name: F.col(TYPED).getField(name) if name in self.typed else get_field(F.col("value"), name)
            for name in sorted(self._free_fields())
        }
        seen = {**{name: column for name, column in parts.items() if name not in seen}, **seen}
        kept = F.struct(*[F.col(name) for name in frame.columns]).alias(_KEPT)
        seen.setdefault("record", record)
        return frame.select(kept, *[column.alias(name) for name, column in seen.items()])

    def _selected(self, frame: DataFrame) -> DataFrame:
        while True:
            try:
                made = self._seen(frame)
                if self.where is not None:
                    made = made.filter(self._expression(self.where))
                made = made.select(f"{_KEPT}.*") if self.items is None else made.select(_KEPT, *self._columns())
                # A remote session only analyses at this point.
                _ = made.schema
                if self._all_are_fields():
                    return made
            except AnalysisException as error:
                if not self._learns(error):
                    raise

    def _all_are_fields(self) -> bool:
        """True if all names are fields or aliases; after this call, names that Spark found elsewhere count as fields.

        Raises:
            SqlRefused: With a schema the name is not a field, but a session variable or the worker's account.
        """
        texts = [*(item for item in self.items or () if self._plain(item) is None and item != "*"), self.where or ""]
        readings = [read(text) for text in texts if text]
        known = {*_SEEN_PARTS, "record", *self._fields(), *self._free_fields()}.union(
            *(one.aliases for one in readings)
        )
        foreign = sorted(frozenset().union(*(one.columns for one in readings)) - known)
        if not foreign:
            return True
        if self.schema is not None:
            raise SqlRefused(f"{foreign[0]} is no field of these records, and nothing else may be named so")
        self.named.update(foreign)
        return False

    def _learns(self, error: AnalysisException) -> bool:
        """Records a field of schemaless values that an expression names; True if it is new.

        Only Spark can distinguish fields from aliases, keywords and variables.
        """
        unknown = (error.getCondition() or "").startswith("UNRESOLVED_COLUMN")
        found = _PATH_PART.match((error.getMessageParameters() or {}).get("objectName", ""))
        if not unknown or self.schema is not None or found is None:
            return False
        name = found[1].replace("``", "`")
        is_new = name not in self.named
        self.named.add(name)
        return is_new

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
        return self._expression(item) if plain is None else self._raw(plain[0]).alias(plain[1])

    def _raw(self, name: str) -> Column:
        """A field as it is stored; an item that only names a field keeps the field's schema or type."""
        value = F.col(_KEPT).getField("value")
        return get_field(value, name) if self.schema is None else value.getField(name)

    def _plain(self, item: str) -> tuple[str, str] | None:
        """Field and new name of an item that only names a field; None for any other item."""
        found = _PLAIN.match(item)
        if found is None:
            return None
        name = found[1].strip("`")
        is_field = name in self._fields() if self.schema is not None else self._is_loose_field(item, name)
        return (name, (found[2] or found[1]).strip("`")) if is_field else None

    def _is_loose_field(self, item: str, name: str) -> bool:
        """True if an item that is a name means a field of schemaless values: not another item or part of the record."""
        if name not in self.typed or name not in read(item).columns:
            return False
        if name in self.present:
            return True
        others = frozenset().union(*(read(one).aliases for one in self.items or () if one not in (item, "*")))
        return name not in others | _SEEN_PARTS and name != "record" and name.lower() not in _MOMENTS

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
        fields = {*self._fields(), *self.present}
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
        for part, kind, problem in _SENT_PARTS:
            if part in sets:
                made[part] = F.col(f"`{sets[part]}`").cast(kind)
                made["error"] = F.coalesce(made["error"], _problem(made[part], problem))
        if "timestamp" in sets:
            moment = F.col(f"`{sets['timestamp']}`")
            is_timestamp = isinstance(columns[sets["timestamp"]], T.TimestampType)
            made["timestamp"] = F.unix_millis(moment) if is_timestamp else moment.cast("bigint")
        if "headers" in sets:
            made["headers"] = _headers(F.col(f"`{sets['headers']}`"), columns[sets["headers"]], made["headers"])
        if "value" in sets:
            if members:
                raise DataException(f"select sets the whole value and also fields of it: {', '.join(members)}")
            value_schema, made["value"] = _derived(F.col(f"`{sets['value']}`"), columns[sets["value"]])
        elif members or "*" in (self.items or ()):
            if "*" in (self.items or ()):
                made["error"] = F.coalesce(made["error"], self._no_object())
            value_schema, made["value"] = self._value(members)
        done = selected.select(*[column.alias(name) for name, column in made.items()])
        return self.frame.replace(dataframe=done, key_schema=key_schema, value_schema=value_schema)

    def _no_object(self) -> Column:
        """The error of a value without fields, if ``*`` is used; null for all other values."""
        if self.schema is not None:
            if self.schema.type is not Type.STRUCT:
                raise DataException(f"{_NO_OBJECT}{self.schema.type.name.lower()}{_NAME_IT}")
            return F.lit(None).cast("struct<stage string, exception string, message string>")
        value = F.col(_KEPT).getField("value")
        kind = F.schema_of_variant(value)
        is_bad = value.isNotNull() & ~F.is_variant_null(value) & ~kind.startswith("OBJECT<")
        return _problem(value, lambda _: (is_bad, F.concat(F.lit(_NO_OBJECT), F.lower(kind), F.lit(_NAME_IT))))

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


def _real(column: Column, schema: Schema) -> Column:
    """Converts a field to SQL's types: real timestamps and dates."""
    name = logical_name(schema)
    if name == Timestamp.LOGICAL_NAME:
        return F.timestamp_millis(column)
    return F.date_from_unix_date(column) if name == Date.LOGICAL_NAME else column


def _derived(column: Column, kind: T.DataType) -> tuple[Schema | None, Column]:
    """The schema that Spark derived, and the column as the pipeline stores it."""
    return schema_of_spark(T.StringType() if isinstance(kind, T.NullType) else kind), _stored(column, kind)


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
    """A column as a part of a schemaless value; a type without a schemaless form becomes a double."""
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


def _problem(part: Column, problem: Callable[[Column], tuple[Column, Column | str]]) -> Column:
    """The error of a record with an invalid part; null for all other records."""
    is_bad, told = problem(part)
    message = F.lit(told) if isinstance(told, str) else told
    members = {"stage": F.lit(None), "exception": F.lit(DataException.java_name), "message": message}
    return F.when(is_bad, F.struct(*[one.cast("string").alias(name) for name, one in members.items()]))


def _no_topic(topic: Column) -> tuple[Column, str]:
    told = (
        'select gives no topic: the column "topic" is null or empty. Give it a value, as in coalesce(..., record.topic)'
    )
    return topic.isNull() | (topic == ""), told


def _no_partition(partition: Column) -> tuple[Column, str]:
    told = 'select gives no partition: the column "partition" is negative. Null leaves the choice to the producer'
    return partition < 0, told


_SENT_PARTS: Final = (("topic", "string", _no_topic), ("partition", "int", _no_partition))


def _headers(column: Column, kind: T.DataType, before: Column) -> Column:
    """A map as headers, sorted by key; null keeps the original headers."""
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
    """The column type of ``_stored``."""
    return T.LongType() if isinstance(kind, (T.TimestampType, T.TimestampNTZType)) else kind
