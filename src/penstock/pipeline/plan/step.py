"""The steps of a pipeline: a schema function on the driver and column functions over a record of columns.

* A step's columns are total: an expression that may raise is written with ``try_*`` or guarded. A record that failed in
  an earlier step still passes through; its result is dropped.
* A possible error is a ``StepFault`` over the step's *input* columns. A step never reads the error of another one:
  value and error written in terms of each other would double the plan with each step. The chain keeps a record's first
  fault.
* A result that is used more than once is named with ``NameColumn``, which ends a projection; plans grow linearly this
  way.

Thread: plans are immutable. They are made and used on a task's pipeline thread while a Spark session is up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api.arrow import one_array
from penstock.data import Schema, Type
from penstock.errors import PatternTimeoutException, java_class_name
from penstock.pipeline.columns.layout import (
    SCALAR,
    VARIANT,
    Layout,
    LayoutKind,
    default_physical,
    has_all_required,
    unbounded,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


SideName = Literal["key", "value"]
SIDES: Final[tuple[SideName, SideName]] = ("key", "value")
#: The columns of a record that a step may read or replace.
BAG_COLUMNS: Final = ("key", "value", "topic", "partition", "timestamp", "offset", "headers")

#: Names an expression, so that it is evaluated once however often the returned column is used.
NameColumn = Callable[["Column"], "Column"]


def unnamed(column: Column) -> Column:
    """A ``NameColumn`` that names nothing: for what is used once, and where nothing can be named."""
    return column


_RAW_SCHEMA: Final = Schema(Type.BYTES, optional=True)
_TEXT_SCHEMA: Final = Schema(Type.STRING, optional=True)


@dataclass(frozen=True, slots=True)
class Side:
    """The description of the keys, or of the values, of one group of records.

    Attributes:
        schema: What Connect says of them; None = schemaless.
        carrier: The schema the column is laid out by. It is ``schema``, except for schemaless values whose kind is
            known all the same: all are strings, say, or maps that look alike.
        absent: Every one is null and has no schema; there is no column.
        present: None is null.
        complete: No required value inside of one is null, at any depth, unless the record has failed. False where
            nothing is known.
    """

    schema: Schema | None
    physical: Layout
    carrier: Schema | None
    absent: bool = False
    present: bool = False
    complete: bool = False

    @classmethod
    def of(
        cls,
        schema: Schema | None,
        physical: Layout | None = None,
        *,
        present: bool = False,
        complete: bool = False,
    ) -> Side:
        """Values of ``schema`` in the layout ``physical`` (None: the narrowest one)."""
        layout = default_physical(schema) if physical is None else physical
        carrier = None if layout.form is LayoutKind.VARIANT else schema
        return cls(schema, layout, carrier, present=present, complete=complete)

    def without_nulls(self, column: pa.Array | pa.ChunkedArray) -> Side:
        """The same with ``present`` and ``complete`` where the column shows it, and where it makes a smaller plan.

        No step has to tell the null of a struct apart, whose schema may stay another, or to refuse that of a required
        value. Of other values nothing is said: their batches would get plans apart from each other.
        """
        schema = self.schema
        worth = schema is not None and (schema.type is Type.STRUCT or not schema.optional)
        complete = bool(self.physical.children) and has_all_required(schema, self.physical, column)
        return replace(self, present=worth and column.null_count == 0, complete=complete)

    @property
    def is_variant(self) -> bool:
        """True if the column is a VARIANT."""
        return self.physical.form is LayoutKind.VARIANT and not self.absent

    @property
    def is_object(self) -> bool:
        """True if the column holds schemaless maps as a struct; see ``penstock.pipeline.plan.map_structs``."""
        return self.physical.form is LayoutKind.OBJECT and not self.absent


#: Null without schema, in every record.
NOTHING: Final = Side(None, SCALAR, None, absent=True)
#: Bytes as they are on the wire.
RAW: Final = Side(_RAW_SCHEMA, SCALAR, _RAW_SCHEMA)
#: The same as a column of strings, all valid UTF-8. The worker takes their bytes, so that Spark need not copy them, and
#: validates text that it reads itself, for a tenth of the cost in the JVM.
RAW_TEXT: Final = Side(_RAW_SCHEMA, SCALAR, _TEXT_SCHEMA)
#: Schemaless values of any kind.
SCHEMALESS: Final = Side(None, VARIANT, None)
#: Schemaless values that are all strings.
SCHEMALESS_TEXT: Final = Side(None, SCALAR, _TEXT_SCHEMA)


@dataclass(frozen=True, slots=True)
class Shape:
    """The description of a group of records before any of them is seen; plans are made and kept by it."""

    key: Side
    value: Side
    sink: bool = False

    def side(self, name: SideName) -> Side:
        """The side of that name."""
        return self.key if name == "key" else self.value

    def without_bounds(self, names: Iterable[str]) -> Shape:
        """This shape when nothing is known any more of what the sides among ``names`` hold."""
        shape = self
        for name in ("key", "value"):
            side = self.side(name)
            plain = replace(side, physical=unbounded(side.physical), complete=False)
            if name in names and side != plain:
                shape = shape.with_side(name, plain)
        return shape

    def with_side(self, name: SideName, side: Side) -> Shape:
        """This shape with one side replaced."""
        return replace(self, key=side) if name == "key" else replace(self, value=side)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of a group. ``headers`` is ``array<struct<key, schema, value variant>>``.

    ``by_topic`` gives what was found, in front of the plan, for the topics as they are here (``topics.py``).
    """

    key: Column
    value: Column
    topic: Column
    partition: Column
    timestamp: Column
    offset: Column
    headers: Column
    by_topic: Callable[[TopicRoute | TopicPredicate], FoundByTopic]

    def side(self, name: SideName) -> Column:
        """The key or the value column."""
        return self.key if name == "key" else self.value

    def with_columns(self, columns: Mapping[str, Column]) -> RecordColumns:
        """The record with other columns in the place of some."""
        return replace(self, **columns)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class StepFault:
    """One thing that can go wrong in a step.

    Attributes:
        condition: True where it did; null counts as false. None: it goes wrong for every record.
        advice: What to do about it; added where people read the error, not in Java's message.
    """

    condition: Column | None
    message: Column | str
    exception: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """The expressions of a step.

    Attributes:
        columns: The columns of the record that change, by name.
        faults: What can go wrong, in order of precedence.
        drops: True if the record ends here (it is filtered); None if no record does.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    faults: Sequence[StepFault] = ()
    drops: Column | None = None


def _make_nothing(record: RecordColumns, keep: NameColumn) -> Made:
    return Made()


@dataclass(frozen=True)
class StepPlan:
    """The effect of a step on the records of one shape.

    ``make`` builds the step's expressions over a record and evaluates nothing; they use the columns in ``reads``, and
    ``writes`` are those of the record that change.
    """

    shape: Shape
    make: Callable[[RecordColumns, NameColumn], Made] = _make_nothing
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    @property
    def is_idle(self) -> bool:
        """True if no column changes, no record is dropped, and none can fail."""
        return self.make is _make_nothing


@dataclass(frozen=True)
class Branch:
    """One way a step may go: taken where ``condition`` holds and none before did. None = everywhere else."""

    condition: Callable[[RecordColumns], Column] | None
    plan: StepPlan
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Split:
    """A step whose output schema depends on the record: the steps after it are planned for each branch apart."""

    branches: Sequence[Branch]


class Step(ABC):
    """One operation of a chain that is carried out by Spark columns."""

    # Steps are values: equal steps give equal plans, which tasks share. Stock steps are frozen dataclasses.

    #: True if ``plan`` states the text properties (``Layout.text``) and required values (``Side.complete``) of its
    #: output. Otherwise these are dropped for the sides that the step writes.
    bounds_text: ClassVar[bool] = False
    #: True if ``plan`` writes topics.
    changes_topic: ClassVar[bool] = False
    #: True if it uses ``RecordColumns.by_topic``.
    asks_of_topic: ClassVar[bool] = False

    @abstractmethod
    def plan(self, shape: Shape) -> StepPlan | Split:
        """Decides what to do with the records of one shape; called once for each shape.

        Raises:
            ConnectException: No record of this shape can pass; each of them fails with this error.
        """

    def takes(self, shape: Shape) -> bool:
        """True if ``plan`` has columns for these records; otherwise they go record by record.

        Never for a VARIANT on the side that it works on, if it has one (``side``). A step that cannot do with all other
        schemaless values says so, too.
        """
        side: SideName | None = getattr(self, "side", None)
        return side is None or not shape.side(side).is_variant


class ColumnTransform(ABC):
    """A transform that is carried out by Spark columns. Stock transforms are both this and ``Transformation``."""

    @abstractmethod
    def step(self) -> Step:
        """Returns its behaviour as a value; called once it is configured."""


class ColumnPredicate(ABC):
    """A predicate that is a Spark column. Two of one class and equal ``identity`` are equal, and share plans."""

    #: The columns of the record that ``condition`` uses.
    reads: frozenset[str] = frozenset()
    #: True if it uses ``RecordColumns.by_topic``.
    asks_of_topic: ClassVar[bool] = False

    def takes(self, shape: Shape) -> bool:
        """True if ``condition`` has an answer for these records, see ``Step.takes``."""
        return True

    @abstractmethod
    def condition(self, record: RecordColumns, shape: Shape) -> Column:
        """True where the predicate holds; must not be null."""

    def faults(self, record: RecordColumns) -> Sequence[StepFault]:
        """Returns the faults that can arise when it is evaluated."""
        return ()

    @abstractmethod
    def identity(self) -> Hashable:
        """Its settings."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and type(self) is type(other) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((type(self), self.identity()))


@dataclass(frozen=True)
class Sorted:
    """Wire bytes sorted by what they need, before any of them reaches Spark.

    Attributes:
        hints: What a converter needs to know of each group; each hint gives a plan of its own.
        codes: For each row the index of its hint, -1 where the message is read by itself (``RowConverter``); None = all
            rows have the first one.
        column: The bytes, perhaps brought into a normal form; None = as they came.
        read: By the index of its hint what has been read already, in the rows of this hint: what is known of the
            values, and a column for all rows.
        deep: Whether a schema is among them that is nested more deeply than a plan should be.
        changed: Whether a text in ``column`` lacks what columns cannot hold: half of a surrogate pair.
        places: For each row its place in the column of its hint, if columns in ``read`` have only the rows of theirs.
    """

    hints: Sequence[Hashable]
    codes: np.ndarray | None = None
    column: pa.ChunkedArray | None = None
    read: Mapping[int, tuple[Side, pa.ChunkedArray]] = field(default_factory=dict)
    deep: bool = False
    changed: bool = False
    places: np.ndarray | None = None

    def read_rows(self, code: int, rows: np.ndarray | None) -> tuple[Side, pa.ChunkedArray]:
        """Returns what was read of some rows, all of the hint ``code``; ``rows`` None for all rows of the batch."""
        side, column = self.read[code]
        if side.absent or rows is None:
            return side, column
        places = rows if self.places is None else self.places[rows]
        if len(places) == len(column) and np.array_equal(places, np.arange(len(places))):
            return side, column
        return side, column.take(pa.array(places))

    def with_hint(self, hint: Hashable, rows: np.ndarray, size: int) -> Sorted:
        """The same with some of ``size`` rows, by number or as a mask, under one more hint."""
        codes = np.zeros(size, dtype=np.int32) if self.codes is None else self.codes.copy()
        codes[rows] = len(self.hints)
        return replace(self, hints=(*self.hints, hint), codes=codes)


@dataclass(frozen=True)
class ReadAtOnce:
    """Messages of one schema that were read without a call for each, for records that do not go as columns.

    ``values`` is in the order of the messages, None for the odd ones, which have to be read by themselves; ``odd`` has
    their positions, ascending.
    """

    schema: Schema | None
    values: Sequence[object]
    odd: Sequence[int] = ()


@dataclass(frozen=True)
class TextsAtOnce:
    """Java's texts of messages, in their order, made without a call for each, for tasks that take text.

    The text of a null and of the odd ones is null; ``odd`` has the positions of those to be read by themselves,
    ascending.
    """

    texts: pa.ChunkedArray
    odd: Sequence[int] = ()


class ColumnConverter(ABC):
    """A converter that is carried out by Spark columns. Stock converters are both this and ``Converter``."""

    #: True if it also writes values that do not have their schema's type.
    ignores_schema: ClassVar[bool] = False

    @property
    def reads_text(self) -> bool:
        """True if ``reading`` gains by ``RAW_TEXT``, and takes it; asked once it is configured."""
        return False

    @property
    def is_schemaless(self) -> bool:
        """True if nothing that it reads has a schema, and ``read_at_once`` reads it; asked once it is configured."""
        return False

    @abstractmethod
    def writing(self, side: SideName) -> Step:
        """The step that turns the column of ``side`` into bytes."""

    def write_column(self, side: Side, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
        """Writes values without Spark, like the step of ``writing``; None = that step writes them. Raises nothing."""
        return None

    @abstractmethod
    def reading(self, side: SideName, hint: Hashable) -> Step:
        """The step that turns bytes into a column, for the rows ``sort`` gave ``hint``."""

    def sort(self, column: pa.ChunkedArray, *, worked_on: bool, beside_spark: bool) -> Sorted:
        """Sorts wire bytes into groups of one schema. Runs in the worker: must be quick, C-level work.

        ``worked_on``: steps follow that gain by schemaless values of one kind. ``beside_spark``: the converter may read
        them here; its step then gets what it has read.
        """
        return Sorted(hints=(None,))

    def read_at_once(self, column: pa.ChunkedArray) -> ReadAtOnce | None:
        """Reads messages for records as ``to_connect_data`` does, without topics and headers; None = each is read by
        itself.
        """
        return None

    def read_objects(self, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Reads messages without a schema that are all objects of the same members, null for a null message.

        The result is structs of texts, whole numbers, doubles, booleans and such structs, which are null in a null
        message only; None = not all messages are so, or it was not worth a try.
        """
        return None

    def texts_at_once(self, column: pa.ChunkedArray) -> TextsAtOnce | None:
        """Makes Java's texts of what ``to_connect_data`` reads of messages; None = their plan makes them."""
        return None


@dataclass(frozen=True)
class WrittenAtOnce:
    """A message for each value, written without a call for each; ``odd`` ones mean nothing: they are written by
    themselves.
    """

    messages: pa.BinaryArray
    odd: np.ndarray


class RowConverter(ABC):
    """A stock converter that reads and writes messages one by one, or many of them without Spark.

    It has no columns of Spark: what it has read goes into a plan as columns, or becomes records.
    """

    @abstractmethod
    def write_at_once(
        self, topic: str, schema: Schema | None, values: Sequence[object] | pa.Array
    ) -> WrittenAtOnce | None:
        """Writes values of one schema as ``from_connect_data`` does; None = each is written by itself. Raises nothing.

        Values may be a column in the narrowest layout of the schema.
        """

    @abstractmethod
    def read_columns(
        self, column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool]
    ) -> Sorted:
        """Reads the messages that support columns; all other messages have the code -1. Never raises.

        ``worth`` decides if columns are worthwhile for a number of schemas and messages.
        """


# ------------------------------------------------------------------------------------------------------- topics
# A user's regular expression must not run in the JVM, whose engine has no time limit: one text could block the job for
# ever. A batch has few topics. So results that depend only on the topic are computed before the plan runs, once for
# each topic, and passed to it as columns. Exceptions become errors of the records of that topic.
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
