"""The transforms in Python that the benchmark measures, written as an author would write them.

Main types: `UpperCase` (changes a field of a copy), `UpperCaseAnew` (builds the struct field by field) and
`StatelessUpperCase` (the first one, which any process may run).

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef, ConfigType, Importance
from penstock.data import Struct

CONFIG = ConfigDef().define(
    "field", ConfigType.STRING, default="name", importance=Importance.HIGH, doc="The field to change."
)


class UpperCase(Transformation):
    """A field of a struct in upper case; the rest stays."""

    def configure(self, props: Mapping[str, object]) -> None:
        """Knows the field."""
        self._field = str(CONFIG.parse(props)["field"])

    def config(self) -> ConfigDef:
        """`field`."""
        return CONFIG

    def apply(self, record: R) -> R | None:
        """A record with a copy of the value."""
        value = record.value
        if not isinstance(value, Struct):
            return record
        changed = self.copy(value).put(self._field, str(value.get(self._field)).upper())
        return cast("R", record.new_record(value=changed))

    def copy(self, value: Struct) -> Struct:
        """The same fields."""
        return value.copy()


class UpperCaseAnew(UpperCase):
    """The same, as it is done where the new struct has another schema."""

    def copy(self, value: Struct) -> Struct:
        """The same fields, one by one."""
        made = Struct(value.schema)
        for field in value.schema.fields:
            made.put(field, value.get(field))
        return made


class StatelessUpperCase(UpperCase):
    """The same as the first, in Spark's Python workers where a batch is large."""

    stateless = True
