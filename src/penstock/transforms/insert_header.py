"""InsertHeader: adds one header to every record, its value read from text as SimpleHeaderConverter does.

Class ``InsertHeader``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.InsertHeader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import AbstractConfig, ConfigDef, Importance, NonNull, setting
from penstock.data import NULL_VALUE, Header, Values
from penstock.pipeline.header_columns import HEADER_SCHEMAS, header_entry, with_headers
from penstock.pipeline.step import Bag, ColumnTransform, Keep, Made, Shape, Step, StepPlan
from penstock.pipeline.variant_building import variant_literal


class InsertHeaderConfig(AbstractConfig):
    """The settings of ``InsertHeader``."""

    header: str = setting(validator=NonNull(), importance=Importance.HIGH, doc="The name of the header.")
    value_literal: str = setting(
        validator=NonNull(),
        importance=Importance.HIGH,
        doc="The literal value that is to be set as the header value on all records.",
    )


_HEADERS: Final = frozenset({"headers"})


def parse_literal(key: str, text: str) -> Header:
    """The header of a name and the text of its value."""
    schema, value = Values.parse_string(text) or NULL_VALUE
    return Header(key, value, schema)


@dataclass(frozen=True)
class AddHeader(Step):
    """Adds a header; held as text, so that equal steps are equal."""

    key: str
    literal: str

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        header = parse_literal(self.key, self.literal)

        def make(bag: Bag, keep: Keep) -> Made:
            value = variant_literal(header.value)
            entry = header_entry(header.key, value, HEADER_SCHEMAS.number(header.schema))
            return Made({"headers": with_headers(bag.headers, [entry])})

        return StepPlan(shape, make, _HEADERS, _HEADERS)


class InsertHeader(ColumnTransform, Transformation):
    """Adds a header with a fixed value to each record, behind those it has."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.InsertHeader"
    _key: str = ""
    _literal: str = ""

    def configure(self, props: Mapping[str, object]) -> None:
        """See ``Transformation``."""
        config = InsertHeaderConfig.parse(props)
        self._key, self._literal = config.header, config.value_literal
        self._header = parse_literal(self._key, self._literal)

    def config(self) -> ConfigDef:
        """See ``Transformation``."""
        return InsertHeaderConfig.definition()

    def step(self) -> Step:
        """See ``ColumnTransform``."""
        return AddHeader(self._key, self._literal)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        changed = record.new_record()
        changed.headers.add(self._header)
        return cast("R", changed)
