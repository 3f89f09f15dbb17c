"""What users do wrong, and what breaks under them: each ends in a message that says where, why and what to do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import confluent_kafka as ck
import pytest
from testkit.connectors.journal_sink import read_journal
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.consumer.sampler import read_values
from penstock.stores.offset_file import decode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Test = TypeVar("Test", bound=Callable[..., None])

JSON = "org.apache.kafka.connect.json.JsonConverter"


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs the command with files of the test's directory until it ends; exit code and output."""
    (tmp_path / "worker.properties").write_text(
        "bootstrap.servers=127.0.0.1:1\nkey.converter=StringConverter\nvalue.converter=StringConverter\n"
        "offset.storage.file.filename=offsets\nlisteners=http://127.0.0.1:0\n"
    )

    def run(*files: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.worker.standalone", *files],
            cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stdout
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


def test_two_connector_files_of_one_name_are_both_named(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.properties").write_text("name=same\nconnector.class=FileStreamSink\ntopics=t\n")
    code, said = command("worker.properties", "one.properties", "two.properties")
    assert code == 3
    assert "The connector files one.properties and two.properties both have name=same" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "The file bad.properties cannot be read: No such file or directory"),
        (b"name=caf\xe9\n", "The file bad.properties is not UTF-8 text"),
        (b"name=\\u00g1\n", "The connector file bad.properties is not a properties file"),
        (b'{"name": "a"', "The connector file bad.properties is not valid JSON"),
    ],
)
def test_a_connector_file_that_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, command: Callable[..., tuple[int, str]], content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "bad.properties").write_bytes(content)
    code, said = command("worker.properties", "bad.properties")
    assert code == 3
    assert message in said


def test_a_worker_file_that_cannot_be_read_is_named_with_the_reason(command: Callable[..., tuple[int, str]]) -> None:
    code, said = command("nowhere.properties")
    assert code == 1
    assert "The worker cannot start: worker file nowhere.properties" in said
    assert "No such file or directory" in said


@pytest.mark.java
def test_a_corrupt_offsets_file_ends_the_worker_and_is_left_alone(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "offsets").write_bytes(b"\xac\xed\x00\x05 not a map")
    code, said = command("worker.properties")
    assert code == 1
    assert "The offsets file offsets is corrupt or is not an offsets file" in said
    assert "Restore the file from a copy, or move it away to begin again on purpose." in said
    assert (tmp_path / "offsets").read_bytes() == b"\xac\xed\x00\x05 not a map"


@pytest.mark.java
def test_without_a_broker_the_worker_answers_and_says_so_and_a_signal_ends_it_within_seconds(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "127.0.0.1:1", {"config.providers": "env"} | ENV_PROVIDER)
    try:
        worker.start()
        worker.wait(lambda: worker.get("/connectors") == (200, []), "it answers")
        worker.wait(lambda: "the worker keeps trying" in worker.text(), "it says so", timeout_s=120)
        status, body = worker.get("/health")
        assert status == 503
        assert isinstance(body, dict)
        assert body["status"] == "starting"
        began = time.monotonic()
        assert worker.end(signal.SIGINT) == 0
        assert time.monotonic() - began < 15, "Spark may still be starting; that must not be waited for"
        assert "Kafka at 127.0.0.1:1 does not answer" in worker.text()
        assert "brokers 127.0.0.1:1; check bootstrap.servers, and that they are reachable" in worker.text()
        assert_no_noise(worker.text())
    finally:
        worker.close()


ENV_PROVIDER = {"config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider"}


def assert_no_noise(text: str) -> None:
    """Every line of a log is the worker's own: no client's raw lines, no traces, nothing that nobody asked for."""
    assert "Traceback" not in text
    assert "does not use" not in text
    strange = [line for line in text.splitlines() if not line.startswith("[20")]
    assert not [line for line in strange if line.startswith(("%", "WARNING", "ERROR"))], strange


# ------------------------------------------------------------------------------------------------ in a running worker


class Lab:
    """The shared worker, and what one test does with it."""

    def __init__(self, worker: WorkerProcess, broker: EmbeddedBroker, directory: Path) -> None:
        self.worker = worker
        self.servers = broker.bootstrap_servers
        self.directory = directory
        self.name = f"lab-{uuid.uuid4().hex[:8]}"
        self._log_before = len(worker.text())

    def create(self, config: Mapping[str, str]) -> None:
        """Makes the test's connector."""
        status, body = self.worker.ask("POST", "/connectors", {"name": self.name, "config": dict(config)})
        assert status == 201, body

    def source(self, path: Path, **more: str) -> None:
        """A file source to the topic of the test's name."""
        settings = {name.replace("_", "."): value for name, value in more.items()}
        self.create({"connector.class": "FileStreamSource", "file": str(path), "topic": self.name} | settings)

    def sink(self, path: Path, **more: str) -> None:
        """A file sink from the topic of the test's name."""
        settings = {name.replace("_", "."): value for name, value in more.items()}
        self.create({"connector.class": "FileStreamSink", "file": str(path), "topics": self.name} | settings)

    def failed(self) -> str:
        """The trace of the task, once it has failed."""
        self.worker.wait(lambda: self.worker.states(self.name) == ["RUNNING", "FAILED"], "the task fails", 120)
        return self.worker.trace(self.name)

    def restart_task(self) -> None:
        """As a user does when the cause is gone."""
        assert self.worker.ask("POST", f"/connectors/{self.name}/tasks/0/restart")[0] == 204

    def said(self) -> str:
        """What the worker has logged since the test began, about this connector."""
        return "\n".join(line for line in self.worker.text()[self._log_before :].splitlines() if self.name in line)

    def topic(self) -> None:
        """Makes the test's topic, one partition."""
        admin = TopicAdmin({"bootstrap.servers": self.servers}, name="the test")
        try:
            admin.create_topics([Spec(self.name)])
        finally:
            admin.close()

    def write(self, *values: bytes) -> None:
        """Records for the test's topic."""
        producer = ck.Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(self.name, value, b"key", 0, headers=[("h", b"1")])
        assert producer.flush(30) == 0

    def values(self, count: int) -> list[bytes | None]:
        """The first values of the test's topic."""
        return read_values(self.servers, self.name, count, 90)

    def delete(self) -> None:
        """Removes the connector."""
        self.worker.ask("DELETE", f"/connectors/{self.name}")


class Spec:
    """A topic to be made."""

    def __init__(self, name: str) -> None:
        self.name, self.partitions, self.replication_factor = name, 1, 1
        self.configs: Mapping[str, str] = {}


@pytest.fixture
def lab(shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Lab]:
    """The shared worker."""
    made = Lab(shared_worker, broker, tmp_path)
    yield made
    made.delete()
    assert_no_noise("\n".join(line for line in made.said().splitlines() if " ERROR " not in line))


def spark(test: Test) -> Test:
    """Marks what needs the shared worker."""
    return cast("Test", pytest.mark.java(pytest.mark.broker(test)))


@spark
def test_a_second_worker_on_the_same_offsets_file_is_refused(lab: Lab) -> None:
    second = WorkerProcess(
        lab.directory, lab.servers, {"offset.storage.file.filename": str(lab.worker.directory / "offsets")}
    )
    try:
        second.start()
        assert second.wait_ended(90) == 1
        assert "is in use by another worker; give each standalone worker its own" in second.text()
    finally:
        second.close()


@spark
def test_a_topic_that_cannot_be_created_fails_the_task_with_the_brokers_reason(lab: Lab) -> None:
    (lab.directory / "in").write_text("a line\n")
    replicas = {"topic_creation_default_replication_factor": "3", "topic_creation_default_partitions": "1"}
    lab.source(lab.directory / "in", **replicas)
    trace = lab.failed()
    assert f"Task {lab.name}-0 cannot write to topic {lab.name}, which could not be looked up or created" in trace
    assert "replication factor" in trace.lower()
    assert "Check the topic.creation.* settings" in trace


@spark
def test_files_without_permission_fail_their_task_until_they_may_be_used(lab: Lab) -> None:
    path = lab.directory / "in"
    path.write_text("secret\n")
    path.chmod(0)
    lab.source(path)
    assert f"Cannot open file {path} for reading: Permission denied" in lab.failed()
    path.chmod(0o600)
    lab.restart_task()
    assert lab.values(1) == [b"secret"]


@spark
def test_a_sink_file_without_permission_fails_the_task_and_loses_nothing(lab: Lab) -> None:
    path = lab.directory / "out"
    path.write_text("")
    path.chmod(0o400)
    lab.topic()
    lab.write(b"one", b"two")
    lab.sink(path)
    assert f"Couldn't find or create file '{path}' for FileStreamSinkTask: Permission denied" in lab.failed()
    path.chmod(0o600)
    lab.restart_task()
    lab.worker.wait(lambda: path.read_text() == "one\ntwo\n", "both lines")


@spark
def test_undecodable_bytes_in_a_line_are_replaced_and_the_place_is_logged(lab: Lab) -> None:
    (lab.directory / "in").write_bytes(b"good\nb\xe4d\xff\nalso good\n")
    lab.source(lab.directory / "in")
    assert lab.values(3) == [b"good", "b\ufffdd\ufffd".encode(), b"also good"]
    assert "1 lines between positions 0 and 20 hold bytes that are not UTF-8" in lab.said()
    lab.worker.wait(
        lambda: lab.worker.metric("kafka_connect_source_task_source_record_write_total", lab.name) == 3, "the metric"
    )
    assert lab.worker.metric("kafka_connect_source_task_source_record_poll_total", lab.name) == 3


@spark
def test_a_line_that_is_too_long_for_a_request_fails_the_task_at_its_place_and_says_what_to_raise(lab: Lab) -> None:
    size = 50 * 1024 * 1024
    (lab.directory / "in").write_bytes(b"before\n" + b"x" * size + b"\nbehind\n")
    lab.source(lab.directory / "in")
    trace = lab.failed()
    assert f"task {lab.name}-0, topic {lab.name}" in trace
    assert "max.request.size" in trace
    assert str(lab.directory / "in") in trace
    # The line before it is stored and committed, the ones behind it come after the correction.
    assert lab.values(1) == [b"before"]
    lab.delete()
    lab.source(lab.directory / "in", producer_override_max_request_size="60000000", errors_tolerance="all")
    # This broker takes no such record either; what it refuses is skipped when that is asked for.
    assert lab.values(2) == [b"before", b"behind"]


@spark
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            b"{not json",
            "Converting byte[] to Kafka Connect data failed due to serialization error: the message is not JSON. Set "
            "value.converter to the converter it was written with, or errors.tolerance=all to pass over such messages",
        ),
        (b'{"plain": true}', "To read them, set value.converter.schemas.enable=false if your records are plain JSON"),
    ],
)
def test_json_that_is_malformed_or_lacks_the_envelope_fails_the_task_at_its_offset_with_advice(
    lab: Lab, value: bytes, message: str
) -> None:
    out = lab.directory / "out"
    lab.topic()
    good = json.dumps({"schema": {"type": "string", "optional": False}, "payload": "good"}).encode()
    lab.write(good, value, good)
    lab.sink(out, value_converter=JSON)
    trace = lab.failed()
    assert f"Tolerance exceeded in error handler (task {lab.name}-0, stage VALUE_CONVERTER, topic {lab.name}, " in trace
    assert "partition 0, offset 1)" in trace
    assert message in trace
    assert out.read_text() == "good\n", "what is before it is delivered"


@spark
def test_a_full_disk_while_offsets_are_written_keeps_the_old_ones_and_loses_nothing(lab: Lab) -> None:
    # A long name makes a long offset: the limit has to stop the offsets file and not the few bytes that go to Spark.
    path = lab.directory.joinpath(*["x" * 250] * 12, "in")
    path.parent.mkdir(parents=True)
    path.write_text("first\n")
    lab.source(path)
    offsets = lab.worker.directory / "offsets"

    def position() -> object:
        found = decode(offsets.read_bytes()) if offsets.exists() else {}
        value = found.get(f'["{lab.name}",{{"filename":"{path}"}}]'.encode())
        return None if value is None else json.loads(value)["position"]

    lab.worker.wait(lambda: position() == 6, "the first offset")
    lab.worker.limit_files(2800)
    try:
        with path.open("a") as out:
            out.write("second\n")
        lab.worker.wait(lambda: "offset commit failed" in lab.said(), "the failure is logged")
        assert position() == 6
        assert lab.worker.states(lab.name) == ["RUNNING", "RUNNING"]
    finally:
        lab.worker.limit_files(-1)
    assert f"[{lab.name}|task-0]" in lab.said()
    assert f"Source offsets could not be written to {offsets}: File too large" in lab.said()
    assert f"source partition {{'filename': '{path}'}}" in lab.said(), "what was to be written"
    lab.worker.wait(lambda: position() == 13, "the next commit has both")
    assert lab.values(2) == [b"first", b"second"]


@spark
def test_a_full_disk_under_a_sink_fails_the_task_at_its_offset_and_a_restart_delivers_all(lab: Lab) -> None:
    path = lab.directory / "out"
    before = "old\n" * 25_000
    path.write_text(before)
    lab.topic()
    lab.sink(path)
    lab.write(b"first")
    lab.worker.wait(lambda: path.read_text() == before + "first\n", "the first line")
    lab.worker.limit_files(len(before) + 12)
    try:
        lab.write(b"second", b"third")
        trace = lab.failed()
    finally:
        lab.worker.limit_files(-1)
    assert f"Cannot write to {path}: File too large" in trace
    assert f"{lab.name} task 0" in trace
    assert f"{lab.name}-0 from offset " in trace, "topic, partition and offset"
    lab.restart_task()
    lab.worker.wait(lambda: path.read_text().count("\n") == 25_003, "all lines")
    assert path.read_text() == before + "first\nsecond\nthird\n"


# ------------------------------------------------------------------------------------------------ what reports them


@spark
def test_dead_letters_get_a_topic_and_say_where_they_come_from_and_the_task_may_add_its_own(lab: Lab) -> None:
    letters = f"{lab.name}-letters"
    lab.topic()
    lab.write(b'"good"', b"{bad", b'"refused"')
    lab.create(
        {
            "connector.class": "testkit.connectors.journal_sink:JournalSink",
            "topics": lab.name,
            "journal": str(lab.directory / "journal"),
            "report": "refused",
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": letters,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
    )
    bad, refused = (headers_of(message) for message in messages(lab.servers, letters, 2))
    common = {"topic": lab.name, "partition": "0", "connector.name": lab.name, "task.id": "0"}
    assert common | {"offset": "1", "stage": "VALUE_CONVERTER", "class.name": JSON} == {
        name: bad[name] for name in (*common, "offset", "stage", "class.name")
    }
    assert bad["exception.class.name"] == "org.apache.kafka.connect.errors.DataException"
    assert "serialization error" in bad["exception.message"]
    assert bad["exception.stacktrace"].startswith("org.apache.kafka.connect.errors.DataException")
    assert common | {"offset": "2", "stage": "TASK_PUT"} == {
        name: refused[name] for name in (*common, "offset", "stage")
    }
    assert refused["class.name"] == "org.apache.kafka.connect.sink.SinkTask"
    assert refused["exception.message"] == "the journal does not take refused"
    put = [value for entry in read_journal(lab.directory / "journal") for value in entry.values]
    assert put == ["good", "refused"]
    found = messages(lab.servers, letters, 2)
    assert [message.value() for message in found] == [b"{bad", b'"refused"']
    assert [message.key() for message in found] == [b"key", b"key"]
    assert all(pairs_of(message)[0] == ("h", b"1") for message in found)
    counted = {name: lab.worker.metric(f"kafka_connect_{name}", lab.name) for name in SINK_METRICS}
    assert counted == SINK_METRICS
    lab.delete()
    assert lab.worker.metric("kafka_connect_sink_task_sink_record_read_total", lab.name) is None


@spark
def test_a_record_that_a_task_made_itself_is_in_its_dead_letter_as_the_tasks_converters_write_it(lab: Lab) -> None:
    letters = f"{lab.name}-letters"
    lab.topic()
    lab.write(b'{"schema":{"type":"string"},"payload":"refused"}')
    lab.create(
        {
            "connector.class": "testkit.connectors.journal_sink:JournalSink",
            "topics": lab.name,
            "journal": str(lab.directory / "journal"),
            "report": "refused",
            "made": "true",
            "value.converter": JSON,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": letters,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
    )
    [letter] = messages(lab.servers, letters, 1)
    assert letter.key() == b"key"
    assert letter.value() == b'{"schema":null,"payload":{"list":[true,null],"was":"refused"}}'
    assert pairs_of(letter)[0] == ("h", b"1")
    assert headers_of(letter)["offset"] == "1000000"
    lab.delete()


SINK_METRICS = {
    "sink_task_sink_record_read_total": 3,
    "sink_task_sink_record_send_total": 2,
    "sink_task_partition_count": 1,
    "task_error_total_record_errors": 2,
    "task_error_total_records_skipped": 1,
    "task_error_deadletterqueue_produce_requests": 2,
    "task_error_deadletterqueue_produce_failures": 0,
}


def messages(servers: str, topic: str, count: int) -> list[ck.Message]:
    """The first messages of a topic of one partition, which may not be there yet."""
    assert len(read_values(servers, topic, count, 90)) == count
    reader = ck.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    try:
        reader.assign([ck.TopicPartition(topic, 0, 0)])
        found: list[ck.Message] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            found += reader.consume(count - len(found), timeout=1)
        return found
    finally:
        reader.close()


def pairs_of(message: ck.Message) -> list[tuple[str, bytes]]:
    """The headers."""
    return list(cast("Any", message.headers()) or ())


def headers_of(message: ck.Message) -> dict[str, str]:
    """The context headers without their prefix."""
    prefix = "__connect.errors."
    return {name.removeprefix(prefix): value.decode() for name, value in pairs_of(message) if name.startswith(prefix)}
