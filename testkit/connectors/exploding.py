"""A transform that a Spark JVM does not survive, for values that ask for it: ``ExplodingValue``.

A text that begins with "explode" makes an array of half a billion numbers in Spark's columns; every other one stays as
it is, with the length of an array of one number behind it. Thread: see ``StockTransform``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig
from penstock.pipeline.plan.step import Made, NameColumn, RecordColumns, Shape, SideName, StepPlan
from penstock.transforms.definition import Definition, StockTransform, pair

TRIGGER: Final = "explode"
_NUMBERS: Final = 500_000_000


class ExplodingConfig(AbstractConfig):
    """It has no settings."""


@dataclass(frozen=True)
class Explode(Definition):
    """Works on one side, which has to be text."""

    side: SideName

    def takes(self, shape: Shape) -> bool:
        """See ``Step``."""
        return shape.side(self.side).schema is not None

    def apply(self, record: R) -> R | None:
        """See ``Definition``."""
        return record

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        names = frozenset({self.side})
        return StepPlan(shape, self._make, names, names)

    def _make(self, record: RecordColumns, keep: NameColumn) -> Made:
        text = record.side(self.side)
        numbers = F.when(F.startswith(text, F.lit(TRIGGER)), F.lit(_NUMBERS)).otherwise(F.lit(1))
        length = F.size(F.sequence(F.lit(1).cast("bigint"), numbers.cast("bigint")))
        return Made({self.side: F.concat(text, length.cast("string"))})


class _Exploding(StockTransform[ExplodingConfig]):
    settings = ExplodingConfig

    def define(self, config: ExplodingConfig) -> Explode:
        return Explode(self.side)


ExplodingKey, ExplodingValue = pair(_Exploding)
