"""A cluster whose Kafka encrypts and asks for a login: an exactly-once source, a sink, dead letters; sessions end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.brokers.embedded import SecuredBroker
from testkit.brokers.secured_login import SECURED_WORKER, SHORT_SESSIONS
from testkit.processes.worker_group import WorkerGroup

from penstock.kafka.consumer.sampler import read_values

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

LINES = [f'{{"number": {number}}}' if number % 10 else f"line {number}" for number in range(400)]
BAD = LINES[::10]
GOOD = len(LINES) - len(BAD)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path / "kafka", listeners={"SASL_SSL": SHORT_SESSIONS}) as made:
        yield made


def append(path: Path, lines: list[str], pause_s: float = 0.1) -> None:
    """Writes lines some at a time, as somebody who logs."""
    pause = threading.Event()
    for first in range(0, len(lines), 10):
        with path.open("a", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines[first : first + 10])
        pause.wait(pause_s)


def written(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_each_line_and_dead_letter_arrives_once_though_sessions_end_and_the_worker_of_its_source_is_killed(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    # Without a prefix for the worker itself, with one for the clients of its connectors.
    settings = {
        **SECURED_WORKER,
        "consumer.isolation.level": "read_committed",
        "exactly.once.source.support": "enabled",
    }
    source, sink, letters = (tmp_path / name for name in ("source.txt", "sink.txt", "letters.txt"))
    source.touch()
    with WorkerGroup(tmp_path / "workers", broker.bootstrap_of("SASL_SSL"), settings, size=2) as group:
        file = "org.apache.kafka.connect.file.FileStream"
        sinks = {"connector.class": f"{file}SinkConnector", "tasks.max": "1"}
        tolerant = {
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "letters",
            "errors.deadletterqueue.topic.replication.factor": "1",
        }
        group.create("source", {"connector.class": f"{file}SourceConnector", "file": str(source), "topic": "lines"})
        group.create("sink", {**sinks, **tolerant, "file": str(sink), "topics": "lines"})
        group.create("letters", {**sinks, "file": str(letters), "topics": "letters"})
        group.settled()
        append(source, LINES[:200])
        group.wait(lambda: len(written(sink)) == GOOD // 2, "the first lines are there", 120)

        killed = group.where()["source-0"]
        append(source, LINES[200:300])
        killed.kill()
        append(source, LINES[300:])
        group.wait(lambda: len(written(sink)) >= GOOD, "the other worker brings all lines", 120)
        group.wait(lambda: len(set(written(letters))) >= len(BAD), "and all dead letters", 60)
        group.stop()

        # A sink on the worker that was killed may have put records that it had not committed.
        assert {*written(sink)} == {f"{{number={number}}}" for number in range(400) if number % 10}
        assert {*written(letters)} == {*BAD}
        # The tests' own way in, without a login.
        read = read_values(broker.bootstrap_servers, "lines", len(LINES) + 1, 3)
        assert read == [line.encode() for line in LINES]
        assert "secret" not in "".join(worker.text() for worker in group.workers)
