"""SetSchemaMetadata: gives the schema of the key or value a name, a version or both.

Classes ``SetSchemaMetadataKey`` and ``SetSchemaMetadataValue``. Thread: configured once; ``step`` and ``apply`` on a
pipeline thread. Source: org.apache.kafka.connect.transforms.SetSchemaMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from penstock.api.transform import R
from penstock.config import AbstractConfig, Importance, setting
from penstock.data import Schema, Struct, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.layout import LayoutKind
from penstock.pipeline.plan.step import Shape, Side, SideName, StepPlan
from penstock.transforms.definition import StockTransform, null_replacement, pair, replaces_nulls
from penstock.transforms.fields.definition import NO_FIELDS, Nulls, OfFields, side_of, with_side
from penstock.transforms.fields.selection import FieldSelection

_NO_SCHEMA: Final = "Schema required for [updating schema metadata]"


class SetSchemaMetadataConfig(AbstractConfig):
    """The settings of ``SetSchemaMetadata``."""

    schema_name: str | None = setting(default=None, importance=Importance.HIGH, doc="Schema name to set.")
    schema_version: int | None = setting(default=None, importance=Importance.HIGH, doc="Schema version to set.")
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class SetMetadata(OfFields):
    """Sets name and version of the schema of the key or value."""

    side: SideName
    name: str | None
    version: int | None
    defaults: bool
    purpose: ClassVar[str] = "updating schema metadata"
    nulls: ClassVar[Nulls] = Nulls.CHANGE
    schema_first: ClassVar[bool] = True

    def select(self, schema: Schema) -> FieldSelection:
        """See ``OfFields``."""
        if schema.type is not Type.STRUCT:
            raise DataException(NO_FIELDS)
        updated = Schema(
            schema.type,
            optional=schema.optional,
            default=schema.default,
            name=schema.name if self.name is None else self.name,
            version=schema.version if self.version is None else self.version,
            doc=schema.doc,
            parameters=schema.parameters,
            fields=schema.fields,
        )
        return FieldSelection.of_all(updated, schema.fields, self.defaults)

    def unfit(self, shape: Shape) -> StepPlan | None:
        """See ``OfFields``. A value without a schema is a fault of its record; a value that contradicts its schema is
        not.
        """
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        if known.schema is None:
            return self.failing(shape, _NO_SCHEMA)
        if known.physical.form is LayoutKind.STRUCT:
            return None
        schema = self.selected(known.schema).schema
        return StepPlan(shape.with_side(self.side, Side.of(schema, known.physical, present=known.present)))

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        schema, value = side_of(record, self.side)
        if schema is None and value is not None:
            raise DataException(_NO_SCHEMA)
        if schema is None or value is None or isinstance(value, Struct):
            return super().apply(record)
        return with_side(record, self.side, self.selected(schema).schema, value)


class _SetSchemaMetadata(StockTransform[SetSchemaMetadataConfig]):
    settings = SetSchemaMetadataConfig

    def define(self, config: SetSchemaMetadataConfig) -> SetMetadata:
        defaults = replaces_nulls(config.replace_null_with_default)
        if config.schema_name is None and config.schema_version is None:
            raise ConfigException("Neither schema name nor version configured")
        return SetMetadata(self.side, config.schema_name, config.schema_version, defaults)


SetSchemaMetadataKey, SetSchemaMetadataValue = pair(_SetSchemaMetadata)
