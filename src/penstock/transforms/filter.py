"""Filter: drops every record; with a predicate, those it holds for.

Class ``Filter``. Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.pipeline.step import Bag, ColumnTransform, Keep, Made, Shape, Step, StepPlan

CONFIG: Final = ConfigDef()


def _drop(bag: Bag, keep: Keep) -> Made:
    return Made(drops=F.lit(True))


@dataclass(frozen=True)
class DropAll(Step):
    """Drops every record."""

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        return StepPlan(shape, _drop)


class Filter(ColumnTransform, Transformation):
    """Drops all records; meant to be guarded by a predicate."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.Filter"

    def configure(self, props: Mapping[str, object]) -> None:
        """Takes no settings."""

    def config(self) -> ConfigDef:
        """See ``Transformation``. There is no setting."""
        return CONFIG

    def step(self) -> Step:
        """See ``ColumnTransform``."""
        return DropAll()

    def apply(self, record: R) -> R | None:
        """The same for one record, for callers outside of a pipeline."""
        return None
