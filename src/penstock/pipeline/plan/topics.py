"""Results of steps that depend only on the topic, computed once for each topic of a batch and passed to plans as
columns.

A user's regular expression must not run in the JVM, whose engine has no time limit: one text could block the job for
ever. A batch has few topics. So ``JavaPattern`` computes the results for topics before the plan runs, and its
exceptions become errors of the records of that topic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api.arrow import one_array
from penstock.errors import PatternTimeoutException, java_class_name
from penstock.pipeline.plan.step import (
    ColumnPredicate,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Step,
    StepFault,
    StepPlan,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

Raises: TypeAlias = tuple[type[Exception], ...]
#: Which of the exceptions it was, by its place in ``raises``.
_ERROR: Final = pa.struct([("kind", pa.int32()), ("message", pa.string())])


@dataclass(frozen=True)
class FoundByTopic:
    """The results for the topic of each record.

    Attributes:
        value: The topic's new name, or whether the predicate holds.
    """

    value: Column
    faults: Sequence[StepFault]


class TopicRoute(Step):
    """A step that only renames topics, by the topic itself."""

    changes_topic = True
    asks_of_topic = True

    @property
    def raises(self) -> Raises:
        """The exceptions that ``of_topic`` may raise, subclasses first."""
        return (PatternTimeoutException,)

    @abstractmethod
    def of_topic(self, topic: str) -> str:
        """The topic's new name."""

    def plan(self, shape: Shape) -> StepPlan:
        return StepPlan(shape, self._make, writes=frozenset({"topic"}))

    def _make(self, record: RecordColumns, keep: NameColumn) -> Made:
        found = record.by_topic(self)
        return Made({"topic": found.value}, found.faults)


class TopicPredicate(ColumnPredicate):
    """A predicate that depends only on the topic; it is false for a record without one."""

    asks_of_topic = True
    raises: Raises = (PatternTimeoutException,)

    @abstractmethod
    def of_topic(self, topic: str) -> bool:
        """True if it holds for records of a topic."""

    def condition(self, record: RecordColumns, shape: Shape) -> Column:
        return record.by_topic(self).value

    def faults(self, record: RecordColumns) -> Sequence[StepFault]:
        return record.by_topic(self).faults


@dataclass(frozen=True)
class ConditionalRoute(TopicRoute):
    """A route for the topics for which a predicate holds (or, negated, does not)."""

    route: TopicRoute
    predicate: TopicPredicate
    negate: bool = False

    @property
    def raises(self) -> Raises:
        return (*self.predicate.raises, *self.route.raises)

    def of_topic(self, topic: str) -> str:
        return topic if self.predicate.of_topic(topic) is self.negate else self.route.of_topic(topic)


@dataclass(frozen=True)
class TopicLookup:
    """Something to be found for each topic of a batch.

    Attributes:
        routes: What renames the batch's topics in front of it.
    """

    routes: tuple[TopicRoute, ...]
    asked: TopicRoute | TopicPredicate

    @property
    def name(self) -> str:
        """The name of its column: the same in all groups of a job, and in all batches of this process."""
        return f"by_topic_{hash(self) & (2**64 - 1):x}"

    def in_plan(self) -> FoundByTopic:
        """Its columns; needs a live Spark session."""
        error = F.col(f"{self.name}_error")
        kinds = enumerate(self.asked.raises)
        faults = [
            StepFault(error.getField("kind") == F.lit(kind), error.getField("message"), java_class_name(one()))
            for kind, one in kinds
        ]
        return FoundByTopic(F.col(self.name), faults)

    def columns(self, topics: pa.DictionaryArray) -> dict[str, pa.Array]:
        """Returns its columns for the topics of some records."""
        answers = [self._answer(topic) for topic in topics.dictionary.to_pylist()]
        holds = isinstance(self.asked, TopicPredicate)
        values = pa.array([value for value, _ in answers], pa.bool_() if holds else pa.string()).take(topics.indices)
        errors = pa.array([error for _, error in answers], _ERROR).take(topics.indices)
        return {self.name: values.fill_null(False) if holds else values, f"{self.name}_error": errors}

    def _answer(self, topic: str) -> tuple[str | bool | None, dict[str, object] | None]:
        for route in self.routes:
            try:
                topic = route.of_topic(topic)
            except route.raises:
                return None, None  # its records have failed there
        try:
            return self.asked.of_topic(topic), None
        except self.asked.raises as error:
            kind = next(kind for kind, one in enumerate(self.asked.raises) if isinstance(error, one))
            return None, {"kind": kind, "message": str(error)}


def looked_up(lookups: Iterable[TopicLookup], topics: pa.Array | pa.ChunkedArray) -> dict[str, pa.Array]:
    """The columns of some lookups, for the topics of some records."""
    encoded = one_array(topics).dictionary_encode()
    return {name: column for one in lookups for name, column in one.columns(encoded).items()}


def constant_of(found: pa.Array) -> Column:
    """The result for a single topic, as a column of a query all of whose rows have that topic; lazy."""
    value = found[0].as_py()
    if not pa.types.is_struct(found.type):
        return F.lit(value).cast("boolean" if pa.types.is_boolean(found.type) else "string")
    if value is None:
        return F.lit(None).cast("struct<kind:int,message:string>")
    return F.struct(F.lit(value["kind"]).cast("int").alias("kind"), F.lit(value["message"]).alias("message"))
