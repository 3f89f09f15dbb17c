"""Clients that others wrote for Kafka Connect drive a worker: what people own keeps working.

From PyPI, with the versions these tests were written against: kafka-connect-py 1.0.0, kafka-connect-api 0.5.10,
kafkaconnect 1.3.1, connectorctl 0.1.0, kafka-connect-healthcheck 0.3.0. Not all of them know everything: what stops a
connector is kafka-connect-py's, and offsets, which none of them knows, are asked for with plain requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from testkit.doubles.control_plane import SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CONFIG = {"connector.class": SOURCE, "tasks.max": "2"}


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as running:
        yield running


def url(api: Api) -> str:
    return str(api.http.base_url).rstrip("/")


def state(api: Api, name: str) -> str:
    status, body = api.call("GET", f"/connectors/{name}/status")
    return body["connector"]["state"] if status == 200 else str(status)


def becomes(read: Callable[[], object], wanted: object) -> None:
    await_true(lambda: read() == wanted, lambda: f"it is {read()}, not {wanted}")


def test_kafka_connect_py(api: Api) -> None:
    from kafka_connect import KafkaConnect

    client = KafkaConnect(url(api))
    assert client.get_cluster_info()["version"] == "4.3.0"
    assert client.create_connector({"name": "one", "config": CONFIG})["name"] == "one"
    becomes(lambda: client.get_connector_status("one")["connector"]["state"], "RUNNING")
    assert client.update_connector("one", CONFIG | {"tasks.max": "1"})["config"]["tasks.max"] == "1"
    assert client.get_connector_config("one")["tasks.max"] == "1"
    becomes(lambda: len(client.list_connector_tasks("one")), 1)
    assert client.validate_connector_config(SOURCE, CONFIG)["error_count"] == 1  # it has no name
    assert client.validate_connector_config(SOURCE, CONFIG | {"name": "one"})["error_count"] == 0
    client.pause_connector("one")
    becomes(lambda: client.get_connector_status("one")["connector"]["state"], "PAUSED")
    assert client.list_connectors(state="PAUSED", expand="status").keys() == {"one"}
    client.resume_connector("one")
    becomes(lambda: client.get_connector_task_status("one", 0)["state"], "RUNNING")
    client.restart_connector("one", include_tasks=True)
    client.restart_connector_task("one", 0)
    becomes(lambda: client.get_connector_task_status("one", 0)["state"], "RUNNING")
    assert client.list_connector_topics("one") == {"one": {"topics": []}}
    client.reset_connector_topics("one")
    client.stop_connector("one")
    becomes(lambda: client.get_connector_status("one")["connector"]["state"], "STOPPED")
    offsets = f"{client.url}/connectors/one/offsets"
    moved = {"offsets": [{"partition": {"p": 1}, "offset": {"o": 5}}]}
    assert requests.patch(offsets, json=moved, auth=client.auth, verify=client.verify, timeout=10).status_code == 200
    assert requests.get(offsets, timeout=10).json() == moved
    assert requests.delete(offsets, timeout=10).status_code == 200
    assert requests.get(offsets, timeout=10).json() == {"offsets": []}
    assert {plugin["type"] for plugin in client.list_connector_plugins()} <= {"source", "sink"}
    client.delete_connector("one")
    assert client.list_connectors() == []
    with pytest.raises(requests.HTTPError, match="404"):
        client.get_connector("one")


def test_kafka_connect_api(api: Api) -> None:
    from kafka_connect_api.errors import GenericNotFound
    from kafka_connect_api.kafka_connect_api import Api as Connection
    from kafka_connect_api.kafka_connect_api import Cluster, Connector

    connection = Connection(hostname="127.0.0.1", port=api.http.base_url.port, protocol="http")
    cluster = Cluster(connection)
    assert cluster.version == "4.3.0"
    assert connection.post_raw("/connectors", json={"name": "one", "config": CONFIG}).status_code == 201
    connector = Connector(cluster, "one")
    assert connector.exists()
    with pytest.raises(GenericNotFound, match="Connector two not found"):
        Connector(cluster, "two").exists()
    becomes(lambda: connector.state, "RUNNING")
    becomes(lambda: [task.is_running() for task in connector.tasks], [True, True])
    connector.config = CONFIG | {"tasks.max": "1"}
    becomes(lambda: len(connector.tasks), 1)
    connector.pause()
    becomes(lambda: connector.state, "PAUSED")
    connector.resume()
    becomes(lambda: connector.state, "RUNNING")
    connector.restart()
    connector.restart_all_tasks()
    becomes(lambda: [task.state for task in connector.tasks], ["RUNNING"])
    assert connector.connector_class == SOURCE
    assert set(cluster.connectors) == {"one"}
    name = "penstock.worker.worker"
    cluster.set_logger_log_level(name, "DEBUG")
    assert cluster.loggers[name]["level"] == "DEBUG"
    cluster.set_logger_log_level(name, "INFO")
    connector.delete()
    becomes(lambda: state(api, "one"), "404")


def test_kafkaconnect(api: Api) -> None:
    from kafkaconnect.connect import Connect

    client = Connect(url(api))
    made = client.validate_and_create("one", json.dumps(CONFIG | {"name": "one"}))
    assert json.loads(made)["name"] == "one"
    assert json.loads(client.list()) == ["one"]
    becomes(lambda: json.loads(client.status("one"))["connector"]["state"], "RUNNING")
    assert json.loads(client.validate(SOURCE, json.dumps({"connector.class": SOURCE})))["error_count"] == 1
    client.create_or_update("one", json.dumps(CONFIG | {"tasks.max": "1"}))
    becomes(lambda: len(json.loads(client.tasks("one"))), 1)
    client.pause("one")
    becomes(lambda: json.loads(client.status("one"))["connector"]["state"], "PAUSED")
    client.resume("one")
    client.restart("one")
    becomes(lambda: json.loads(client.status("one"))["connector"]["state"], "RUNNING")
    assert json.loads(client.topics("one")) == {"one": {"topics": []}}
    client.remove("one")
    assert "not found" in client.info("one")


@pytest.mark.slow
def test_connectorctl(api: Api, tmp_path: Path) -> None:
    home = tmp_path / ".connector_cli"
    home.mkdir()
    here = {"server": "127.0.0.1", "port": api.http.base_url.port, "user": "", "password": ""}
    (home / "config.json").write_text(json.dumps({"current_context": "here", "environments": {"here": here}}))

    def run(*arguments: str) -> str:
        code = "import sys; from connectorctl.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, *arguments]
        ended = subprocess.run(
            command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("create", json.dumps({"name": "one", "config": CONFIG}))
    becomes(lambda: state(api, "one"), "RUNNING")
    assert "one" in run("list")
    run("update", "one", json.dumps(CONFIG | {"tasks.max": "1"}))
    assert api.call("GET", "/connectors/one/config")[1]["tasks.max"] == "1"
    run("pause", "one")
    becomes(lambda: state(api, "one"), "PAUSED")
    assert "PAUSED" in run("status", "one")
    run("resume", "one")
    becomes(lambda: state(api, "one"), "RUNNING")
    assert "Restarted successfully" in run("restart", "one")
    run("delete", "one")
    becomes(lambda: state(api, "one"), "404")


def test_kafka_connect_healthcheck(api: Api) -> None:
    from kafka_connect_healthcheck.health import Health

    api.create("one")
    becomes(lambda: state(api, "one"), "RUNNING")
    worker = api.call("GET", "/connectors/one/status")[1]["connector"]["worker_id"]
    health = Health(url(api), worker, ["FAILED"], None, 0, ["connector", "task"])
    found = health.get_health_result()
    assert found["healthy"], found
    assert found["failures"] == []
