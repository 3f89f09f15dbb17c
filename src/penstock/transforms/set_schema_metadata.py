"""SetSchemaMetadata: gives the schema of the key or value a name, a version or both.

Classes ``SetSchemaMetadataKey`` and ``SetSchemaMetadataValue``. Thread: configured once; ``step`` and ``apply`` on a
pipeline thread. Source: org.apache.kafka.connect.transforms.SetSchemaMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, setting
from penstock.data import Schema, Struct, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.types import Form, Physical
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.sides import side_of, with_side
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, filled, required_fault

_NO_SCHEMA: Final = "Schema required for [updating schema metadata]"
#: Java lists the fields of every schema, which only structs have.
_NO_FIELDS: Final = "Cannot list fields on non-struct type"


class SetSchemaMetadataConfig(AbstractConfig):
    """The settings of ``SetSchemaMetadata``."""

    schema_name: str | None = setting(default=None, importance=Importance.HIGH, doc="Schema name to set.")
    schema_version: int | None = setting(default=None, importance=Importance.HIGH, doc="Schema version to set.")
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class SetMetadata(Step):
    """Renames the schema of one side."""

    side: SideName
    name: str | None
    version: int | None
    defaults: bool
    bounds_text: ClassVar[bool] = True

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. A value without a schema is a fault of its record."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        names = frozenset({self.side})
        if known.schema is None:

            def refuse(bag: Bag, keep: Keep) -> Made:
                present = bag.side(self.side).isNotNull()
                return Made(faults=[Fault(present, _NO_SCHEMA, DataException.java_name)])

            return StepPlan(shape, refuse, names)
        schema = self.updated(known.schema)
        side = Side.of(schema, self._copied(known, schema), present=known.present, complete=known.complete)
        if known.physical.form is not Form.STRUCT:
            return StepPlan(shape.with_side(self.side, side))
        return StepPlan(
            shape.with_side(self.side, side), lambda bag, keep: self._make(bag, known, schema), names, names
        )

    def _copied(self, known: Side, schema: Schema) -> Physical:
        if known.physical.form is not Form.STRUCT:
            return known.physical
        pairs = zip(schema.fields, known.physical.children, strict=True)
        layouts = [copied_layout(one, child, defaults=self.defaults) for one, child in pairs]
        return replace(known.physical, children=tuple(layouts))

    def updated(self, schema: Schema) -> Schema:
        """The schema with its new name and version.

        Raises:
            DataException: it is no struct.
        """
        if schema.type is not Type.STRUCT:
            raise DataException(_NO_FIELDS)
        return Schema(
            schema.type,
            optional=schema.optional,
            default=schema.default,
            name=schema.name if self.name is None else self.name,
            version=schema.version if self.version is None else self.version,
            doc=schema.doc,
            parameters=schema.parameters,
            fields=schema.fields,
        )

    def _make(self, bag: Bag, known: Side, schema: Schema) -> Made:
        value = bag.side(self.side)
        required = required_fault(
            value, [(one.name, one) for one in schema.fields], defaults=self.defaults, complete=known.complete
        )
        faults = [] if required is None else [required]
        if not self.defaults or all(one.schema.default is None for one in schema.fields):
            return Made({self.side: value}, faults)
        pairs = zip(schema.fields, known.physical.children, strict=True)
        copied = F.struct(*[field_column(value, one, child, defaults=True).alias(one.name) for one, child in pairs])
        return Made({self.side: copied if known.present else F.when(value.isNotNull(), copied)}, faults)


class _SetSchemaMetadata(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _name: str | None = None
    _version: int | None = None
    _defaults: bool = True

    def configure(self, props: Mapping[str, object]) -> None:
        config = SetSchemaMetadataConfig.parse(props)
        self._name, self._version = config.schema_name, config.schema_version
        self._defaults = replaces_nulls(config.replace_null_with_default)
        if self._name is None and self._version is None:
            raise ConfigException("Neither schema name nor version configured")

    def config(self) -> ConfigDef:
        return SetSchemaMetadataConfig.definition()

    def step(self) -> SetMetadata:
        return SetMetadata(self.side, self._name, self._version, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = side_of(record, self.side)
        if schema is None and value is None:
            return record
        if schema is None:
            raise DataException(_NO_SCHEMA)
        updated = self.step().updated(schema)
        if isinstance(value, Struct):
            fields = [field_value(value, one, defaults=self._defaults) for one in schema.fields]
            value = filled(updated, fields)
        return with_side(record, self.side, updated, value)


class SetSchemaMetadataKey(_SetSchemaMetadata):
    """SetSchemaMetadata on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.SetSchemaMetadata$Key"
    side: ClassVar[SideName] = "key"


class SetSchemaMetadataValue(_SetSchemaMetadata):
    """SetSchemaMetadata on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value"
    side: ClassVar[SideName] = "value"
