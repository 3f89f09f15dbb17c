"""A transform for one record at a time: hides all but the end of a text field."""

from collections.abc import Mapping
from typing import TypeVar

from penstock.api import ConnectRecord, Transformation
from penstock.config import AbstractConfig, ConfigDef, NonEmptyString, Range, setting
from penstock.data import Struct
from penstock.errors import DataException

R = TypeVar("R", bound=ConnectRecord)


class MaskConfig(AbstractConfig):
    field: str = setting(validator=NonEmptyString(), doc="The field to hide.")
    visible: int = setting(default=4, validator=Range.at_least(0), doc="Characters to leave at its end.")


class Mask(Transformation):
    stateless = True  # What becomes of a record hangs on the settings and the record alone.

    def configure(self, props: Mapping[str, object]) -> None:
        config = MaskConfig.parse(props)
        self.field, self.visible = config.field, config.visible

    def config(self) -> ConfigDef:
        return MaskConfig.definition()

    def apply(self, record: R) -> R | None:
        value = record.value
        masked: object
        if value is None:
            return record  # A tombstone.
        if isinstance(value, Struct):  # With schema. The record that came in must not change.
            masked = value.copy().put(self.field, self.hidden(value.get(self.field)))
        elif isinstance(value, dict):  # Without.
            masked = {name: self.hidden(item) if name == self.field else item for name, item in value.items()}
        else:
            raise DataException(f"Mask needs a struct or a map with the field {self.field}, not {type(value).__name__}")
        return record.new_record(value=masked)  # type: ignore[return-value] # the same kind of record

    def hidden(self, text: object) -> object:
        if not isinstance(text, str):
            return text
        shown = max(0, len(text) - self.visible)
        return "*" * shown + text[shown:]
