"""Plans in front of what executors write, without Spark: which messages are looked at, and which are laid out."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.worker.bulk.test_range_work import PLACE, InMemory, Rows, Topic, reading, text

from penstock.api.bulk import TopicRange
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import StringConverter
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, InstanceRecipe
from penstock.pipeline.batch.sink import ahead as module
from penstock.pipeline.batch.sink.ahead import PlanAhead
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan.chain import Leaf, OutcomeLeaf
from penstock.telemetry import no_probe
from penstock.transforms.extraction import HoistFieldValue
from penstock.worker.bulk import planning as range_plan
from penstock.worker.bulk.planning import samples_of, written_rows
from penstock.worker.bulk.range_work import RangeFetch, RangeWork, messages_of

HOIST = InstanceRecipe(HoistFieldValue, {"field": "inner"})
#: JSON without a schema is columns from 2,000 messages that look alike on.
COUNT = 2_100
WHOLE = (TopicRange(*PLACE, 0, 10),)


class Session:
    """A session that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def range(self, *numbers: int) -> Session:
        self.asked.append(numbers)
        return self

    def mapInArrow(self, work: object, schema: str) -> Session:
        self.asked.append(schema)
        return self


def plan_of(pipeline: SinkPipeline, table: pa.Table, reads: frozenset[str] = frozenset()) -> PlanAhead:
    """What goes to Python workers of a plan that changes nothing, for the groups of a table."""
    found = pipeline.groups_ahead(table)
    assert found is not None
    count = len(found.groups)
    columns = module._input_columns(found, list(range(count)), count, table.num_rows, reads)
    nothing: Any = None
    ends = tuple(
        OutcomeLeaf(None, Leaf(None, one.shape, nothing, frozenset(), None, None), "" if count == 1 else f"_{slot}")
        for slot, one in enumerate(found.groups)
    )
    fields = [pa.field(f"message_{one.name}", one.type) for one in CONSUMED_SCHEMA]
    fields += [pa.field("is_planned", pa.bool_()), *(pa.field(name, one.type) for name, one in columns.items())]
    groups = tuple((one.steps, one.shape) for one in found.groups)
    return PlanAhead(groups, reads, {}, ends, {}, pa.schema(fields))


def messages(given: InMemory) -> pa.Table:
    return pa.concat_tables(messages_of(WHOLE[0], given))


def test_messages_of_the_groups_are_laid_out_and_others_pass_by() -> None:
    given = reading(Topic(text(range(10))), StringConverter, HOIST)
    pipeline, table = given.pipeline(), messages(given)
    plan = pickle.loads(pickle.dumps(plan_of(pipeline, table, frozenset({"offset"}))))
    made = plan.laid_out(pipeline, table)
    assert made.column("is_planned").to_pylist() == [True] * 10
    assert [one.decode() if isinstance(one, bytes) else one for one in made.column("value").to_pylist()] == [
        str(one) for one in range(10)
    ]
    assert made.column("offset").to_pylist() == list(range(10))
    # No text any more: the group is another one.
    values = [b"\xff", *table.column("value").to_pylist()[1:]]
    other = plan.laid_out(given.pipeline(), table.set_column(6, "value", pa.array(values, pa.binary())))
    assert other.schema == plan.schema
    assert other.column("is_planned").to_pylist() == [False] * 10
    assert other.column("value").null_count == 10
    assert other.column("message_value").to_pylist() == values


def test_a_batch_with_a_message_that_is_none_passes_by() -> None:
    good = {one: json.dumps({"id": one}).encode() for one in range(COUNT)}
    pipeline = reading(Topic({}), JsonConverter, HOIST).pipeline()
    whole = (TopicRange(*PLACE, 0, COUNT),)
    table = pa.concat_tables(messages_of(whole[0], reading(Topic(good, COUNT), JsonConverter)))
    plan = plan_of(pipeline, table)
    given = reading(Topic({**good, 7: b"{"}, COUNT), JsonConverter, HOIST)
    sample = given.pipeline().groups_ahead(pa.concat_tables(messages_of(whole[0], given)), whole=False)
    assert sample is not None, "a plan is made of the others"
    assert [one.steps for one in sample.groups] == [steps for steps, _ in plan.groups]
    made = pa.Table.from_batches(list(RangeFetch(whole, given, plan).fetched(0)))
    assert set(made.column("is_planned").to_pylist()) == {False}
    assert made.num_rows == COUNT


@pytest.mark.parametrize("cuts", [[10], [1, 9], [3, 3, 4]])
def test_messages_come_back_with_their_outcomes_however_spark_has_cut_them(cuts: list[int]) -> None:
    given = reading(Topic(text(range(10))), StringConverter)
    hoisting = reading(Topic(text(range(10))), StringConverter, HOIST)
    table = messages(given)
    plan = plan_of(hoisting.pipeline(), table)
    rows = plan.laid_out(hoisting.pipeline(), table)
    # As a plan that changes nothing gives them back.
    output = rows.append_column("given_value", rows.column("value")).append_column("value_0", pa.nulls(10, pa.int32()))
    flags = pa.array([number not in (4, 5) for number in range(10)])
    output = output.set_column(output.schema.get_field_index("is_planned"), "is_planned", flags).drop_columns(["value"])
    found, at = [], 0
    for size in cuts:
        found += list(plan.received(output.slice(at, size)))
        at += size
    assert [one for part, _ in found for one in part.column("offset").to_pylist()] == list(range(10))
    for part, outcomes in found:
        assert part.schema == CONSUMED_SCHEMA
        assert (outcomes is None) == (part.column("offset")[0].as_py() in (4, 5))
    # What has passed the plan goes record by record, to the same effect.
    work = RangeWork(Rows(), WHOLE, hoisting, no_probe)
    passed = [(part, None) for part, _ in found]
    assert work.write(0, received=iter(passed)).file == [(one, {"inner": str(one)}) for one in range(10)]


def test_a_range_is_read_as_far_as_it_goes_and_each_topic_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = reading(Topic(text(range(10))), StringConverter)
    ranges = (TopicRange("a", 0, 0, 5), TopicRange("a", 1, 0, 5), TopicRange("b", 0, 2, 3))
    assert [one.num_rows for one in samples_of(ranges, given)] == [5, 1]
    assert given.topic.closed == 2
    monkeypatch.setattr(range_plan, "_PATIENCE_S", -1.0)
    assert samples_of(ranges, replace(given, topic=Topic({}, silent=True))) == []


def test_few_messages_and_those_that_need_no_plan_are_fetched_and_written_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = reading(Topic(text(range(10))), StringConverter, HOIST)
    work, session = RangeWork(Rows(), WHOLE, given, no_probe), Session()
    jobs: Any = None
    written_rows(session, work, b"", jobs, "it")  # type: ignore[arg-type]
    assert session.asked == [(0, 1, 1, 1), "answer binary"]
    assert given.topic.closed == 0, "nothing was looked at"
    monkeypatch.setattr(range_plan, "MIN_PLANNED", 1)
    plain = replace(work, reading=reading(Topic(text(range(10))), StringConverter))
    written_rows(session, plain, b"", jobs, "it")  # type: ignore[arg-type]
    assert session.asked[2:] == [(0, 1, 1, 1), "answer binary"]
