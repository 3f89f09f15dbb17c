"""InsertHeader: adds one header to every record; its value is parsed like in SimpleHeaderConverter.

Class ``InsertHeader``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.InsertHeader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, cast

from penstock.api.transform import R
from penstock.config import AbstractConfig, Importance, NonNull, setting
from penstock.data import NULL_VALUE, Header, Values
from penstock.pipeline.columns.header_columns import HEADER_SCHEMAS, header_entry, with_headers
from penstock.pipeline.plan.frame_values import variant_literal
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, StepPlan
from penstock.transforms.definition import JAVA, Definition, StockTransform


class InsertHeaderConfig(AbstractConfig):
    """The settings of ``InsertHeader``."""

    header: str = setting(validator=NonNull(), importance=Importance.HIGH, doc="The name of the header.")
    value_literal: str = setting(
        validator=NonNull(),
        importance=Importance.HIGH,
        doc="The literal value that is to be set as the header value on all records.",
    )


_HEADERS: Final = frozenset({"headers"})


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
        """See ``Step``."""
        header = self._header

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            value = variant_literal(header.value)
            entry = header_entry(header.key, value, HEADER_SCHEMAS.number(header.schema))
            return Made({"headers": with_headers(record.headers, [entry])})

        return StepPlan(shape, make, _HEADERS, _HEADERS)

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        changed = record.new_record()
        changed.headers.add(self._header)
        return cast("R", changed)


class InsertHeader(StockTransform[InsertHeaderConfig]):
    """Adds a header with a fixed value to each record, after the existing headers."""

    java_name: ClassVar[str] = f"{JAVA}InsertHeader"
    settings = InsertHeaderConfig

    def define(self, config: InsertHeaderConfig) -> AddHeader:
        """See ``StockTransform``."""
        return AddHeader(config.header, config.value_literal)
