"""A plan of Spark between two Python workers: compiled transforms in front of what executors write of a topic.

Python workers have no session, so a plan cannot be run from there. A query has it in its middle instead: the first
Python worker lays messages out as columns (``PlanAhead.laid_out``), the projections of the plan follow, and the second
Python worker takes the outcomes (``PlanAhead.received``) and ends the batches (``SinkPipeline.end``). The plan is made
before the query, of the groups that a sample of the messages has. A batch with other groups, or with messages that are
no columns, passes it by: it goes record by record in the second Python worker.

Columns of the rows in between: the messages under names of their own, whether the plan counts, and the plan's input.
Thread: ``plan_ahead`` and ``projected`` on one with a session, everything else in a Python worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api.arrow import for_spark
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA
from penstock.pipeline.batch.sink.path import GroupsAhead, SinkPipeline
from penstock.pipeline.columns.layout import holds_variant
from penstock.pipeline.plan.chain import (
    GROUP_COLUMN,
    FaultPlace,
    GroupOutcome,
    OutcomeLeaf,
    ShapeGroup,
    Staged,
    input_column,
    outcomes_of,
)
from penstock.pipeline.plan.jobs import Plan, SparkJobs
from penstock.pipeline.plan.step import SIDES, Shape, TopicLookup, looked_up

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: More groups make a plan so wide that its analysis costs more than it saves.
MAX_GROUPS: Final = 8
_PLANNED: Final = "is_planned"
_MESSAGE: Final = "message_"
_GIVEN: Final = "given_"


@dataclass(frozen=True)
class PlanAhead:
    """A plan, as Python workers know it.

    Attributes:
        groups: Steps and shapes of its groups; the slot of each is its place, unless there is only one.
        reads: Columns of the record that it needs in addition to keys and values.
        lookups: What has to be found for each topic, by the names of the columns, which this process cannot know.
        ends: Where records may end; without the expressions.
        schema: The columns of the rows that go in.
    """

    groups: tuple[tuple[tuple[Staged, ...], Shape], ...]
    reads: frozenset[str]
    lookups: Mapping[str, TopicLookup]
    ends: tuple[OutcomeLeaf, ...]
    places: Mapping[int, FaultPlace]
    schema: pa.Schema

    def laid_out(self, pipeline: SinkPipeline, table: pa.Table) -> pa.Table:
        """Messages (columns as ``CONSUMED_SCHEMA``), and the plan's input as further columns."""
        found = pipeline.groups_ahead(table)
        rows = table.num_rows
        given = None if found is None else self._input(found, rows)
        columns: dict[str, Any] = {_MESSAGE + one.name: table.column(one.name) for one in CONSUMED_SCHEMA}
        columns |= {_PLANNED: pa.repeat(given is not None, rows), **(given or {})}
        return pa.table(
            [columns[one.name] if one.name in columns else pa.nulls(rows, one.type) for one in self.schema],
            schema=self.schema,
        )

    def _input(self, found: GroupsAhead, rows: int) -> dict[str, Any] | None:
        """The plan's input; None if it was not made for these groups."""
        places = {group: place for place, group in enumerate(self.groups)}
        slots = [places.get((one.steps, one.shape)) for one in found.groups]
        if None in slots or len(set(slots)) < len(slots):
            return None
        columns = _input_columns(found, [slot or 0 for slot in slots], len(self.groups), rows, self.reads)
        if found.failed():
            return None
        columns |= _looked_up(self.lookups, found)
        try:
            return {name: column.cast(self.schema.field(name).type) for name, column in columns.items()}
        except pa.ArrowInvalid:
            return None

    def received(self, rows: pa.Table) -> Iterator[tuple[pa.Table, list[GroupOutcome] | None]]:
        """Messages and their outcomes, from rows after the plan; no outcomes: the messages have passed it by."""
        flags = rows.column(_PLANNED).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), rows.num_rows]
        for start, end in itertools.pairwise(starts):
            if start == end:
                continue
            part = rows.slice(start, end - start)
            messages = pa.Table.from_arrays(
                [part.column(_MESSAGE + one.name).cast(one.type) for one in CONSUMED_SCHEMA], schema=CONSUMED_SCHEMA
            )
            yield messages, self._outcomes(part) if flags[start] else None

    def _outcomes(self, rows: pa.Table) -> list[GroupOutcome]:
        names = [name for name in rows.column_names if name.startswith(_GIVEN)]
        given = rows.select(names).rename_columns([name.removeprefix(_GIVEN) for name in names])
        output = rows.select([one for one in rows.column_names if not one.startswith((_GIVEN, _MESSAGE))])
        return outcomes_of(output, given, None, self.ends, self.places, apart=True)


def plan_ahead(pipeline: SinkPipeline, jobs: SparkJobs, samples: Sequence[pa.Table]) -> tuple[PlanAhead, Plan] | None:
    """The plan of the messages of a sample (columns as ``CONSUMED_SCHEMA``); None if they need none."""
    found: dict[tuple[tuple[Staged, ...], Shape], tuple[ShapeGroup, GroupsAhead, int]] = {}
    for table in samples:
        batch = pipeline.groups_ahead(table, whole=False) if table.num_rows else None
        for one in () if batch is None else batch.groups:
            assert batch is not None
            if len(found) < MAX_GROUPS:
                found.setdefault((one.steps, one.shape), (one, batch, table.num_rows))
    if not found:
        return None
    plan = jobs.plan_ahead([one for one, _, _ in found.values()])
    shapes = [one.shape for one, _, _ in found.values()] + [one.leaf.shape for one in plan.ends]
    if any(holds_variant(side.physical) for shape in shapes for side in (shape.key, shape.value)):
        # Python workers are not given a VARIANT as the worker is.
        return None
    lookups = {one.name: one for one in plan.lookups}
    columns: dict[str, pa.DataType] = {}
    for slot, (one, batch, rows) in enumerate(found.values()):
        only = GroupsAhead([one], batch.shared, batch.failed)
        made = _input_columns(only, [slot], len(found), rows, plan.reads)
        made |= _looked_up(lookups, batch)
        columns |= {name: column.type for name, column in made.items()}
    fields = [pa.field(_MESSAGE + one.name, one.type) for one in CONSUMED_SCHEMA]
    fields += [pa.field(_PLANNED, pa.bool_()), *(pa.field(name, kind) for name, kind in columns.items())]
    ahead = PlanAhead(
        tuple(found), plan.reads, lookups, tuple(map(_without_columns, plan.ends)), plan.places, pa.schema(fields)
    )
    return ahead, plan


def projected(rows: DataFrame, ahead: PlanAhead, plan: Plan) -> DataFrame:
    """The rows of ``laid_out`` after the plan; lazy, order as before. Columns: see ``PlanAhead.received``."""
    *layers, final = plan.projections()
    for layer in layers:
        rows = rows.select(*layer)
    unchanged = {input_column(name, end.suffix) for end in ahead.ends for name in SIDES if not end.changes(name)} & set(
        ahead.schema.names
    )
    kept: list[Column | str] = [F.col(one) for one in ahead.schema.names if one.startswith(_MESSAGE)]
    kept += [F.col(_PLANNED), *(F.col(name).alias(_GIVEN + name) for name in sorted(unchanged))]
    return rows.select(*kept, *final)


def _input_columns(
    found: GroupsAhead, slots: Sequence[int], count: int, rows: int, reads: frozenset[str]
) -> dict[str, Any]:
    """The columns of some groups, null in the rows of the others, and the number of the group of each row."""
    columns: dict[str, Any] = {name: found.shared[name] for name in found.shared.keys() & reads}
    numbers = np.zeros(rows, dtype=np.int32)
    for one, slot in zip(found.groups, slots, strict=True):
        made = dict(one.columns)
        if one.rows is not None:
            numbers[one.rows] = slot
            places = np.full(rows, -1, dtype=np.int64)
            places[one.rows] = np.arange(len(one.rows))
            order = pa.array(places, mask=places < 0)
            made = {name: column.take(order) for name, column in made.items()}
        else:
            numbers[:] = slot
        suffix = "" if count == 1 else f"_{slot}"
        columns |= {input_column(name, suffix): column for name, column in made.items()}
    if count > 1:
        columns[GROUP_COLUMN] = pa.array(numbers)
    return {name: for_spark(pa.table({name: column})).column(0) for name, column in columns.items()}


def _looked_up(lookups: Mapping[str, TopicLookup], found: GroupsAhead) -> dict[str, Any]:
    """The results for the topics of a batch, under the names that the plan has."""
    columns: dict[str, Any] = {}
    for name, one in lookups.items():
        made = looked_up([one], found.shared["topic"])
        columns |= {name + own.removeprefix(one.name): column for own, column in made.items()}
    return columns


def _without_columns(end: OutcomeLeaf) -> OutcomeLeaf:
    """An end without expressions, which do not leave the worker."""
    nothing: Any = None
    return replace(end, taken=None, leaf=replace(end.leaf, guard=None, record=nothing, error=None, dropped=None))
