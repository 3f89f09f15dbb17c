"""The command connect-distributed, as a process and by its function, without a broker."""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.cli.worker_commands import NO_BROKER, command, ended, worker_file

from penstock.cli.worker import distributed

COMMAND = command("distributed")


def used_wrongly(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What the command says of arguments that it refuses, without ever starting."""
    monkeypatch.setattr(distributed, "begin", lambda level: None)
    done = CliRunner().invoke(distributed.main, arguments)
    assert done.exit_code == 2
    return done.output


def test_connector_files_are_refused_with_the_way_to_create_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = used_wrongly(monkeypatch, worker_file(tmp_path), str(tmp_path / "orders.properties"), "more.json")

    words = "".join(output.split())
    assert "takesnoconnectorfiles" in words
    assert f"penstockconnectorscreate{tmp_path / 'orders.properties'}" in words


def test_a_file_with_faults_names_all_of_them(tmp_path: Path) -> None:
    wrong = {"group_id": " ", "status_storage_topic": "connect-configs", "heartbeat_interval_ms": "20000"}
    code, output = ended("distributed", worker_file(tmp_path, **wrong))

    assert code == 1
    for name in ("group.id", "status.storage.topic", "heartbeat.interval.ms"):
        assert f"for configuration {name}" in output
    assert "Traceback" not in output


def test_a_file_without_the_worker_s_file_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "WORKER.PROPERTIES" in used_wrongly(monkeypatch)


@pytest.mark.slow
def test_a_worker_without_a_broker_waits_for_it_and_says_what_its_names_are(tmp_path: Path, free_port: int) -> None:
    file = worker_file(tmp_path, listeners=f"http://127.0.0.1:{free_port}")
    # Spark starts meanwhile, which takes more than all else here, and would be of no use.
    no_java = {**os.environ, "JAVA_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [*COMMAND, file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=no_java
    )
    try:
        deadline, health = time.monotonic() + 60, (0, "")
        while "does not answer" not in health[1] and time.monotonic() < deadline:
            threading.Event().wait(0.1)
            health = asked(f"http://127.0.0.1:{free_port}/health")
        assert health[0] == 503
        assert f"Kafka at {NO_BROKER} does not answer" in health[1]
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    for name, value in (("group.id", "connect-cluster"), ("config.storage.topic", "connect-configs")):
        assert f"The worker's file does not set {name}; it is {value}" in output


def asked(url: str) -> tuple[int, str]:
    """Status and message of an answer; nothing while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)["message"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["message"]
    except OSError:
        return 0, ""
