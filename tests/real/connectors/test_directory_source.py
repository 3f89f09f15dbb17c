"""The directory source in a standalone worker, with Kafka and Spark: its tasks come and go, fail and hang."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from pathlib import Path

import confluent_kafka as ck
import pytest
from testkit.spark_settings import QUICK_START

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow]

NAME = "watched"
START_S, WAIT_S = 120.0, 60.0

# A task with a file whose name has "fail" or "hang" in it does so, once for each file made in the directory `spells`.
SICK_CONNECTOR = """
import os
import threading
from pathlib import Path

from penstock.connectors.directory import DirectorySourceConnector, DirectorySourceTask

SPELLS = Path(__file__).parent / "spells"


class SickTask(DirectorySourceTask):
    def poll(self):
        for kind in ("fail", "hang"):
            if any(kind in tail.path for tail in self._tails):
                try:
                    os.unlink(SPELLS / kind)
                except FileNotFoundError:
                    continue
                if kind == "fail":
                    raise RuntimeError("broken on purpose")
                threading.Event().wait()
        return super().poll()


class SickConnector(DirectorySourceConnector):
    def task_class(self):
        return SickTask
"""


class Rig:
    """A standalone worker with one directory source, and a consumer of its topic."""

    def __init__(self, folder: Path, servers: str, port: int):
        self.inbox, self.spells = folder / "in", folder / "spells"
        for made in (self.inbox, self.spells):
            made.mkdir()
        self.url = f"http://127.0.0.1:{port}"
        self.topic = f"directory-{uuid.uuid4().hex[:8]}"
        self.log_file = folder / "worker.log"
        self.offsets_file = folder / "offsets"
        self.lines: set[str] = set()
        (folder / "sick_directory.py").write_text(SICK_CONNECTOR)
        converter = "org.apache.kafka.connect.storage.StringConverter"
        worker = {
            "bootstrap.servers": servers,
            "key.converter": converter,
            "value.converter": converter,
            "offset.storage.file.filename": str(self.offsets_file),
            "offset.flush.interval.ms": "200",
            "task.shutdown.graceful.timeout.ms": "1000",
            "listeners": self.url,
            "spark.master": "local[1]",
            **QUICK_START,
        }
        connector = {
            "name": NAME,
            "connector.class": "sick_directory.SickConnector",
            "tasks.max": "2",
            "topic": self.topic,
            "directories": str(self.inbox),
            "scan.interval.ms": "100",
            "idle.ms": "500",
            "stall.timeout.ms": "4000",
        }
        for name, settings in (("worker", worker), ("connector", connector)):
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            (folder / f"{name}.properties").write_text(text)
        command = [str(Path(sys.executable).parent / "connect-standalone"), "worker.properties", "connector.properties"]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        self.consumer = ck.Consumer(
            {"bootstrap.servers": servers, "group.id": self.topic, "auto.offset.reset": "earliest",
             "allow.auto.create.topics": True, "topic.metadata.refresh.interval.ms": 500}
        )  # fmt: skip
        self.consumer.subscribe([self.topic])

    def close(self):
        self.consumer.close()
        self.process.terminate()
        try:
            assert self.process.wait(30) == 0
        finally:
            self.process.kill()
            self.process.wait()

    def log(self):
        return self.log_file.read_text(errors="replace")

    def until(self, what, condition, timeout_s=WAIT_S):
        """Consumes until a condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s\n{self.log()}"
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.lines.add((message.value() or b"").decode())

    def states(self):
        """The states of the tasks."""
        try:
            with urllib.request.urlopen(f"{self.url}/connectors/{NAME}/status", timeout=5) as answer:
                status = json.load(answer)
        except OSError:
            return None
        return [task["state"] for task in status["tasks"]]

    def write(self, name, *lines):
        with (self.inbox / name).open("a") as out:
            out.write("".join(f"{line}\n" for line in lines))

    def has(self, *lines):
        return self.lines.issuperset(lines)


@pytest.fixture(scope="module")
def rig(tmp_path_factory, broker):
    from penstock.broker import free_port

    made = Rig(tmp_path_factory.mktemp("directory"), broker.bootstrap_servers, free_port())
    made.write("first", "first")
    try:
        made.until("the first line", lambda: made.has("first"), START_S)
        made.until("no tasks", lambda: made.states() == [])
        yield made
    finally:
        made.close()


def test_tasks_come_with_files_share_them_and_go(rig):
    names = [f"spread-{i}" for i in range(6)]
    lines = [f"{name} line {i}" for name in names for i in range(500)]
    sizes: set[int] = set()
    watching = threading.Event()

    def watch():
        while not watching.wait(0.02):
            sizes.add(len(rig.states() or []))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for name in names:
            rig.write(f".{name}", *(line for line in lines if line.startswith(f"{name} ")))
        for name in names:
            (rig.inbox / f".{name}").rename(rig.inbox / name)
        rig.until("all lines", lambda: rig.has(*lines))
        rig.until("no tasks", lambda: rig.states() == [])
    finally:
        watching.set()
        watcher.join()
    assert max(sizes) == 2
    rig.write("first", "grown")
    rig.until("the line of a file that grew", lambda: rig.has("grown"))
    rig.until("no tasks", lambda: rig.states() == [])


def test_a_task_that_fails_is_restarted_by_the_connector(rig):
    (rig.spells / "fail").touch()
    rig.write("will-fail", "after the failure")
    rig.until("a failed task", lambda: "FAILED" in (rig.states() or []))
    rig.until("the line", lambda: rig.has("after the failure"))
    rig.until("no tasks", lambda: rig.states() == [])
    assert "broken on purpose" in rig.log()
    assert "committed no new offset for 4.0 s; restarting them" in rig.log()


def test_a_task_that_hangs_is_replaced_by_the_connector(rig):
    before = rig.log().count("restarting them")
    (rig.spells / "hang").touch()
    rig.write("will-hang", "after the hang")
    rig.until("a task that hangs", lambda: not (rig.spells / "hang").exists())
    rig.until("the line", lambda: rig.has("after the hang"))
    rig.until("no tasks", lambda: rig.states() == [])
    assert rig.log().count("restarting them") > before
