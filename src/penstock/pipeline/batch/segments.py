"""Cuts a pipeline into segments: runs of Spark columns, and operations in Python between them.

Thread: the segments of a task are used by its pipeline thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from penstock.api import (
    ConnectRecord,
    FrameTransformation,
    Monitorable,
    Predicate,
    SinkRecord,
    SourceRecord,
    Transformation,
)
from penstock.errors import ConnectException, DataException
from penstock.pipeline.batch.batches import Stage, TransformStage
from penstock.pipeline.plan.chain import Conditional, Staged
from penstock.pipeline.plan.step import (
    ColumnPredicate,
    ColumnTransform,
    ConditionalRoute,
    Step,
    TopicPredicate,
    TopicRoute,
)


@dataclass(frozen=True)
class Classic:
    """One transform that works on records, in Python."""

    transformation: Transformation
    predicate: Predicate | None
    negate: bool
    name: str
    alias: str
    props: Mapping[str, object] | None = None
    predicate_props: Mapping[str, object] | None = None

    @property
    def is_stateless(self) -> bool:
        """True if its class is declared stateless, and that of its predicate, if any; stock classes are. Invariant 6.

        A class that adds metrics may count records: a copy in another process would count them in vain.
        """
        for one, stock in ((self.transformation, ColumnTransform), (self.predicate, ColumnPredicate)):
            if one is not None and (isinstance(one, Monitorable) or not (isinstance(one, stock) or one.stateless)):
                return False
        return True

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Returns the transformed record; None = dropped.

        Raises:
            DataException: the result is not a record, or cannot be sent to Kafka.
        """
        if self.predicate is not None and bool(self.predicate.test(record)) is self.negate:
            return record
        result: Any = self.transformation.apply(record)
        if result is None:
            return None
        # The two existing classes, for nearly all records: a check against an abstract class costs ten times as much.
        kind = type(result)
        if kind is not SourceRecord and kind is not SinkRecord and not isinstance(result, ConnectRecord):
            raise DataException(f"{self.name} must return a record, or None to drop it, got {type(result).__name__}")
        # Here it is the failure of this record; in a column it would fail the whole batch.
        if (what := malformed(result)) is not None:
            raise DataException(f"{self.name} returned a record that cannot be sent: {what}")
        made: ConnectRecord = result
        return made


@dataclass(frozen=True, eq=False)
class Stateless:
    """Consecutive transforms of users that keep no state between records: any process may run them, in any order."""

    chain: tuple[Classic, ...]


@dataclass(frozen=True)
class ColumnarSegment:
    """Steps that are one Spark plan; ``alone`` has the transforms among them, for single records."""

    steps: tuple[Staged, ...]
    alone: tuple[Classic, ...] = ()

    def takes(self, step: Step) -> bool:
        """True if the plan can be extended by a step.

        A step that needs topics gets them before the plan runs, so they must not depend on the plan's results.
        """
        known = all(isinstance(one.step, TopicRoute) or not one.step.changes_topic for one in self.steps)
        return known or not step.asks_of_topic


def malformed(record: ConnectRecord) -> str | None:
    """Returns the reason why a record's coordinates cannot be sent to Kafka, with any schema, or None if they can."""
    topic, partition, timestamp = record.topic, record.kafka_partition, record.timestamp
    if (
        type(topic) is str
        and (partition is None or (type(partition) is int and 0 <= partition < 2**31))
        and (timestamp is None or (type(timestamp) is int and 0 <= timestamp < 2**63))
    ):
        return None
    fields: tuple[tuple[str, object, type, int], ...] = (
        ("topic", topic, str, 0),
        ("partition", partition, Integral, 31),
        ("timestamp", timestamp, Real, 63),
    )
    for what, value, kind, bits in fields:
        too_large = isinstance(value, int) and not -(2**bits) <= value < 2**bits
        if too_large or not (value is None or isinstance(value, kind)):
            return f"the {what} is {value!r}"
    return None


@dataclass(frozen=True)
class Framed:
    """One transform that works on whole frames."""

    transformation: FrameTransformation
    predicate: Predicate | None
    negate: bool
    name: str
    alias: str

    def takes(self, record: ConnectRecord) -> bool:
        """True if the transform gets a record: it may exclude tombstones, and its predicate may be false."""
        if record.value is None and not self.transformation.takes_tombstones:
            return False
        return self.predicate is None or self.predicate.test(record) is not self.negate


Segment = ColumnarSegment | Framed | Classic | Stateless


def class_name(instance: object) -> str:
    """Returns the name of a class in errors: the Java name of the instance, else the Python path of its class."""
    kind = type(instance)
    java: str | None = getattr(instance, "java_name", None)
    return java or f"{kind.__module__}.{kind.__qualname__}"


def cut_transforms(stages: Sequence[TransformStage]) -> list[Segment]:
    """The segments of a chain of transforms; consecutive column steps become one plan, if one plan can contain them."""
    segments: list[Segment] = []
    for stage in stages:
        step = _column_step(stage)
        name = class_name(stage.transformation)
        if step is None:
            _append(segments, _segment(stage, name))
            continue
        staged = Staged(step, Stage.TRANSFORMATION, name)
        alone = _segment(stage, name)
        if not isinstance(alone, Classic):
            raise ConnectException(f"transforms.{stage.alias}: {name} is a ColumnTransform without apply(record)")
        last = segments[-1] if segments else None
        if isinstance(last, ColumnarSegment) and last.takes(step):
            segments[-1] = ColumnarSegment((*last.steps, staged), (*last.alone, alone))
        else:
            segments.append(ColumnarSegment((staged,), (alone,)))
    return segments


def _append(segments: list[Segment], segment: Segment) -> None:
    """Adds a segment that is not columns; consecutive stateless transforms become one segment."""
    if not (isinstance(segment, Classic) and segment.is_stateless):
        segments.append(segment)
    elif segments and isinstance(last := segments[-1], Stateless):
        segments[-1] = Stateless((*last.chain, segment))
    else:
        segments.append(Stateless((segment,)))


def _segment(stage: TransformStage, name: str) -> Framed | Classic:
    transformation = stage.transformation
    if isinstance(transformation, FrameTransformation):
        return Framed(transformation, stage.predicate, stage.negate, name, stage.alias)
    if isinstance(transformation, Transformation):
        return Classic(
            transformation, stage.predicate, stage.negate, name, stage.alias, stage.props, stage.predicate_props
        )
    raise ConnectException(f"transforms.{stage.alias}: {name} is neither a Transformation nor a FrameTransformation")


def why_one_process(segments: Sequence[Segment]) -> str | None:
    """The reason why records have to pass through the worker's process; None if any process may process them."""
    for one in segments:
        if isinstance(one, Framed):
            return f"the transform '{one.alias}' ({one.name}) works on frames of the worker's session"
        if isinstance(one, Classic):
            return (
                f"the transform '{one.alias}' ({one.name}) may keep something between records: its class does not "
                "say stateless = True"
            )
    return None


def _column_step(stage: TransformStage) -> Step | None:
    transformation = stage.transformation
    if not isinstance(transformation, ColumnTransform):
        return None
    if stage.predicate is None:
        return transformation.step()
    predicate: object = stage.predicate
    if not isinstance(predicate, ColumnPredicate):
        return None
    step = transformation.step()
    if isinstance(step, TopicRoute) and isinstance(predicate, TopicPredicate):
        return ConditionalRoute(step, predicate, stage.negate)
    return Conditional(step, predicate, stage.negate)
