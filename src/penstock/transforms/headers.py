"""Transforms of headers: DropHeaders removes them by name, HeaderFrom makes them of fields, InsertHeader adds one.

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.DropHeaders, HeaderFrom and InsertHeader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, cast

from penstock.api.transform import R
from penstock.config import AbstractConfig, Importance, LambdaValidator, NonNull, ValidList, ValidString, setting
from penstock.data import NULL_VALUE, ConnectHeaders, Header, Schema, Values
from penstock.errors import ConfigException, DataException
from penstock.pipeline.batch.headers import (
    HEADER_SCHEMAS,
    SCHEMALESS_HEADER,
    header_entry,
    with_headers,
    without_headers,
)
from penstock.pipeline.plan.frame_values import null_variant, variant_literal, variant_of
from penstock.pipeline.plan.map_structs import Members, members_of
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, Side, SideName, StepFault, StepPlan
from penstock.transforms.definition import (
    JAVA,
    Definition,
    NullPointerError,
    StockTransform,
    null_replacement,
    pair,
    replaces_nulls,
    require_map,
    require_struct,
)
from penstock.transforms.fields import (
    FieldSelection,
    MapMember,
    Nulls,
    OfFields,
    field_column,
    field_value,
    schema_like,
    side_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


class DropHeadersConfig(AbstractConfig):
    """The settings of ``DropHeaders``."""

    headers: tuple[str, ...] = setting(
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="The name of the headers to be removed.",
    )


_HEADERS: Final = frozenset({"headers"})


@dataclass(frozen=True)
class Drop(Definition):
    """Removes the headers of these names."""

    keys: tuple[str, ...]

    def plan(self, shape: Shape) -> StepPlan:

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made({"headers": without_headers(record.headers, self.keys)})

        return StepPlan(shape, make, _HEADERS, _HEADERS)

    def apply(self, record: R) -> R | None:
        kept = ConnectHeaders(one for one in record.raw_headers or () if one.key not in self.keys)
        return cast("R", record.new_record(headers=kept))


class DropHeaders(StockTransform[DropHeadersConfig]):
    """Removes all headers with the configured names, case-sensitive."""

    java_name: ClassVar[str] = f"{JAVA}DropHeaders"
    settings = DropHeadersConfig

    def define(self, config: DropHeadersConfig) -> Drop:
        return Drop(config.headers)


def _ensure_not_empty(name: str, value: object) -> None:
    if not value:
        raise ConfigException(name, value, "Empty list")


_NOT_EMPTY: Final = LambdaValidator(_ensure_not_empty, "non-empty list")


class HeaderFromConfig(AbstractConfig):
    """The settings of ``HeaderFrom``."""

    fields: tuple[str, ...] = setting(
        validator=_NOT_EMPTY,
        importance=Importance.HIGH,
        doc="Field names in the record whose values are to be copied or moved to headers.",
    )
    headers: tuple[str, ...] = setting(
        validator=_NOT_EMPTY,
        importance=Importance.HIGH,
        doc="Header names, in the same order as the field names listed in the fields configuration property.",
    )
    operation: str = setting(
        validator=ValidString("move", "copy"),
        importance=Importance.HIGH,
        doc="Either <code>move</code> if the fields are to be moved to the headers (removed from the key/value), "
        "or <code>copy</code> if the fields are to be copied to the headers (retained in the key/value).",
    )
    replace_null_with_default: bool | None = null_replacement()


_NO_FIELD: Final = (
    'Cannot invoke "org.apache.kafka.connect.data.Field.schema()" because the return value of '
    '"org.apache.kafka.connect.data.Schema.field(String)" is null: the schema has no field '
)


@dataclass(frozen=True)
class FieldsToHeaders(OfFields):
    """Moves or copies fields of the key or value to headers."""

    side: SideName
    pairs: tuple[tuple[str, str], ...]
    move: bool
    defaults: bool
    nulls: ClassVar[Nulls] = Nulls.FAIL

    @cached_property
    def purpose(self) -> str:
        return "header move" if self.move else "header copy"

    @cached_property
    def _gone(self) -> frozenset[object]:
        return frozenset(field for field, _ in self.pairs) if self.move else frozenset()

    def select(self, schema: Schema) -> FieldSelection:
        for name, _ in self.pairs:
            if schema.field(name) is None:
                raise NullPointerError(f"{_NO_FIELD}{name}")
        if not self.move:
            return FieldSelection.of_all(schema, schema.fields, defaults=False, checked=False)
        kept = [one for one in schema.fields if one.name not in self._gone]
        return FieldSelection.of_all(schema_like(schema, [(one.name, one.schema) for one in kept]), kept, self.defaults)

    def takes(self, shape: Shape) -> bool:
        """Not if all members would be moved."""
        known = shape.side(self.side)
        return bool(self.members(members_of(known))) if known.is_object else super().takes(shape)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        return {name: one for name, one in super().members(before).items() if name not in self._gone}

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        return {key: one for key, one in value.items() if key not in self._gone} if self.move else value

    def apply(self, record: R) -> R | None:
        changed = cast("R", super().apply(record))
        schema, value = side_of(record, self.side)
        headers = changed.headers
        if schema is None:
            members = require_map(value, self.purpose)
            for name, key in self.pairs:
                headers.add(Header(key, members.get(name)))
        else:
            struct = require_struct(value, schema, self.purpose)
            for name, key in self.pairs:
                field = struct.schema.field(name)
                if field is None:
                    raise NullPointerError(f"{_NO_FIELD}{name}")
                headers.add(key, field_value(struct, field, defaults=self.defaults), field.schema)
        return changed

    def plan(self, shape: Shape) -> StepPlan:
        """The headers are added to the plan of the key or value."""
        plan, known = cast("StepPlan", super().plan(shape)), shape.side(self.side)
        if not plan.writes:
            return plan  # Every value fails.

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            made = plan.make(record, keep)
            entries, faults = self._entries(record.side(self.side), known)
            columns = {"headers": with_headers(record.headers, entries)}
            return Made({**made.columns, **columns} if self.move else columns, [*made.faults, *faults])

        names = frozenset({self.side, "headers"})
        if self.move:
            return StepPlan(plan.shape, make, names, names)
        return StepPlan(shape, make, names, frozenset({"headers"}))

    def _entries(self, value: Column, known: Side) -> tuple[list[Column], Sequence[StepFault]]:
        """The headers and the possible errors."""
        if known.schema is None:
            members = members_of(known)
            found = [(key, members.get(name), value.getField(name)) for name, key in self.pairs]
            variants = [
                (key, null_variant() if one is None else variant_of(column, one.schema, one.physical))
                for key, one, column in found
            ]
            return [header_entry(key, variant, SCHEMALESS_HEADER) for key, variant in variants], ()
        entries: list[Column] = []
        faults: list[StepFault] = []
        for name, key in self.pairs:
            field = known.schema.field(name)
            assert field is not None, "the plan looked it up"
            layout = known.physical.children[field.index]
            column = field_column(value, field, layout, defaults=self.defaults)
            number = HEADER_SCHEMAS.number(field.schema)
            entries.append(header_entry(key, variant_of(column, field.schema, layout), number))
            if not field.schema.optional:
                message = f"A null value requires an optional schema but was {field.schema}"
                faults.append(StepFault(column.isNull(), message, DataException.java_name))
        return entries, faults


class _HeaderFrom(StockTransform[HeaderFromConfig]):
    """Moves or copies fields of the key or value to headers."""

    settings = HeaderFromConfig

    def define(self, config: HeaderFromConfig) -> FieldsToHeaders:
        if len(config.fields) != len(config.headers):
            raise ConfigException("'fields' config must have the same number of elements as 'headers' config.")
        pairs = tuple(zip(config.fields, config.headers, strict=True))
        defaults = replaces_nulls(config.replace_null_with_default)
        return FieldsToHeaders(self.side, pairs, config.operation == "move", defaults)


HeaderFromKey, HeaderFromValue = pair(_HeaderFrom)


class InsertHeaderConfig(AbstractConfig):
    """The settings of ``InsertHeader``."""

    header: str = setting(validator=NonNull(), importance=Importance.HIGH, doc="The name of the header.")
    value_literal: str = setting(
        validator=NonNull(),
        importance=Importance.HIGH,
        doc="The literal value that is to be set as the header value on all records.",
    )


@dataclass(frozen=True)
class AddHeader(Definition):
    """Adds a header; stores its value as text, so that equal steps compare equal."""

    key: str
    literal: str

    @cached_property
    def _header(self) -> Header:
        schema, value = Values.parse_string(self.literal) or NULL_VALUE
        return Header(self.key, value, schema)

    def plan(self, shape: Shape) -> StepPlan:
        header = self._header

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            value = variant_literal(header.value)
            entry = header_entry(header.key, value, HEADER_SCHEMAS.number(header.schema))
            return Made({"headers": with_headers(record.headers, [entry])})

        return StepPlan(shape, make, _HEADERS, _HEADERS)

    def apply(self, record: R) -> R | None:
        changed = record.new_record()
        changed.headers.add(self._header)
        return cast("R", changed)


class InsertHeader(StockTransform[InsertHeaderConfig]):
    """Adds a header with a fixed value to each record, after the existing headers."""

    java_name: ClassVar[str] = f"{JAVA}InsertHeader"
    settings = InsertHeaderConfig

    def define(self, config: InsertHeaderConfig) -> AddHeader:
        return AddHeader(config.header, config.value_literal)
