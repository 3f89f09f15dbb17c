"""Transforms that work on whole frames: a Spark plan of their own, which may change the number of rows.

A row keeps the number of its record in ``seq``. A record without a row is dropped. If records became several rows, the
batch has other rows after that, and ``Failures.origins`` has the record of each row. When an expression fails in Spark,
the whole job does. Then the records are halved until the failing ones are isolated: that costs a job for each halving,
but only for frames with a bad record.

Thread: a task's pipeline thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.api import UNCHANGED, ConnectRecord, Frame
from penstock.data import Schema
from penstock.errors import ConnectException, DataException, SparkOverdueException, SparkUnavailableException
from penstock.pipeline.batch.batches import Failures, Stage, exception_of
from penstock.pipeline.batch.groups import RecordGroup, group_records
from penstock.pipeline.batch.headers import HEADER_SCHEMAS
from penstock.pipeline.batch.row_path import attributes_of, columns_of, rebuilt_rows, sorted_rows
from penstock.pipeline.batch.segments import Framed
from penstock.pipeline.columns.expressions import spark_text
from penstock.pipeline.columns.layout import HEADERS_SPARK, physical_of_spark, spark_type
from penstock.pipeline.columns.schemaless import field_columns
from penstock.pipeline.plan.chain import GroupOutcome, collectable
from penstock.pipeline.plan.frame_values import variant_of
from penstock.pipeline.plan.isolated_jobs import in_parts, what_was_lost
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.plan.step import SIDES, Shape, Side, SideName
from penstock.pipeline.spark.isolated_session import IsolatedSessionLostException, Loss

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

_OTHERS: Final = {"topic": "string", "partition": "int", "timestamp": "bigint"}
#: The name of the column with typed fields.
TYPED: Final = "__typed"
#: The largest number of mixed kinds of fields; objects with more have no typed columns.
_MOST_KINDS: Final = 4
_ERROR: Final = T.StructType([T.StructField(name, T.StringType()) for name in ("stage", "exception", "message")])


@runtime_checkable
class PartsByFields(Protocol):
    """A frame transform whose plan depends on which of these fields schemaless values have: it gets a frame for each
    set.
    """

    parting_fields: frozenset[str]


@runtime_checkable
class TypesFields(Protocol):
    """A frame transform that also gets fields of values without a schema as typed columns.

    They are in the column ``TYPED`` of its frame, a struct. Objects whose fields are of different kinds come in
    different frames.
    """

    typed_names: frozenset[str]

    def typed(self, columns: Mapping[str, pa.Array], mixed: frozenset[str]) -> Mapping[str, pa.Array]:
        """Returns the columns for the frame, from those of the fields; in ``mixed`` ones doubles may be whole."""
        ...


@runtime_checkable
class LimitedInTime(Protocol):
    """A frame transform whose plan is a user's text, and may take long for one batch: at most ``limit_s`` seconds."""

    limit_s: float


@dataclass(frozen=True)
class PlannedFrame:
    """The frame of one group of records; see ``penstock.api.Frame``.

    Attributes:
        present_fields: The ``parting_fields`` that all of its schemaless values have; they have no others of them.
        typed_fields: The types of the columns in ``TYPED``.
    """

    dataframe: DataFrame
    key_schema: Schema | None
    value_schema: Schema | None
    header_schemas: Sequence[Schema]
    present_fields: frozenset[str] = frozenset()
    typed_fields: Mapping[str, pa.DataType] = field(default_factory=dict)

    def replace(
        self,
        *,
        dataframe: DataFrame | None = None,
        key_schema: object = UNCHANGED,
        value_schema: object = UNCHANGED,
    ) -> PlannedFrame:
        """A frame with other columns or schemas; omitted ones stay the same."""
        return PlannedFrame(
            self.dataframe if dataframe is None else dataframe,
            self.key_schema if key_schema is UNCHANGED else cast("Schema | None", key_schema),
            self.value_schema if value_schema is UNCHANGED else cast("Schema | None", value_schema),
            self.header_schemas,
            self.present_fields,
            self.typed_fields,
        )


class FrameRunner:
    """Runs frame transforms for one task. Thread: the task's pipeline thread."""

    def __init__(self, jobs: SparkJobs) -> None:
        self._jobs = jobs

    def apply(
        self,
        segment: Framed,
        live: list[ConnectRecord],
        positions: Sequence[int] | None,
        failures: Failures,
        rows: int,
        *,
        sink: bool,
    ) -> tuple[list[ConnectRecord], list[int] | None]:
        """Returns the transformed records, and their rows (None: row i is record i of the list).

        Notes errors; if a record has become several rows, ``failures.origins`` is set.
        """
        by_row = dict(zip(range(len(live)) if positions is None else positions, live, strict=True))
        taken, passed = self._parted(segment, by_row, failures)
        made = [[(row, by_row[row]) for row in passed]]

        def on_bad(row: int, side: SideName, error: Exception) -> None:
            failures.raised(row, Stage.TRANSFORMATION, segment.name, error)

        shared = columns_of(attributes_of([by_row[row] for row in taken]), taken, rows, failures)
        for present, all_members in _by_fields(segment, by_row, taken):
            for members, typed in _typed_parts(segment, by_row, all_members):
                for group in group_records([by_row[row] for row in members], members, sink=sink, on_bad=on_bad):
                    table = _table(group, shared)
                    kinds: Mapping[str, pa.DataType] = {}
                    if typed:
                        places = np.searchsorted(members, table.column("seq").to_numpy())
                        struct = pa.StructArray.from_arrays(list(typed.values()), names=list(typed))
                        table = table.append_column(TYPED, struct.take(pa.array(places)))
                        kinds = {name: column.type for name, column in typed.items()}
                    for outcome in self._outcomes(_Plan(segment, group.shape, present, kinds), table, failures):
                        made.append(rebuilt_rows(outcome, by_row))
        kept = sorted_rows(made, failures)
        found = [row for row, _ in kept]
        records = [record for _, record in kept]
        if len(set(found)) == len(found):
            return records, found
        failures.spread(np.asarray(found, dtype=np.int64))
        return records, None

    def _parted(
        self, segment: Framed, by_row: Mapping[int, ConnectRecord], failures: Failures
    ) -> tuple[list[int], list[int]]:
        """Returns the rows that the transform takes, and those that its predicate excludes."""
        taken: list[int] = []
        passed: list[int] = []
        for row, record in by_row.items():
            try:
                (taken if segment.takes(record) else passed).append(row)
            except Exception as error:
                failures.raised(row, Stage.TRANSFORMATION, segment.name, error)
        return taken, passed

    def _outcomes(self, plan: _Plan, table: pa.Table, failures: Failures) -> list[GroupOutcome]:
        """Returns the outcomes of the rows; rows that no session can process have failed.

        Raises:
            ConnectException: More rows failed than the rows themselves can explain.
        """

        def lost(row: pa.Table, loss: Loss) -> list[GroupOutcome]:
            told = ConnectException(what_was_lost(row, loss))
            failures.raised(row.column("seq")[0].as_py(), Stage.TRANSFORMATION, plan.segment.name, told)
            return []

        parts = in_parts(table, lambda part: self._halved(plan, part, failures), lost)
        return [outcome for part in parts for outcome in part]

    def _halved(self, plan: _Plan, table: pa.Table, failures: Failures) -> list[GroupOutcome]:
        name = plan.segment.name
        try:
            return [self._run_once(plan, table, failures)]
        except Exception as error:
            if isinstance(error, (SparkUnavailableException, IsolatedSessionLostException)):
                raise
            if isinstance(error, SparkOverdueException):
                # Without an isolated session, finding the guilty records would cost all tasks a session for each try.
                raise SparkOverdueException(
                    f"The transform {name} was ended with a batch of {table.num_rows} records: {error}. Look for "
                    "expressions that make very much of a value, or for patterns that try very many ways; a preview "
                    "shows them. Lower batch.max.records if the batch is only large"
                ) from error
            # An error of the plan is an error of every record.
            whole = not isinstance(error, PySparkException) or isinstance(error, AnalysisException)
            if whole or table.num_rows == 1:
                told = _told(error)
                for row in table.column("seq").to_pylist():
                    failures.raised(row, Stage.TRANSFORMATION, name, told)
                return []
        log.debug("%s: a frame of %d records failed and is halved", name, table.num_rows)
        middle = table.num_rows // 2
        parts = (table.slice(0, middle), table.slice(middle))
        return [one for part in parts for one in self._halved(plan, part, failures)]

    def _run_once(self, plan: _Plan, table: pa.Table, failures: Failures) -> GroupOutcome:
        transformation = plan.segment.transformation
        limit_s = transformation.limit_s if isinstance(transformation, LimitedInTime) else None
        output, made = self._jobs.collect(table, plan, limit_s)
        rows = output.column("seq").to_numpy()
        dropped = pc.fill_null(output.column("dropped"), False)
        error = output.column("error")
        if error.null_count < len(error):
            for place in np.flatnonzero(error.is_valid().to_numpy()).tolist():
                found = error[place].as_py()
                kind = found["exception"] or ConnectException.java_name
                error_found = exception_of(kind, found["message"])
                failures.raised(int(rows[place]), Stage.TRANSFORMATION, plan.segment.name, error_found)
        columns = {name: output.column(name) for name in output.column_names if name not in ("seq", "dropped", "error")}
        return GroupOutcome(rows, made, columns, None, dropped, {})


def _told(error: Exception) -> Exception:
    """An error of Spark as one of Connect, without the trace of the JVM."""
    if not isinstance(error, PySparkException):
        return error
    wrapped = DataException(spark_text(error))
    wrapped.__cause__ = error
    return wrapped


def _table(group: RecordGroup, shared: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    size = len(next(iter(group.columns.values()))) if group.columns else None
    rows = np.arange(len(shared["topic"])) if group.rows is None else group.rows
    pick = None if group.rows is None else pa.array(group.rows)
    columns: dict[str, Any] = {"seq": pa.array(rows, pa.int64())}
    for name in ("topic", "partition", "offset", "timestamp", "headers"):
        columns[name] = shared[name] if pick is None else shared[name].take(pick)
    columns |= dict(group.columns)
    assert size is None or size == len(rows), "columns and rows belong together"
    return pa.table(columns)


@dataclass(frozen=True)
class _Plan:
    """The plan of one transform for records of one shape."""

    segment: Framed
    shape: Shape
    present: frozenset[str]
    typed: Mapping[str, pa.DataType]

    def __call__(self, data: DataFrame) -> tuple[DataFrame, Shape]:
        """Applies the transform; returns the frame and the shape of the result."""
        shape = self.shape
        absent: dict[str, Column] = {side: F.lit(None).cast("variant") for side in SIDES if shape.side(side).absent}
        schemaless: dict[str, Column] = {
            side: variant_of(F.col(side), shape.side(side).carrier, shape.side(side).physical)
            for side in SIDES
            if not shape.side(side).absent and shape.side(side).schema is None and not shape.side(side).is_variant
        }
        data = data.withColumns({**absent, **schemaless, "dropped": F.lit(False), "error": F.lit(None).cast(_ERROR)})
        frame = PlannedFrame(data, shape.key.schema, shape.value.schema, HEADER_SCHEMAS, self.present, self.typed)
        made: Frame = self.segment.transformation.apply(frame)
        frame_out = made.dataframe
        key, value = _side(frame_out, "key", made.key_schema), _side(frame_out, "value", made.value_schema)
        chosen = [F.col("seq").cast("bigint").alias("seq")]
        chosen += [F.col(name).cast(kind).alias(name) for name, kind in _OTHERS.items()]
        chosen += [F.col("headers").cast(HEADERS_SPARK).alias("headers")]
        for name, side in zip(SIDES, (key, value), strict=True):
            if not side.absent:
                chosen.append(collectable(F.col(name), side).alias(name))
        chosen += [F.col("dropped").cast("boolean").alias("dropped"), F.col("error").cast(_ERROR).alias("error")]
        return frame_out.select(*chosen), replace(shape, key=key, value=value)


def _by_fields(
    segment: Framed, by_row: Mapping[int, ConnectRecord], rows: list[int]
) -> list[tuple[frozenset[str], list[int]]]:
    """The rows of each set of parting fields; usually all rows have the same."""
    transformation = segment.transformation
    names = transformation.parting_fields if isinstance(transformation, PartsByFields) else frozenset()
    if not names:
        return [(frozenset(), rows)]
    found: dict[frozenset[str], list[int]] = {}
    for row in rows:
        record = by_row[row]
        fields = record.value if record.value_schema is None and isinstance(record.value, Mapping) else ()
        found.setdefault(names.intersection(fields), []).append(row)
    return list(found.items())


def _typed_parts(
    segment: Framed, by_row: Mapping[int, ConnectRecord], rows: list[int]
) -> list[tuple[list[int], Mapping[str, pa.Array]]]:
    """The rows in parts, each with the typed columns of its objects' fields; none for values that are no objects."""
    transformation = segment.transformation
    if not isinstance(transformation, TypesFields) or not transformation.typed_names:
        return [(rows, {})]
    left = [row for row in rows if by_row[row].value_schema is None and type(by_row[row].value) is dict]
    parts: list[tuple[list[int], Mapping[str, pa.Array]]] = []
    others = set(rows) - set(left)
    while left and len(parts) < _MOST_KINDS:
        found = field_columns([by_row[row].value for row in left], transformation.typed_names)  # type: ignore[misc]
        columns, odd = found.columns, found.odd
        kept = [row for place, row in enumerate(left) if place not in odd]
        if odd:
            mask = pa.array(place not in odd for place in range(len(left)))
            columns = {name: column.filter(mask) for name, column in columns.items()}
        if not kept:
            break
        parts.append((kept, transformation.typed(columns, found.mixed)))
        left = [row for place, row in enumerate(left) if place in odd]
    others |= set(left)
    return [*parts, (sorted(others), {})] if others else parts


def _side(frame: DataFrame, name: str, schema: Schema | None) -> Side:
    """Returns the side of a column of the result.

    Raises:
        ConnectException: It does not fit the schema.
    """
    kind = frame.schema[name].dataType
    if schema is None:
        if not isinstance(kind, T.VariantType):
            raise ConnectException(
                f'A frame without {name} schema must have a VARIANT column "{name}", not {kind.simpleString()}; '
                f"give replace() a {name}_schema"
            )
        return Side.of(None)
    try:
        physical = physical_of_spark(kind, schema)
        # As text, without nullability.
        fits = spark_type(schema, physical).simpleString() == kind.simpleString()
    except (ValueError, KeyError, AttributeError, DataException):
        fits = False
    if not fits:
        raise ConnectException(f'The column "{name}" has the type {kind.simpleString()}, which does not fit {schema}')
    return Side.of(schema, physical)
