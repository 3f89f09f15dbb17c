"""Sinks of a group: their tasks move, are killed and frozen, and what they have written is whole."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testkit.connectors.journal_sink import JournalSink, read_journal
from testkit.processes.worker_group import WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "exactly_once_sink.py"
PARTITIONS = 2


@contextmanager
def numbers(servers: str, topic: str) -> Iterator[list[int]]:
    """Sends numbers to each partition of a topic while the context lasts; how many went to each."""
    sent, ended = [0] * PARTITIONS, threading.Event()

    def send() -> None:
        producer = ck.Producer({"bootstrap.servers": servers, "linger.ms": 5})
        # Each time is a batch for Spark in each task.
        while not ended.wait(0.1):
            for partition in range(PARTITIONS):
                producer.produce(topic, str(sent[partition]).encode(), partition=partition)
                sent[partition] += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    thread = threading.Thread(target=send, name="numbers")
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join(70)


def make_topic(servers: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def test_a_sink_that_keeps_its_offsets_writes_each_record_once_though_workers_are_killed_and_frozen(
    group: WorkerGroup, tmp_path: Path
) -> None:
    database, topic = tmp_path / "lines.db", "once"
    for worker in group.workers:
        shutil.copy(EXAMPLE, worker.directory)
    make_topic(group.bootstrap_servers, topic)

    def rows() -> list[tuple[int, int, str]]:
        with closing(sqlite3.connect(database, timeout=30)) as opened:
            return opened.execute('SELECT partition, "offset", value FROM lines ORDER BY 1, 2').fetchall()

    config = {
        "connector.class": "exactly_once_sink:ExactlyOnceSink",
        "topics": topic,
        "database": str(database),
        "tasks.max": str(PARTITIONS),
        "consumer.override.session.timeout.ms": "6000",
        "consumer.override.heartbeat.interval.ms": "1000",
    }
    with numbers(group.bootstrap_servers, topic) as sent:
        group.create("once", config)
        group.settled()

        def wait_more() -> None:
            """Waits until each partition has moved on."""
            before = list(sent)
            group.wait(
                lambda: all(
                    max((row[1] for row in rows() if row[0] == partition), default=-1) >= before[partition]
                    for partition in range(PARTITIONS)
                ),
                "both partitions move",
                120,
            )

        wait_more()
        group.where()["once-0"].kill()
        group.settled()
        wait_more()
        frozen = group.where()["once-1"]
        frozen.freeze()
        # Where it stopped within a transaction, its successor waits for the lock of the database until it wakes.
        group.settled()
        # It wakes in the middle of what it did, and knows nothing of its successor.
        frozen.thaw()
        group.start()
        group.settled()
        wait_more()
    wanted = [(at, number, str(number)) for at, count in enumerate(sent) for number in range(count)]
    group.wait(lambda: len(rows()) >= len(wanted), "every record is there", 120)
    assert rows() == wanted


def test_work_of_a_sink_that_moves_is_closed_and_its_task_knows_that(group: WorkerGroup, tmp_path: Path) -> None:
    journal, topic = tmp_path / "journal", "closes"
    make_topic(group.bootstrap_servers, topic)
    made = f"{JournalSink.__module__}:{JournalSink.__name__}"
    config = {"connector.class": made, "topics": topic, "journal": str(journal), "tasks.max": str(PARTITIONS)}
    with numbers(group.bootstrap_servers, topic) as sent:
        group.create("closes", config)
        group.settled()
        # Each task has a partition when it was given records of one.
        group.wait(lambda: {one.task for one in read_journal(journal)[-20:] if one.values} == {0, 1}, "both read", 60)
        mark = len(read_journal(journal))
        leaving = group.where()["closes-0"]
        assert leaving.end() == 0, leaving.text()[-4000:]
        calls = [one for one in read_journal(journal)[mark:] if one.task == 0]
        ended = [one.call for one in calls].index("stop")
        (held,) = {one.partitions for one in calls[:ended] if one.call == "close"}
        last = [one for one in calls[:ended] if one.call == "pre_commit"][-1]
        assert (last.closing, last.partitions) == (True, held)
        group.settled()
        group.start()
        group.settled()
    # After clean stops nothing comes twice.
    total = sum(sent)
    group.wait(lambda: len(_values(journal)) >= total, "every record came", 60)
    assert sorted(map(int, _values(journal))) == sorted(number for count in sent for number in range(count))


def _values(journal: Path) -> list[str]:
    return [value for entry in read_journal(journal) for value in entry.values]
