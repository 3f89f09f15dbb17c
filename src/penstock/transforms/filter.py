"""Filter: drops every record, or with a predicate the matching ones.

Class ``Filter``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, StepPlan
from penstock.transforms.definition import JAVA, Definition, StockTransform


class FilterConfig(AbstractConfig):
    """``Filter`` has no settings."""


def _drop(record: RecordColumns, keep: NameColumn) -> Made:
    return Made(drops=F.lit(True))


@dataclass(frozen=True)
class DropAll(Definition):
    """Drops every record."""

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        return StepPlan(shape, _drop)

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        return None


class Filter(StockTransform[FilterConfig]):
    """Drops all records; normally used with a predicate."""

    java_name: ClassVar[str] = f"{JAVA}Filter"
    settings = FilterConfig

    def define(self, config: FilterConfig) -> DropAll:
        """See ``StockTransform``."""
        return DropAll()
