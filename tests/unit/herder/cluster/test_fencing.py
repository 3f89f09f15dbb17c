"""Which producers are ended before the tasks of an exactly-once source begin."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from penstock.errors import (
    ConflictException,
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    TransactionalIdAuthorizationException,
)
from penstock.herder.cluster.leader import FencingRounds, offsets_id, plan_fencing, task_id
from penstock.model.cluster_config import (
    ClusterConfig,
    ConfigRecord,
    connector_entries,
    fencing_entries,
    fold,
    task_entries,
)

SETTINGS = {"name": "c", "connector.class": "S"}
CREATED = connector_entries("c", SETTINGS)


def tasks(count):
    return task_entries("c", [{"n": str(number)} for number in range(count)])


def fenced(count):
    return fencing_entries("c", count)


def folded(*parts):
    entries = [entry for part in parts for entry in part]
    return fold(ClusterConfig(), [ConfigRecord(n, key, value) for n, (key, value) in enumerate(entries)])[0]


@pytest.mark.parametrize(
    ("records", "ids"),
    [
        # Nobody can have written with a transactional id before.
        ([tasks(3)], ()),
        # The new one takes the id of the old one.
        ([tasks(1), fenced(1), tasks(1)], ()),
        ([tasks(1), fenced(1), tasks(3)], ("g-c-0",)),
        ([tasks(2), fenced(2), tasks(1)], ("g-c-0", "g-c-1")),
        ([tasks(2), fenced(2), tasks(2)], ("g-c-0", "g-c-1")),
        # Stopped, and its offsets are to be changed.
        ([tasks(2), fenced(2), tasks(0)], ("g-c-0", "g-c-1")),
        ([tasks(2), fenced(2), tasks(0), fenced(0), tasks(2)], ()),
    ],
)
def test_a_round_ends_all_producers_that_there_may_be(records, ids):
    assert plan_fencing(folded(CREATED, *records), "c", "g") == ids


@pytest.mark.parametrize("count", [0, 1, 3])
def test_there_is_no_round_while_the_last_one_counts(count):
    assert plan_fencing(folded(CREATED, tasks(count), fenced(count)), "c", "g") is None


def test_a_change_of_offsets_has_an_id_that_no_task_has():
    names = ["a", "a-0", "a-0-0", "a-", "a-x", "0", "-0"]
    of_tasks = {task_id("g", name, number) for name in names for number in range(3)}
    ids = [offsets_id("g", name) for name in names]
    assert ids[0] == "g-a"
    # Java's id of the first task is the one exception: only that task can be meant, and it is stopped.
    assert {one for one in ids if one in of_tasks} == {task_id("g", name, 0) for name in ("a-0", "a-0-0", "-0")}


# ---------------------------------------------------------------- rounds
class Plane:
    """As much of a control plane as a round needs."""

    worker = SimpleNamespace(resolve=dict)

    def __init__(self, snapshot):
        self.snapshot, self.storing, self.written, self.read = snapshot, asyncio.Lock(), [], lambda: None
        self.loop = SimpleNamespace(off_loop=self.off_loop)

    async def off_loop(self, name, call):
        await asyncio.sleep(0)
        return call()

    async def read_all(self):
        self.read()

    def connector(self, name, message):
        return self.snapshot.connectors[name]

    def stage(self, name, doing):
        return contextlib.nullcontext()

    async def write(self, entries):
        self.written.append(entries)


def rounds(plane, fence):
    return FencingRounds(plane, lambda: None, "g", fence)


NEEDED = folded(CREATED, tasks(2), fenced(2), tasks(3))


def test_who_asks_during_a_round_shares_it():
    plane, calls = Plane(NEEDED), []

    def fence(name, config, ids):
        calls.append((name, config, ids))
        return {}

    async def run():
        fencing = rounds(plane, fence)
        await asyncio.gather(*(fencing.run("c") for _ in range(3)))

    asyncio.run(run())
    assert calls == [("c", SETTINGS, ["g-c-0", "g-c-1", "g-c"])]
    assert plane.written == [fenced(3)]


def test_offsets_are_changed_with_an_id_that_the_round_before_has_fenced():
    plane, fenced_ids = Plane(NEEDED), []

    def fence(name, config, ids):
        fenced_ids.extend(ids)
        return {}

    assert asyncio.run(rounds(plane, fence).run_for_change("c")) == "g-c" == fenced_ids[-1]


def test_newer_task_configurations_end_a_round():
    plane = Plane(NEEDED)

    def fence(name, config, ids):
        plane.snapshot = folded(CREATED, tasks(2), fenced(2), tasks(3), tasks(3))
        return {}

    with pytest.raises(ConflictException, match="other configurations"):
        asyncio.run(rounds(plane, fence).run("c"))
    assert plane.written == []


@pytest.mark.parametrize(
    ("failures", "error", "match"),
    [
        ({"g-c-1": KafkaRetriableException("no answer")}, ConflictException, "not fenced yet; try again: no answer"),
        ({"g-c-1": KafkaException("denied")}, ConnectException, "1 producers of former tasks of connector c.*denied"),
        ({"g-c-0": TransactionalIdAuthorizationException("no right")}, ConnectException, "no right"),
    ],
)
def test_tasks_do_not_begin_where_a_producer_could_not_be_ended(failures, error, match):
    plane = Plane(NEEDED)
    with pytest.raises(error, match=match):
        asyncio.run(rounds(plane, lambda name, config, ids: failures).run("c"))
    assert plane.written == []


def test_no_right_to_the_id_of_offset_changes_is_no_reason_to_wait():
    plane = Plane(NEEDED)
    missing = {"g-c": TransactionalIdAuthorizationException("no right")}
    asyncio.run(rounds(plane, lambda name, config, ids: missing).run("c"))
    assert plane.written == [fenced(3)]


def test_a_config_topic_that_cannot_be_read_is_to_be_tried_again():
    plane = Plane(NEEDED)

    def unreadable():
        raise KafkaRetriableException("no broker")

    plane.read = unreadable
    with pytest.raises(ConflictException, match="not fenced yet: no broker"):
        asyncio.run(rounds(plane, lambda name, config, ids: {}).run("c"))
