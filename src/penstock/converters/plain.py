"""The common part of the converters of one type of value: booleans, bytes, numbers and text.

Main types: ``PlainConverter``, for keys, values and headers alike; ``WriteSide`` and ``ReadSide``, its steps. Thread:
one instance a task; steps are built on its pipeline thread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef
from penstock.converters.settings import TYPE_CONFIG, ConverterConfig, use_of
from penstock.data import Schema, SchemaAndValue
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW,
    Bag,
    ColumnConverter,
    Fault,
    Keep,
    Made,
    Shape,
    Side,
    SideName,
    Step,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class WriteSide(Step):
    """Writes one side; one that no record has stays null."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        self.check(known)

        def make(bag: Bag, keep: Keep) -> Made:
            column, *faults = self.written(bag.side(self.side), known, keep)
            return Made({self.side: column}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, RAW), make, names, names)

    def check(self, known: Side) -> None:
        """Raises ``DataException`` for a side of which nothing can be written, null neither."""

    @abstractmethod
    def written(self, column: Column, known: Side, keep: Keep) -> tuple[Column, *tuple[Fault, ...]]:
        """The bytes, and what fails."""


@dataclass(frozen=True)
class ReadSide(Step):
    """Reads one side."""

    side: SideName

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""

        def make(bag: Bag, keep: Keep) -> Made:
            column, *faults = self.values(bag.side(self.side), shape.side(self.side))
            return Made({self.side: column}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, Side.of(self.schema)), make, names, names)

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The schema of the values that are read."""

    @abstractmethod
    def values(self, data: Column, known: Side) -> tuple[Column, *tuple[Fault, ...]]:
        """The values, and what fails."""


class PlainConverter(ColumnConverter, Converter, HeaderConverter):
    """Headers are converted as values are; there is no setting but ``converter.type`` unless ``settings`` says so."""

    settings: ClassVar[type[ConverterConfig]] = ConverterConfig

    def configure(self, configs: Mapping[str, object], is_key: bool | None = None) -> None:
        """See ``Converter``; without ``is_key`` it is for headers."""
        self.take(self.settings.parse({**configs, TYPE_CONFIG: use_of(is_key)}))

    def take(self, config: ConverterConfig) -> None:
        """Takes its settings."""

    def config(self) -> ConfigDef:
        """See ``Converter``."""
        return self.settings.definition()

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """See ``HeaderConverter``. The same as ``from_connect_data``."""
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """See ``HeaderConverter``. The same as ``to_connect_data``."""
        return self.to_connect_data(topic, data)
