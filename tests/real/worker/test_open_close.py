"""Three sink tasks on six partitions, in a worker: which partitions are opened and closed, and when."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from testkit.connectors.journal_sink import Entry, read_journal
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker
from penstock.kafka.admin import NewTopic, TopicAdmin

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

TASKS = 3


class Group:
    """A connector of three tasks that reads two topics of three partitions each."""

    def __init__(self, worker: WorkerProcess, broker: EmbeddedBroker, directory: Path, strategy: str) -> None:
        self.worker = worker
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self.journal = directory / "journal"
        self.topics = [f"{self.name}-a", f"{self.name}-b"]
        self.partitions = {f"{topic}-{number}" for topic in self.topics for number in range(3)}
        self._servers = broker.bootstrap_servers
        admin = TopicAdmin({"bootstrap.servers": self._servers}, name="the test")
        try:
            admin.create_topics([NewTopic(topic, 3, 1) for topic in self.topics])
        finally:
            admin.close()
        config = {
            "connector.class": "testkit.connectors.journal_sink:JournalSink",
            "tasks.max": str(TASKS),
            "topics": ",".join(self.topics),
            "journal": str(self.journal),
            "consumer.override.partition.assignment.strategy": strategy,
            "consumer.override.heartbeat.interval.ms": "300",
        }
        status, body = worker.ask("POST", "/connectors", {"name": self.name, "config": config})
        assert status == 201, body

    def write(self, text: str) -> None:
        """One record to each partition."""
        producer = ck.Producer({"bootstrap.servers": self._servers})
        for topic in self.topics:
            for number in range(3):
                producer.produce(topic, text.encode(), partition=number)
        assert producer.flush(30) == 0

    def calls(self) -> list[Entry]:
        """What was done to the tasks so far."""
        return read_journal(self.journal)

    def owned(self) -> dict[int, set[str]]:
        """What each task has open now, after every call was checked."""
        return replay(self.calls())

    def wait_balanced(self) -> None:
        """Waits until each task has two partitions."""

        def balanced() -> bool:
            owned = self.owned()
            return [len(owned.get(task, ())) for task in range(TASKS)] == [2, 2, 2]

        self.worker.wait(balanced, "two partitions a task", timeout_s=90)
        assert set().union(*self.owned().values()) == self.partitions

    def wait_values(self, text: str, count: int) -> None:
        """Waits until that many records of this text were put."""

        def seen() -> int:
            return sum(entry.values.count(text) for entry in self.calls())

        self.worker.wait(lambda: seen() >= count, f"{count} records {text}", timeout_s=90)
        assert seen() == count

    def delete(self) -> None:
        """Ends the connector."""
        assert self.worker.ask("DELETE", f"/connectors/{self.name}")[0] == 204


def replay(entries: list[Entry]) -> dict[int, set[str]]:
    """Goes through the calls and checks each one against those before it; what each task has open at the end."""
    owned: dict[int, set[str]] = {}
    closing: dict[int, set[str]] = {}
    for entry in entries:
        mine, partitions = owned.setdefault(entry.task, set()), set(entry.partitions)
        match entry.call:
            case "start":
                assert not mine, f"{entry} although the task before it has not closed {mine}"
            case "open":
                assert partitions, entry
                assert not partitions & mine, f"{entry} opens what is open"
                others = set().union(*(theirs for task, theirs in owned.items() if task != entry.task))
                assert not partitions & others, f"{entry} opens what another task has not closed"
                mine |= partitions
                assert set(entry.assignment) == mine, entry
            case "close":
                assert partitions, entry
                assert partitions <= mine, f"{entry} closes what is not open"
                assert closing.pop(entry.task, None) == partitions, f"{entry} without its last pre_commit"
                mine -= partitions
            case "pre_commit":
                assert partitions <= mine, entry
                if entry.closing:
                    closing[entry.task] = partitions
            case "put":
                assert mine, entry
            case "stop":
                assert not mine, f"{entry} before {mine} were closed"
    return owned


def moves(entries: list[Entry], call: str) -> list[tuple[int, frozenset[str]]]:
    """The calls of one kind: task and partitions."""
    return [(entry.task, frozenset(entry.partitions)) for entry in entries if entry.call == call]


@pytest.fixture(params=["RangeAssignor", "CooperativeStickyAssignor"])
def group(
    request: pytest.FixtureRequest, shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> Iterator[Group]:
    """A running connector with one kind of assignment."""
    made = Group(shared_worker, broker, tmp_path, f"org.apache.kafka.clients.consumer.{request.param}")
    yield made
    shared_worker.ask("DELETE", f"/connectors/{made.name}")


def test_tasks_open_and_close_exactly_what_they_own_also_when_one_restarts_and_when_all_stop(
    group: Group, request: pytest.FixtureRequest
) -> None:
    eager = "Range" in request.node.callspec.params["group"]
    group.write("first")
    group.wait_balanced()
    group.wait_values("first", 6)
    before = group.calls()
    if eager:
        for task, closed in moves(before, "close"):
            assert any(opened == (task, closed) for opened in moves(before, "open")), "eager: all of an assignment"

    # One task leaves and comes back: its partitions go to others and return.
    owned = group.owned()
    assert group.worker.ask("POST", f"/connectors/{group.name}/tasks/1/restart")[0] == 204
    group.worker.wait(
        lambda: [entry.task for entry in group.calls()[len(before) :] if entry.call == "start"] == [1], "task 1 starts"
    )
    group.wait_balanced()
    group.write("second")
    group.wait_values("second", 6)
    after = group.calls()[len(before) :]
    assert moves(after, "close")[0] == (1, frozenset(owned[1])), "the task that leaves closes what it owns"
    if not eager:
        for task in (0, 2):
            kept = owned[task] & group.owned()[task]
            moved = set().union(*(parts for who, parts in moves(after, "close") if who == task))
            assert not moved & kept, "cooperative: what stays is not closed"

    before_end, owned = len(group.calls()), group.owned()
    group.delete()
    end = group.calls()[before_end:]
    assert replay(group.calls()) == {task: set() for task in range(TASKS)}
    assert sorted(moves(end, "close")) == sorted((task, frozenset(parts)) for task, parts in owned.items())
    assert sorted(moves(end, "stop")) == [(task, frozenset()) for task in range(TASKS)]
    assert not moves(end, "open"), "tasks that stop together get nothing more"
