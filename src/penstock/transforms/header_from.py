"""HeaderFrom: moves or copies fields of the key or value to headers.

Classes ``HeaderFromKey`` and ``HeaderFromValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.HeaderFrom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, ValidString, setting
from penstock.data import ConnectHeaders, Header, Schema, Struct
from penstock.errors import ConfigException, DataException
from penstock.pipeline.header_columns import HEADER_SCHEMAS, SCHEMALESS_HEADER, header_entry, with_headers
from penstock.pipeline.objects import Members, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.types import Form, Physical
from penstock.pipeline.variant_building import null_variant, variant_of
from penstock.transforms.requirements import (
    NullPointerError,
    is_struct,
    map_fault,
    no_map,
    require_map,
    require_struct,
    struct_fault,
)
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, required_fault, schema_like

if TYPE_CHECKING:
    from pyspark.sql import Column


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


@lru_cache(maxsize=256)
def _moved(schema: Schema, gone: frozenset[str]) -> Schema:
    return schema_like(schema, [(field.name, field.schema) for field in schema.fields if field.name not in gone])


@dataclass(frozen=True)
class FieldsToHeaders(Step):
    """Moves or copies fields of one side to headers.

    Attributes:
        side: Which side.
        pairs: Field and header, for each.
        move: Whether the fields are removed.
        defaults: Whether a null is its field's default.
    """

    side: SideName
    pairs: tuple[tuple[str, str], ...]
    move: bool
    defaults: bool
    bounds_text: ClassVar[bool] = True

    @property
    def purpose(self) -> str:
        """What needs a Struct or Map, for messages."""
        return "header move" if self.move else "header copy"

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Not when all members would be moved."""
        known = shape.side(self.side)
        if known.is_object:
            return not self.move or bool(self._left(known))
        return not known.is_variant

    def _left(self, known: Side) -> Members:
        """The members that stay."""
        gone = {field for field, _ in self.pairs} if self.move else set()
        return {name: one for name, one in members_of(known).items() if name not in gone}

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.is_object:
            return self._plan_members(shape, known)
        if known.schema is not None and is_struct(known):
            return self._plan_struct(shape, known, known.schema)

        def fail(bag: Bag, keep: Keep) -> Made:
            column = bag.side(self.side)
            of = struct_fault if known.schema is not None else map_fault
            return Made(faults=_some(of(column, known, self.purpose)))

        return StepPlan(shape, fail, frozenset() if known.absent else frozenset({self.side}))

    def _plan_members(self, shape: Shape, known: Side) -> StepPlan:
        members, left = members_of(known), self._left(known)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            entries = []
            for field, key in self.pairs:
                one = members.get(field)
                found = null_variant() if one is None else variant_of(value.getField(field), one.schema, one.physical)
                entries.append(header_entry(key, found, SCHEMALESS_HEADER))
            columns = {"headers": with_headers(bag.headers, entries)}
            if self.move:
                columns[self.side] = object_column(value, known, {name: value.getField(name) for name in left})
            fault = Fault(value.isNull(), f"{no_map(self.purpose)}null", DataException.java_name)
            return Made(columns, () if known.present else (fault,))

        names = frozenset({self.side, "headers"})
        side = object_side(left, present=known.present) if self.move else known
        return StepPlan(shape.with_side(self.side, side), make, names, names if self.move else frozenset({"headers"}))

    def _plan_struct(self, shape: Shape, known: Side, schema: Schema) -> StepPlan:
        for field, _ in self.pairs:
            if schema.field(field) is None:
                return self._plan_missing(shape, known, field)
        gone = frozenset(field for field, _ in self.pairs) if self.move else frozenset()
        kept = [field for field in schema.fields if field.name not in gone]
        side = known
        if self.move:
            layouts = [copied_layout(one, known.physical.children[one.index], defaults=self.defaults) for one in kept]
            side = Side.of(
                _moved(schema, gone), Physical(Form.STRUCT, tuple(layouts)), present=True, complete=known.complete
            )

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            faults = [struct_fault(value, known, self.purpose)]
            columns: dict[str, Column] = {}
            if self.move:
                faults.append(
                    required_fault(
                        value, [(one.name, one) for one in kept], defaults=self.defaults, complete=known.complete
                    )
                )
                fields = [
                    field_column(value, one, layout, defaults=self.defaults).alias(one.name)
                    for one, layout in zip(kept, side.physical.children, strict=True)
                ]
                columns[self.side] = F.struct(*fields)
            entries = []
            for name, key in self.pairs:
                field = schema.field(name)
                assert field is not None, "looked up above"
                layout = known.physical.children[field.index]
                column = field_column(value, field, layout, defaults=self.defaults)
                entries.append(
                    header_entry(key, variant_of(column, field.schema, layout), HEADER_SCHEMAS.number(field.schema))
                )
                if not field.schema.optional:
                    message = f"A null value requires an optional schema but was {field.schema}"
                    faults.append(Fault(column.isNull(), message, DataException.java_name))
            columns["headers"] = with_headers(bag.headers, entries)
            return Made(columns, [fault for fault in faults if fault is not None])

        names = frozenset({self.side, "headers"})
        return StepPlan(shape.with_side(self.side, side), make, names, names if self.move else frozenset({"headers"}))

    def _plan_missing(self, shape: Shape, known: Side, field: str) -> StepPlan:
        def make(bag: Bag, keep: Keep) -> Made:
            missing = Fault(None, f"{_NO_FIELD}{field}", NullPointerError.java_name)
            return Made(faults=[*_some(struct_fault(bag.side(self.side), known, self.purpose)), missing])

        return StepPlan(shape, make, frozenset({self.side}))


def _some(fault: Fault | None) -> Sequence[Fault]:
    return () if fault is None else (fault,)


class _HeaderFrom(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _pairs: tuple[tuple[str, str], ...] = ()
    _move: bool = False
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = HeaderFromConfig.parse(props)
        if len(config.fields) != len(config.headers):
            raise ConfigException("'fields' config must have the same number of elements as 'headers' config.")
        self._pairs = tuple(zip(config.fields, config.headers, strict=True))
        self._move = config.operation == "move"
        self._defaults = replaces_nulls(config.replace_null_with_default)

    def config(self) -> ConfigDef:
        return HeaderFromConfig.definition()

    def step(self) -> Step:
        return FieldsToHeaders(self.side, self._pairs, self._move, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = (record.key_schema, record.key) if self.side == "key" else (record.value_schema, record.value)
        headers = ConnectHeaders(record.raw_headers or ())
        purpose = "header move" if self._move else "header copy"
        gone = {field for field, _ in self._pairs} if self._move else set()
        changed: object
        if schema is None:
            members = require_map(value, purpose)
            for name, key in self._pairs:
                headers.add(Header(key, members.get(name)))
            changed = {key: one for key, one in members.items() if key not in gone} if self._move else value
        else:
            struct = require_struct(value, schema, purpose)
            changed, schema = self._moved_struct(struct, schema, frozenset(gone))
            for name, key in self._pairs:
                field = struct.schema.field(name)
                if field is None:
                    raise NullPointerError(f"{_NO_FIELD}{name}")
                headers.add(key, field_value(struct, field, defaults=self._defaults), field.schema)
        if self.side == "key":
            return cast("R", record.new_record(key_schema=schema, key=changed, headers=headers))
        return cast("R", record.new_record(value_schema=schema, value=changed, headers=headers))

    def _moved_struct(self, struct: Struct, schema: Schema, gone: frozenset[str]) -> tuple[Struct, Schema]:
        if not self._move:
            return struct, schema
        moved = Struct(_moved(schema, gone))
        for field in moved.schema.fields:
            moved.put(field, field_value(struct, field.name, defaults=self._defaults))
        return moved, moved.schema


class HeaderFromKey(_HeaderFrom):
    """HeaderFrom on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.HeaderFrom$Key"
    side: ClassVar[SideName] = "key"


class HeaderFromValue(_HeaderFrom):
    """HeaderFrom on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.HeaderFrom$Value"
    side: ClassVar[SideName] = "value"
