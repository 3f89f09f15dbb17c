"""DropHeaders: removes headers by name.

Class ``DropHeaders``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.DropHeaders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from penstock.api.transform import R
from penstock.config import AbstractConfig, Importance, ValidList, setting
from penstock.data import ConnectHeaders
from penstock.pipeline.columns.header_columns import without_headers
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, StepPlan
from penstock.transforms.definition import JAVA, Definition, StockTransform


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
        """See ``Step``."""

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            return Made({"headers": without_headers(record.headers, self.keys)})

        return StepPlan(shape, make, _HEADERS, _HEADERS)

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        kept = ConnectHeaders(one for one in record.raw_headers or () if one.key not in self.keys)
        return cast("R", record.new_record(headers=kept))


class DropHeaders(StockTransform[DropHeadersConfig]):
    """Removes all headers with the configured names, case-sensitive."""

    java_name: ClassVar[str] = f"{JAVA}DropHeaders"
    settings = DropHeadersConfig

    def define(self, config: DropHeadersConfig) -> Drop:
        """See ``StockTransform``."""
        return Drop(config.headers)
