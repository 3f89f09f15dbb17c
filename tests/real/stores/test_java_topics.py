"""Java Kafka Connect goes on from internal topics that we have written, and we read what it writes there."""

import re
from pathlib import Path

import pytest
from testkit.brokers.log_lab import LogLab
from testkit.processes.java_worker import JavaWorker

from penstock.broker import EmbeddedBroker
from penstock.errors import ProducerFencedException
from penstock.kafka.consumer.sampler import read_values
from penstock.kafka.topic_log.internal_topics import Kind
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus
from penstock.model.cluster_config import (
    connector_entries,
    deletion_entries,
    fencing_entries,
    target_entries,
    task_entries,
)
from penstock.stores.config import ConfigTopicStore
from penstock.stores.offsets import OffsetReader, OffsetTopicStore, OffsetWriter
from penstock.stores.status import StatusTopicStore

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]

TASK_CLASS = {"task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}
#: What Java says of a record that it cannot use.
COMPLAINT = re.compile(r"^.*(?:wrong format|Ignoring|Discarding|Failed to|Invalid|ERROR).*$", re.M)


def source(name: str, file: Path, topic: str) -> dict[str, str]:
    return {"name": name, "connector.class": "FileStreamSource", "file": str(file), "topic": topic, "tasks.max": "1"}


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_java_goes_on_from_what_we_wrote_and_we_read_what_it_writes(
    broker: EmbeddedBroker, tmp_path: Path, support: str
) -> None:
    # given what our stores have written, with and without transactions
    transactional = support == "enabled"
    file = tmp_path / "lines é\U0001f600.txt"
    file.write_text("old one\nold two\nnew\n", encoding="utf-8")
    idle = tmp_path / "idle.txt"
    idle.touch()
    with LogLab(broker.bootstrap_servers, exactly_once_source_support=support) as lab:
        topic = f"{lab.group}-lines"
        configs = ConfigTopicStore(lab.log(Kind.CONFIG, transactional=transactional), transactional=transactional)
        offset_log = lab.log(Kind.OFFSET, transactional=transactional)
        offsets, statuses = OffsetTopicStore(offset_log, offset_log.topic), StatusTopicStore(lab.log(Kind.STATUS))
        configs.start(lambda config, changes: None)
        offsets.start()
        statuses.start()
        configs.claim()
        ours, gone = source("ours", file, topic), source("gone", idle, topic)
        configs.write(connector_entries("ours", ours), leading=True)
        configs.write(task_entries("ours", [{**ours, **TASK_CLASS}]), leading=True)
        configs.write(fencing_entries("ours", 1), leading=True)
        configs.write(connector_entries("rests", source("rests", idle, topic), TargetState.PAUSED), leading=True)
        configs.write(connector_entries("gone", gone), leading=True)
        configs.write(task_entries("gone", [{**gone, **TASK_CLASS}]), leading=True)
        configs.write(deletion_entries("gone", configs.snapshot), leading=True)
        writer = OffsetWriter(offsets, "ours")
        writer.put({"filename": str(file)}, {"position": 16})
        writer.flush()
        statuses.put(ConnectorStatus("ours", State.RUNNING, "our.worker:8083", None, "1", 1))
        statuses.put(TaskStatus(ConnectorTaskId("ours", 0), State.FAILED, "our.worker:8083", "KeyError: 'x'", None, 1))
        statuses.note_topics("ours", ["noted-by-us"], 0)

        # when a Java worker of the group takes over
        with JavaWorker(tmp_path / "java", lab.worker) as java:
            java.wait(lambda: java.states("ours") == ["RUNNING", "RUNNING"], "ours runs")
            java.wait(lambda: java.states("rests") == ["PAUSED"], "rests is paused")

            # then it has our connectors, and reads on from our offset
            assert sorted(java.ask("GET", "/connectors")[1]) == ["ours", "rests"]
            assert java.ask("GET", "/connectors/ours")[1]["config"] == ours
            assert read_values(broker.bootstrap_servers, topic, 1, 60) == [b"new"]
            assert "noted-by-us" in java.ask("GET", "/connectors/ours/topics")[1]["ours"]["topics"]
            reader = OffsetReader(offsets, "ours")
            java.wait(lambda: reader.offset({"filename": str(file)}) == {"position": 20}, "its offset")
            assert len(offsets.entries()) == 1

            # and what it says is what we read
            java.wait(lambda: _running(statuses, "ours", java.worker_id), "its states")
            assert statuses.connector("ours").version == "4.3.0"  # type: ignore[union-attr]
            assert topic in statuses.topics("ours")
            assert configs.refresh(20).session_key is not None
            if transactional:
                with pytest.raises(ProducerFencedException):
                    configs.write(task_entries("ours", []), leading=True)
            java.ask("PUT", "/connectors/ours/pause")
            java.wait(lambda: configs.refresh(20).target("ours") is TargetState.PAUSED, "its pause")

            # and it obeys what we write while it runs
            configs.write(target_entries("rests", TargetState.STARTED))
            java.wait(lambda: java.states("rests") == ["RUNNING", "RUNNING"], "rests was resumed by us")
            assert configs.refresh(20).connectors["rests"].tasks[0]["task.class"] == TASK_CLASS["task.class"]

            # and what it deletes is gone here
            assert java.ask("DELETE", "/connectors/ours")[0] == 204
            java.wait(lambda: "ours" not in configs.refresh(20).connectors, "its deletion")
            java.wait(lambda: statuses.names() == {"rests"} and statuses.topics("ours") == [], "ours is forgotten")
        # It passes over the tombstone of a task; its own deletions leave such records.
        (complaint,) = COMPLAINT.findall(java.log())
        assert complaint.endswith("Ignoring task configuration for task gone-0 because it is unexpectedly null")


def _running(statuses: StatusTopicStore, name: str, worker_id: str) -> bool:
    connector, tasks = statuses.connector(name), statuses.tasks(name)
    return all(
        one is not None and (one.state, one.worker_id) == (State.RUNNING, worker_id) for one in (connector, *tasks)
    )
