"""ValueToKey: builds a new key from fields of the value.

Class ``ValueToKey``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.ValueToKey.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.config import AbstractConfig, Importance, ValidList, setting
from penstock.data import Schema, SchemaBuilder, Type
from penstock.errors import DataException
from penstock.pipeline.plan.map_structs import Members, ValueDescription
from penstock.pipeline.plan.step import SideName
from penstock.transforms.definition import JAVA, StockTransform, null_replacement, replaces_nulls
from penstock.transforms.fields.definition import MapMember, Nulls, OfFields
from penstock.transforms.fields.selection import FieldSelection


class ValueToKeyConfig(AbstractConfig):
    """The settings of ``ValueToKey``."""

    fields: tuple[str, ...] = setting(
        validator=ValidList.any_non_duplicate(empty_allowed=False, null_allowed=False),
        importance=Importance.HIGH,
        doc="Field names on the record value to extract as the record key.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class FieldsToKey(OfFields):
    """Builds the key from fields of the value."""

    names: tuple[str, ...]
    defaults: bool
    side: SideName = "value"
    target: SideName = "key"
    purpose: ClassVar[str] = "copying fields from value to key"
    nulls: ClassVar[Nulls] = Nulls.FAIL

    def select(self, schema: Schema) -> FieldSelection:
        """See ``OfFields``."""
        builder = SchemaBuilder.struct()
        fields = []
        for name in self.names:
            field = schema.field(name)
            if field is None:
                raise DataException(f"Field does not exist: {name}")
            builder.field(name, field.schema)
            fields.append(field)
        return FieldSelection.of_all(builder.build(), fields, self.defaults)

    def members(self, before: Members) -> Mapping[str, MapMember]:
        """See ``OfFields``."""
        missing = MapMember(ValueDescription.of(Type.STRING), ())
        return {name: MapMember(before[name], (name,)) if name in before else missing for name in self.names}

    def of_map(self, value: dict[object, object]) -> dict[object, object]:
        """See ``OfFields``."""
        return {name: value.get(name) for name in self.names}


class ValueToKey(StockTransform[ValueToKeyConfig]):
    """Replaces the key by a Struct or Map built from fields of the value."""

    java_name: ClassVar[str] = f"{JAVA}ValueToKey"
    settings = ValueToKeyConfig

    def define(self, config: ValueToKeyConfig) -> FieldsToKey:
        """See ``StockTransform``."""
        return FieldsToKey(config.fields, replaces_nulls(config.replace_null_with_default))
