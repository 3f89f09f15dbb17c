"""MaskField: replaces fields by the empty value of their type, or by a fixed replacement.

Classes ``MaskFieldKey`` and ``MaskFieldValue``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.MaskField.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as F

from penstock.config import AbstractConfig, AnyNonDuplicate, Importance, NonEmptyString, setting
from penstock.data import Date, Decimal, FarDate, FarMoment, FarTimestamp, Schema, Time, Timestamp, Type, Values
from penstock.data.parser import parse_decimal
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class, java_class_of_value
from penstock.pipeline.columns.layout import CLEAN_SCALAR, UNSCALED, Layout, LayoutKind, logical_name, text_bound
from penstock.pipeline.columns.texts.json import literal
from penstock.pipeline.plan.map_structs import ValueDescription
from penstock.pipeline.plan.step import NameColumn, SideName, StepFault
from penstock.transforms.definition import StockTransform, null_replacement, pair, replaces_nulls
from penstock.transforms.fields.definition import Nulls, OfChanges
from penstock.transforms.fields.selection import Change

if TYPE_CHECKING:
    from pyspark.sql import Column


class MaskFieldConfig(AbstractConfig):
    """The settings of ``MaskField``."""

    fields: tuple[str, ...] = setting(
        validator=AnyNonDuplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Names of fields to mask.",
    )
    replacement: str | None = setting(
        default=None,
        validator=NonEmptyString(),
        importance=Importance.LOW,
        doc="Custom value replacement, that will be applied to all 'fields' values "
        "(numeric or non-empty string values only).",
    )
    replace_null_with_default: bool | None = null_replacement()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZEROS: Final[Mapping[Type, object]] = {
    Type.INT8: 0,
    Type.INT16: 0,
    Type.INT32: 0,
    Type.INT64: 0,
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
    Type.ARRAY: [],
    Type.MAP: {},
}
_REPLACED: Final[Mapping[Type, Callable[[Schema | None, object], object]]] = {
    Type.INT8: Values.convert_to_byte,
    Type.INT16: Values.convert_to_short,
    Type.INT32: Values.convert_to_integer,
    Type.INT64: Values.convert_to_long,
    Type.FLOAT32: Values.convert_to_float,
    Type.FLOAT64: Values.convert_to_double,
    Type.STRING: lambda _, text: text,
}


@lru_cache(maxsize=256)
def masked(schema: Schema, replacement: str | None) -> object:
    """Returns the masked form of a non-null value of a schema.

    Raises:
        DataException: Values of this schema cannot be masked, or not with this replacement.
    """
    logical = logical_name(schema)
    if logical == Decimal.LOGICAL_NAME:
        return decimal.Decimal(0) if replacement is None else _decimal(replacement)
    if replacement is None:
        if logical is None and schema.type not in _ZEROS:
            raise DataException(f"Cannot mask value of type: class {java_class(schema)}")
        return 0 if logical is not None else _ZEROS[schema.type]
    convert = _REPLACED.get(schema.type) if logical is None else None
    if convert is None:
        raise DataException(f"Cannot mask value of type class {java_class(schema)} with custom replacement.")
    try:
        return convert(None, replacement)
    except DataException:
        raise _no_number(replacement) from None


def _decimal(replacement: str) -> decimal.Decimal:
    number = parse_decimal(replacement)
    if number is None:
        raise DataException(f"Unable to convert {replacement} (class java.lang.String) to number")
    return number


def _no_number(replacement: str) -> DataException:
    return DataException(f"Unable to convert {replacement} (class java.lang.String) to a number")


_SCHEMAS: Final[Mapping[type, Schema]] = {
    decimal.Decimal: Decimal.schema(0),
    bool: Schema(Type.BOOLEAN),
    int: Schema(Type.INT64),
    float: Schema(Type.FLOAT64),
    str: Schema(Type.STRING),
    list: Schema(Type.ARRAY),
    dict: Schema(Type.MAP),
}


_MOMENTS: Final[Mapping[str, Callable[[Schema, Any], object]]] = {
    Date.LOGICAL_NAME: Date.to_logical,
    Time.LOGICAL_NAME: Time.to_logical,
    Timestamp.LOGICAL_NAME: Timestamp.to_logical,
}


def _schema_of(value: object) -> Schema | None:
    """The schema of a schemaless value; None if no schema can be masked this way."""
    if isinstance(value, FarMoment):
        return None
    for kind in type(value).__mro__:
        if kind in _SCHEMAS:
            return _SCHEMAS[kind]
    return None


@dataclass(frozen=True)
class Masked(Change):
    """Replaces every non-null value by the empty value of its type, or by the replacement."""

    replacement: str | None

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        """See ``Change``."""
        try:
            mask = masked(schema, self.replacement)
        except DataException:
            return physical
        if physical.form is LayoutKind.DECIMAL:
            return UNSCALED  # The mask has its own scale.
        return replace(physical, text=text_bound(mask)) if isinstance(mask, str) else physical

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        """See ``Change``."""
        try:
            mask = literal(masked(schema, self.replacement), schema, self.layout(schema, physical))
        except DataException as error:
            return column, [StepFault(column.isNotNull(), str(error), DataException.java_name)]
        return F.when(column.isNotNull(), mask), ()

    def member(self, known: ValueDescription | None) -> ValueDescription:
        """See ``Change``."""
        if known is None:
            return ValueDescription(Schema(Type.STRING, optional=True), CLEAN_SCALAR)
        return replace(known, physical=self.layout(known.schema, known.physical))

    def value(self, schema: Schema | None, value: object) -> object:
        """See ``Change``."""
        if value is None:
            return None
        if schema is None:
            schema = _schema_of(value)
        if schema is not None:
            mask = masked(schema, self.replacement)
            to_logical = _MOMENTS.get(logical_name(schema) or "")
            return mask if to_logical is None else to_logical(schema, mask)
        if self.replacement is not None or not isinstance(value, (date, time, FarMoment)):
            how = ": class " if self.replacement is None else " class "
            end = "" if self.replacement is None else " with custom replacement."
            raise DataException(f"Cannot mask value of type{how}{java_class_of_value(value)}{end}")
        if isinstance(value, (datetime, FarTimestamp)):
            return _EPOCH
        return _EPOCH.date() if isinstance(value, (date, FarDate)) else time()


@dataclass(frozen=True)
class Mask(OfChanges):
    """Masks fields of a key or value."""

    side: SideName
    fields: tuple[str, ...]
    replacement: str | None
    defaults: bool
    purpose: ClassVar[str] = "mask fields"
    nulls: ClassVar[Nulls] = Nulls.FAIL

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """See ``OfChanges``."""
        return dict.fromkeys(self.fields, Masked(self.replacement))

    def updated(self, schema: Schema) -> Schema:
        """See ``OfChanges``."""
        return schema


class _MaskField(StockTransform[MaskFieldConfig]):
    settings = MaskFieldConfig

    def define(self, config: MaskFieldConfig) -> Mask:
        return Mask(self.side, config.fields, config.replacement, replaces_nulls(config.replace_null_with_default))


MaskFieldKey, MaskFieldValue = pair(_MaskField)
