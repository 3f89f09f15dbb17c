"""A source task that delivers exactly once is killed at every point of a transaction, and frozen beside its successor.

By default each boundary is tried with one kind of task, which is killed at two of the five points. With
PENSTOCK_KILLS=20 it is every kind with every boundary, a quarter as many kills at each point, and as many at random
moments (some twenty minutes).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from testkit.brokers.embedded import SecuredBroker
from testkit.brokers.secured_login import LISTENER, SECURED_WORKER
from testkit.doubles.exactly_once import WAIT_S, SourceProcess, visible, worker_settings
from testkit.processes.file_flow import Feeder
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker
from penstock.worker.source.exactly_once import (
    COMMIT_ANSWERED,
    COMMIT_SENT,
    OFFSETS_SENT,
    RECORDS_SENT,
    TRANSACTION_BEGUN,
)

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("PENSTOCK_KILLS", "0"))
BOUNDARIES = ("poll", "interval", "connector")
KINDS = ("LinesTask", "LineFramesTask")
POINTS = (TRANSACTION_BEGUN, RECORDS_SENT, OFFSETS_SENT, COMMIT_SENT, COMMIT_ANSWERED)
SECONDS_TO_LIVE = 3.0
PAIRS = (
    [(kind, boundary) for kind in KINDS for boundary in BOUNDARIES]
    if KILLS
    else [("LinesTask", "poll"), ("LineFramesTask", "interval"), ("LinesTask", "connector")]
)


class Lines:
    """A file whose lines processes bring to a topic, one process after another, or beside another."""

    def __init__(
        self, broker: EmbeddedBroker, directory: Path, boundary: str, kind: str, worker: Mapping[str, str] | None = None
    ) -> None:
        self.servers = broker.bootstrap_servers
        self.path = directory / "in.txt"
        self.path.touch()
        self.topic = f"lines-{uuid.uuid4().hex[:8]}"
        self.worker = {**worker_settings(self.servers), **(worker or {})}
        self.config = {
            "name": self.topic,
            "topic": self.topic,
            "connector.class": "FileStreamSource",
            "file": str(self.path),
            "batch.size": "30",
            "transaction.boundary": boundary,
            "transaction.boundary.interval.ms": "100",
        }
        self.kind = f"testkit.doubles.exactly_once:{kind}"
        self.made: list[SourceProcess] = []

    def process(self, directory: Path) -> SourceProcess:
        directory.mkdir()
        self.made.append(SourceProcess(directory, self.worker, self.config, self.kind))
        return self.made[-1]

    def seen(self) -> list[str]:
        return visible(self.servers, self.topic)

    def wait_more(self, than: int) -> int:
        """Waits until a reader sees more lines; how many."""
        await_true(lambda: len(self.seen()) > than, self.text, WAIT_S)
        return len(self.seen())

    def wait_all(self) -> None:
        """Waits until a reader sees each line once, in order."""
        lines = self.path.read_text().splitlines()
        await_true(lambda: len(self.seen()) >= len(lines), self.text, 2 * WAIT_S)
        assert self.seen() == lines

    def text(self) -> str:
        return "\n".join(one.text()[-3000:] for one in self.made)


def points_of(kind: str, boundary: str) -> Iterator[str]:
    """Where a task is killed, one point after another."""
    if KILLS:
        yield from POINTS * max(1, KILLS // 4)
        return
    first = 2 * PAIRS.index((kind, boundary))
    yield from (POINTS[number % len(POINTS)] for number in (first, first + 1))


@pytest.fixture
def made() -> Iterator[list[Lines]]:
    lines: list[Lines] = []
    yield lines
    for one in lines:
        for process in one.made:
            process.close()


@pytest.mark.parametrize(("kind", "boundary"), PAIRS)
def test_a_task_that_is_killed_at_any_point_brings_each_line_once_in_order(
    broker: EmbeddedBroker, tmp_path: Path, made: list[Lines], boundary: str, kind: str
) -> None:
    lines = Lines(broker, tmp_path, boundary, kind)
    made.append(lines)
    process, chance = lines.process(tmp_path / "task"), random.Random()
    with Feeder(lines.path, lines_at_once=10):
        for point in points_of(kind, boundary):
            process.end_at(point)
            process.start()
            process.wait_killed()
        for _ in range(KILLS):
            process.start()
            threading.Event().wait(chance.uniform(0, SECONDS_TO_LIVE))
            process.signal(signal.SIGKILL)
            process.wait_killed()
        process.start()
        lines.wait_more(len(lines.seen()))
    lines.wait_all()
    process.signal(signal.SIGTERM)
    assert process.running is not None
    assert process.running.wait(WAIT_S) == 0, process.text()[-3000:]


@pytest.mark.parametrize("boundary", BOUNDARIES if KILLS else ["poll"])
def test_nothing_counts_that_a_frozen_task_writes_when_it_wakes_beside_its_successor(
    broker: EmbeddedBroker, tmp_path: Path, made: list[Lines], boundary: str
) -> None:
    lines = Lines(broker, tmp_path, boundary, "LinesTask")
    made.append(lines)
    frozen, successor = lines.process(tmp_path / "frozen"), lines.process(tmp_path / "successor")
    with Feeder(lines.path, lines_at_once=10):
        frozen.start()
        count = lines.wait_more(0)
        frozen.signal(signal.SIGSTOP)
        successor.start()
        count = lines.wait_more(count)
        # It must not take its id back: else two would fence each other for ever.
        frozen.disown()
        frozen.signal(signal.SIGCONT)
        await_true(lambda: "is started again where its committed offsets end" in frozen.text(), lines.text, WAIT_S)
        lines.wait_more(count)
    lines.wait_all()
    assert "is started again" not in successor.text(), "the owner was never fenced"


def test_a_task_that_is_killed_brings_each_line_once_over_encrypted_connections(
    tmp_path: Path, made: list[Lines]
) -> None:
    with SecuredBroker(tmp_path / "kafka", listeners={"SASL_SSL": LISTENER}) as broker:
        worker = {**SECURED_WORKER, "bootstrap.servers": broker.bootstrap_of("SASL_SSL")}
        lines = Lines(broker, tmp_path, "poll", "LinesTask", worker)
        made.append(lines)
        process = lines.process(tmp_path / "task")
        with Feeder(lines.path, lines_at_once=10):
            for point in POINTS * max(1, KILLS // 4) if KILLS else (COMMIT_SENT,):
                process.end_at(point)
                process.start()
                process.wait_killed()
            process.start()
            lines.wait_more(len(lines.seen()))
        lines.wait_all()
        assert "secret" not in process.text()
        process.close()
