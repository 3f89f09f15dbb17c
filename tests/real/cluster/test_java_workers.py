"""A group that Java's workers and ours share: taken over worker by worker while lines flow, and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from testkit.doubles.exactly_once import visible
from testkit.processes.file_flow import Feeder
from testkit.processes.java_worker import JavaWorker
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import KAFKA_VERSION, EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

#: What only Java's workers have here.
MIRROR = f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}"
HEARTBEATS = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
WAIT_S = 120.0


class SharedGroup:
    """A group of one of our workers, and of Java's, one after the other; each runs while a test wants it to."""

    def __init__(self, directory: Path, servers: str, opened: ExitStack) -> None:
        self._directory, self._opened, self._servers = directory, opened, servers
        self.group = WorkerGroup(directory, servers, {"exactly.once.source.support": "enabled"}, size=1)
        self.ours = self.group.workers[0]
        opened.callback(self.group.close)
        self._javas = 0

    def java(self) -> JavaWorker:
        """A new one, which serves."""
        self._javas += 1
        settings = {**self.ours.kept(), "bootstrap.servers": self._servers, "exactly.once.source.support": "enabled"}
        java = JavaWorker(self._directory / f"java-{self._javas}", settings, [MIRROR])
        return self._opened.enter_context(java)

    def wait(self, java: JavaWorker, holds: Any, what: str) -> None:
        """Waits for something; fails with the logs of both when it does not come."""
        try:
            java.wait(holds, what, WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- ours\n{self.ours.text()[-6000:]}") from None

    def join(self, java: JavaWorker) -> None:
        """Starts ours beside a worker of Java's."""
        self.ours.start()
        self.wait(java, lambda: self.ours.get("/health")[0] == 200, "ours is healthy")


@pytest.fixture
def shared(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[SharedGroup]:
    with ExitStack() as opened:
        yield SharedGroup(tmp_path, broker.bootstrap_servers, opened)


def asked(worker: Any, method: str, path: str, body: object = None) -> int:
    """The status of an answer; asks again while work moves, as clients do."""
    found: list[int] = []

    def answered() -> bool:
        found.append(worker.ask(method, path, body)[0])
        return found[-1] != 409

    worker.wait(answered, f"{method} {path} is answered", WAIT_S)
    return found[-1]


def placed(worker: Any, name: str) -> list[tuple[str, str]]:
    """State and worker of a connector, then of its tasks, as a worker says."""
    status, body = worker.ask("GET", f"/connectors/{name}/status")
    return [(one["state"], one["worker_id"]) for one in (body["connector"], *body["tasks"])] if status == 200 else []


def run(worker: Any, names: list[str], on: set[str]) -> bool:
    """Whether connectors and a task of each run, all of the tasks together on just these workers."""
    found = [placed(worker, name) for name in names]
    if not all(len(one) == 2 and {state for state, _ in one} == {"RUNNING"} for one in found):
        return False
    return {one[1][1] for one in found} == on and {where for one in found for _, where in one} <= on


def test_workers_of_java_and_ours_share_a_group_that_is_taken_over_and_given_back(
    shared: SharedGroup, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    lines, out, idle, topic = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "idle.txt", shared.group.name
    lines.touch()
    idle.write_text("one\ntwo\n")

    def source(file: Path, name: str) -> dict[str, str]:
        return {"connector.class": "FileStreamSource", "file": str(file), "topic": name, "tasks.max": "1"}

    def create(worker: Any, name: str, config: dict[str, str]) -> None:
        assert asked(worker, "PUT", f"/connectors/{name}/config", config) == 201

    def sunk() -> list[str]:
        # What is written at this moment may end within a line.
        return out.read_text().splitlines()[:-1] if out.exists() else []

    def wait_flow(java: JavaWorker) -> None:
        """Waits until lines come out that were not written yet when this began."""
        written = len(lines.read_text().splitlines())
        shared.wait(java, lambda: len(sunk()) > written, "lines flow")

    # given a cluster of Java with a source and a sink that move lines, and others that rest
    java, ours = shared.java(), shared.ours
    create(java, "in", source(lines, topic))
    sink = {"connector.class": "FileStreamSink", "topics": topic, "file": str(out), "tasks.max": "1"}
    create(java, "out", {**sink, "consumer.override.isolation.level": "read_committed"})
    create(java, "rests", source(idle, f"{topic}-rests"))
    create(java, "stopped", source(idle, f"{topic}-stopped"))
    clusters = {f"{end}.cluster.{what}": text for end in ("source", "target") for what, text in (("alias", end),)}
    servers = {f"{end}.cluster.bootstrap.servers": broker.bootstrap_servers for end in ("source", "target")}
    beats = {
        "connector.class": HEARTBEATS,
        "tasks.max": "1",
        **clusters,
        **servers,
        "heartbeats.topic.replication.factor": "1",
        **dict.fromkeys(("key.converter", "value.converter"), BYTES),
    }
    create(java, "beats", beats)
    names = ["in", "out", "rests", "stopped", "beats"]
    shared.wait(java, lambda: all(run(java, [name], {java.worker_id}) for name in names), "all runs")
    shared.wait(java, lambda: len(visible(broker.bootstrap_servers, f"{topic}-stopped")) == 2, "it has read both lines")
    assert java.ask("PUT", "/connectors/rests/pause")[0] == 202
    assert java.ask("PUT", "/connectors/stopped/stop")[0] == 204
    shared.wait(
        java, lambda: java.states("rests") == ["PAUSED"] * 2 and java.states("stopped") == ["STOPPED"], "they rest"
    )
    offsets = java.ask("GET", "/connectors/stopped/offsets")
    assert offsets[1]["offsets"][0]["offset"] == {"position": 8}
    configs = {name: java.ask("GET", f"/connectors/{name}/config")[1] for name in names}

    # Java's file source counts characters, and goes on at a byte: with others than those of ASCII it reads some again.
    with Feeder(lines, lines_at_once=10, line=b"line %08d\n"):
        wait_flow(java)

        # when ours follows Java
        shared.join(java)
        both = {java.worker_id, ours.worker_id}
        create(ours, "first", source(idle, f"{topic}-first"))
        create(ours, "second", source(idle, f"{topic}-second"))
        moving = ["in", "out", "first", "second"]
        shared.wait(java, lambda: run(ours, moving, both) and run(java, moving, both), "both have tasks")
        # then Java's leader ends old producers for tasks of ours, and takes what ours hands on
        assert not ours.cluster()["is_leader"]
        assert asked(ours, "POST", "/connectors/in/restart?includeTasks=true") == 202
        assert asked(ours, "PUT", "/connectors/second/config", source(idle, f"{topic}-other")) == 200
        shared.wait(java, lambda: run(ours, moving, both) and run(java, moving, both), "both still have tasks")
        shared.wait(
            java, lambda: len(visible(broker.bootstrap_servers, f"{topic}-first")) == 2, "ours, or Java's, reads"
        )
        wait_flow(java)

        # when Java leaves
        java.stop()
        shared.group.wait(lambda: run(ours, moving, {ours.worker_id}), "taken over", WAIT_S)
        # then all goes on
        assert ours.cluster()["is_leader"]
        found = {name: ours.get(f"/connectors/{name}/config")[1] for name in names}
        assert found == configs
        assert ours.states("rests") == ["PAUSED"] * 2
        assert ours.states("stopped") == ["STOPPED"]
        assert ours.get("/connectors/stopped/offsets") == offsets
        shared.group.wait(lambda: run(ours, ["beats"], {ours.worker_id}), "beats goes on", WAIT_S)

        # when Java follows ours
        java = shared.java()
        both = {java.worker_id, ours.worker_id}
        shared.wait(java, lambda: run(ours, moving, both) and run(java, moving, both), "both have tasks again")
        assert ours.cluster()["is_leader"]
        wait_flow(java)
        # then our leader ends old producers for tasks of Java, and takes what Java hands on
        create(java, "third", source(idle, f"{topic}-third"))
        create(java, "fourth", source(idle, f"{topic}-fourth"))
        moving += ["third", "fourth"]
        assert asked(java, "POST", "/connectors/in/restart?includeTasks=true") == 202
        shared.wait(java, lambda: run(ours, moving, both) and run(java, moving, both), "all run on both")
        for name in ("third", "fourth"):
            shared.wait(java, lambda: len(visible(broker.bootstrap_servers, f"{topic}-{name}")) == 2, f"{name} reads")  # noqa: B023
        wait_flow(java)

        # when ours leaves
        assert ours.end() == 0, ours.text()[-4000:]
        shared.wait(java, lambda: run(java, [*moving, "beats"], {java.worker_id}), "given back")
        # then Java has all that there was
        assert {name: java.ask("GET", f"/connectors/{name}/config")[1] for name in names} == configs
        assert java.states("rests") == ["PAUSED"] * 2
        assert java.ask("GET", "/connectors/stopped/offsets") == offsets
        wait_flow(java)

    # and each line was counted once, in order
    wanted = lines.read_text().splitlines()
    shared.wait(java, lambda: len(out.read_text().splitlines()) >= len(wanted), "all lines are out")
    assert visible(broker.bootstrap_servers, topic) == wanted
    assert out.read_text().splitlines() == wanted
    assert visible(broker.bootstrap_servers, f"{topic}-rests") == ["one", "two"]
