"""Stateless transforms of users, and isolated tasks: errors, dead letters, and what is killed."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from testkit.processes.worker_process import WorkerProcess, children, wait_gone

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

LINES = 16_000
STATELESS = "a stateless class of your own, in Python workers of Spark"
NUMBERED, EVEN = "testkit.connectors.stateless_numbers:Numbered", "testkit.connectors.stateless_numbers:Even"
SAMPLE = r'^penstock_spark_records_total\{{connector="{}",road="([^"]*)",why="([^"]*)"\}} (\d+)$'
ISOLATED = {"task.isolation": "process", "errors.tolerance": "all"}


def transforms(**chain: dict[str, object]) -> dict[str, str]:
    """Settings of a chain of ``Numbered``, by alias."""
    found = {"transforms": ",".join(chain)}
    for alias, props in chain.items():
        found |= {f"transforms.{alias}.{name}": str(value) for name, value in props.items()}
        found[f"transforms.{alias}.type"] = NUMBERED
    return found


class Flow:
    """A file, a topic and another file, and what is left of numbers between them."""

    def __init__(self, worker: WorkerProcess, broker: EmbeddedBroker, directory: Path) -> None:
        self.worker, self.servers, self.directory = worker, broker.bootstrap_servers, directory
        run = uuid.uuid4().hex[:8]
        self.topic, self.letters = f"numbers-{run}", f"letters-{run}"
        self.source, self.sink = f"from-{run}", f"to-{run}"
        self.given, self.made, self.harm = directory / "given.txt", directory / "made.txt", directory / "harm"
        self.count = 0

    def more(self, lines: int = LINES) -> None:
        """Appends numbers, in one write, so that one poll has all of them."""
        numbers = range(self.count, self.count + lines)
        with self.given.open("a") as file:
            file.write("".join(f"{number:06d}\n" for number in numbers))
        self.count += lines

    def create(self, name: str, config: dict[str, str]) -> None:
        status, body = self.worker.ask("POST", "/connectors", {"name": name, "config": config})
        assert status == 201, str(body)

    def create_source(self, **more: str) -> None:
        chain = transforms(
            keyed={"keyed": True, "harm": self.harm},
            picky={"refuses": 3, "drops": 5, "predicate": "even", "negate": True},
            by_key={"side": "key", "refuses": 7},
        )
        chain |= {"predicates": "even", "predicates.even.type": EVEN}
        own = {"connector.class": "FileStreamSource", "file": str(self.given), "topic": self.topic}
        self.create(self.source, own | chain | ISOLATED | more)

    def create_sink(self) -> None:
        letters = "errors.deadletterqueue"
        chain = transforms(by_key={"side": "key", "refuses": 1, "drops": 2}, joined={"joined": True})
        own = {"connector.class": "FileStreamSink", "file": str(self.made), "topics": self.topic}
        own |= {f"{letters}.topic.name": self.letters, f"{letters}.topic.replication.factor": "1"}
        own |= {f"{letters}.context.headers.enable": "true", "consumer.override.fetch.min.bytes": "1000000"}
        self.create(self.sink, own | chain | ISOLATED)

    def sent(self) -> list[str]:
        """What the source leaves of the numbers."""
        found = [f"{number:06d}" for number in range(self.count)]
        return [one for one in found if one[-1] not in "357" and one[-2:] != "98"]

    def refused(self) -> list[str]:
        """What the source refuses of them."""
        found = [f"{number:06d}" for number in range(self.count)]
        return [one for one in found if one[-1] in "37" or one[-2:] == "98"]

    def in_topic(self, topic: str, count: int) -> list[Any]:
        """So many messages from the start of a topic, and no more than there are in the next second."""
        settings = {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
        consumer = ck.Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
        found: list[Any] = []
        try:
            while len(found) < count and (some := consumer.consume(count - len(found), 20)):
                found += some
            assert not consumer.consume(1, 1), "there is more"
        finally:
            consumer.close()
        return found

    def values(self) -> list[str]:
        return [one.value().decode() for one in self.in_topic(self.topic, len(self.sent()))]

    def roads(self, name: str) -> dict[tuple[str, str], int]:
        """How many records took which road, and why, as the metric says; `explain` says the same."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.worker.port}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        samples = re.findall(SAMPLE.format(name), text, re.MULTILINE)
        counted = {(road, why): int(count) for road, why, count in samples}
        explained: Any = self.worker.get(f"/connectors/{name}/explain")[1]
        assert {(one["road"], one["why"] or ""): one["records"] for one in explained["roads"]} == counted
        return counted

    def wait_committed(self) -> None:
        """Waits until the source's offset is the end of its file."""
        end = self.given.stat().st_size

        def committed() -> bool:
            body: Any = self.worker.get(f"/connectors/{self.source}/offsets")[1]
            return any(one["offset"] == {"position": end} for one in body.get("offsets", []))

        self.worker.wait(committed, "all is read, and its offset committed", 240)

    def isolated(self) -> int:
        """The process of the source's task, the only one that there is."""
        commands = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in children(self.worker.pid)}
        (pid,) = [one for one, command in commands.items() if b"isolation.child" in command]
        return pid

    def restart(self) -> None:
        assert self.worker.ask("POST", f"/connectors/{self.source}/tasks/0/restart")[0] == 204
        self.worker.wait_running(self.source)

    def delete(self) -> None:
        for name in (self.source, self.sink):
            self.worker.ask("DELETE", f"/connectors/{name}")


@pytest.fixture
def flow(shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path) -> Any:
    made = Flow(shared_worker, broker, tmp_path)
    yield made
    made.delete()


def test_records_of_isolated_tasks_pass_stateless_transforms_and_errors_are_tolerated(flow: Flow) -> None:
    flow.more()
    flow.create_source()
    flow.wait_committed()
    messages = flow.in_topic(flow.topic, len(flow.sent()))
    assert [(one.key().decode(), one.value().decode()) for one in messages] == [(f"k{one}", one) for one in flow.sent()]
    assert flow.roads(flow.source) == {("rows", STATELESS): LINES}
    assert flow.worker.states(flow.source) == ["RUNNING", "RUNNING"]
    assert flow.worker.metric("kafka_connect_task_error_total_records_skipped", flow.source) == len(flow.refused())

    flow.create_sink()
    letters = [one for one in flow.sent() if one[-1] == "1"]
    kept = [f"k{one}={one}" for one in flow.sent() if one[-1] not in "12"]
    flow.worker.wait(
        lambda: flow.made.exists() and flow.made.read_text().count("\n") >= len(kept), "what the sink keeps", 240
    )
    assert flow.made.read_text().splitlines() == kept
    dead = flow.in_topic(flow.letters, len(letters))
    assert [(one.key().decode(), one.value().decode()) for one in dead] == [(f"k{one}", one) for one in letters]
    told = {name: value.decode() for name, value in dead[0].headers()}
    about = "__connect.errors."
    assert told[f"{about}stage"] == "TRANSFORMATION"
    assert told[f"{about}class.name"] == NUMBERED.replace(":", ".")
    assert told[f"{about}exception.class.name"] == "org.apache.kafka.connect.errors.DataException"
    assert told[f"{about}exception.message"] == "no 1: 000001"
    roads = flow.roads(flow.sink)
    assert sum(roads.values()) == len(flow.sent())
    assert roads["rows", STATELESS] >= 5_000


def test_what_is_killed_of_an_isolated_task_or_its_transforms_fails_the_task_and_a_restart_goes_on(flow: Flow) -> None:
    flow.more()
    flow.create_source()
    flow.wait_committed()
    os.kill(flow.isolated(), signal.SIGKILL)
    flow.worker.wait(lambda: flow.worker.states(flow.source) == ["RUNNING", "FAILED"], "the task fails", 30)
    assert "signal 9" in flow.worker.trace(flow.source)
    flow.more()
    flow.restart()
    flow.wait_committed()

    flow.harm.write_text("exit")
    flow.more()
    flow.worker.wait(lambda: flow.worker.states(flow.source) == ["RUNNING", "FAILED"], "the task fails again", 60)
    assert "transforms.keyed, transforms.picky, transforms.by_key: a Python worker of Spark has ended" in (
        flow.worker.trace(flow.source)
    )
    flow.restart()
    flow.wait_committed()
    assert flow.values() == flow.sent(), "nothing lost, nothing twice: what failed had not been sent"
    assert flow.roads(flow.source) == {("rows", STATELESS): flow.count}


def test_a_loop_in_a_python_worker_ends_with_its_task(flow: Flow) -> None:
    flow.more()
    flow.create_source()
    flow.wait_committed()
    flow.harm.write_text("loop")
    flow.more()
    pid_file = flow.harm.with_suffix(".pid")
    flow.worker.wait(lambda: pid_file.exists() and bool(pid_file.read_text()), "a Python worker loops", 60)
    explained: Any = flow.worker.get(f"/connectors/{flow.source}/explain")[1]
    assert explained["tasks"][0]["waiting_for"]["reason"] == "spark"

    assert flow.worker.ask("DELETE", f"/connectors/{flow.source}")[0] == 204
    assert wait_gone([int(pid_file.read_text())], 30) == []
    flow.harm.unlink()

    flow.source += "-again"
    flow.create_source()
    flow.worker.wait(lambda: flow.worker.states(flow.source) == ["RUNNING", "RUNNING"], "it runs", 60)
    flow.wait_committed()
