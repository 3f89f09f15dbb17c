"""The REST API over HTTP, on a herder with doubles for tasks."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE, Setup
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serve, serving

from penstock.errors import ConfigException, ConnectException
from penstock.rest.errors import on_error
from penstock.rest.server import Listener, open_listeners

JSON = "application/json"


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def test_a_connector_from_creation_to_deletion(api: Api) -> None:
    answer = api.http.post("/connectors", json={"name": " a ", "config": {"connector.class": SOURCE, "tasks.max": 1}})
    info = {
        "name": "a",
        "config": {"connector.class": SOURCE, "tasks.max": "1", "name": "a"},
        "tasks": [{"connector": "a", "task": 0}],
        "type": "source",
    }
    assert (answer.status_code, answer.json()) == (201, info)
    assert answer.headers["location"] == str(api.http.base_url.join("/connectors/a"))
    assert answer.headers["content-type"] == "application/json"
    api.setup.await_state("a", "RUNNING", ["RUNNING"])

    worker = {"state": "RUNNING", "worker_id": "127.0.0.1:8083", "version": "7"}
    status = {"name": "a", "connector": worker, "tasks": [{"id": 0, **worker}], "type": "source"}
    assert api.call("GET", "/connectors") == (200, ["a"])
    assert api.call("GET", "/connectors/a") == (200, info)
    assert api.call("GET", "/connectors/a/config") == (200, info["config"])
    assert api.call("GET", "/connectors/a/status/") == (200, status)
    assert api.call("GET", "/connectors/a/tasks/0/status") == (200, {"id": 0, **worker})
    task = {
        "id": {"connector": "a", "task": 0},
        "config": {"part": "0", "task.class": "testkit.connectors.probes.ProbeTask"},
    }
    assert api.call("GET", "/connectors/a/tasks") == (200, [task])
    assert api.call("GET", "/connectors?expand=info&expand=status&expand=x") == (
        200,
        {"a": {"info": info, "status": status}},
    )
    assert api.call("GET", "/connectors?expand=nothing") == (200, {"a": {}})

    assert api.call("DELETE", "/connectors/a") == (204, None)
    assert api.call("GET", "/connectors/") == (200, [])


def test_what_is_not_there_is_404_with_kafkas_words(api: Api) -> None:
    for method, path, message in [
        ("GET", "/connectors/x", "Connector x not found"),
        ("GET", "/connectors/x/config", "Connector x not found"),
        ("GET", "/connectors/x/tasks", "Connector x not found"),
        ("DELETE", "/connectors/x", "Connector x not found"),
        ("GET", "/connectors/x/status", "No status found for connector x"),
        ("GET", "/connectors/x/tasks/0/status", "No status found for task x-0"),
        ("POST", "/connectors/x/restart", "Unknown connector: x"),
        ("POST", "/connectors/x/restart?includeTasks=true", "Unknown connector: x"),
        ("POST", "/connectors/x/tasks/0/restart", "Unknown connector: x"),
        ("PUT", "/connectors/x/pause", "Unknown connector x"),
        ("PUT", "/connectors/x/stop", "Unknown connector x"),
        ("GET", "/nope", "HTTP 404 Not Found"),
        ("GET", "/connectors/x/tasks/one/status", "HTTP 404 Not Found"),
        ("GET", f"/connectors/x/tasks/{'9' * 5000}/status", "HTTP 404 Not Found"),
        ("GET", "/connectors/x/tasks/2147483648/status", "HTTP 404 Not Found"),
        ("GET", "/connectors/x/tasks/2147483647/status", "No status found for task x-2147483647"),
        ("GET", "/connectors/x/tasks/-1/status", "No status found for task x--1"),
        ("GET", "/connectors/x/nope", "HTTP 404 Not Found"),
    ]:
        assert api.call(method, path) == (404, {"error_code": 404, "message": message}), path


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{bad", "not valid JSON"),
        (b"", "needs a JSON body"),
        (b"[]", "must be a JSON object"),
        (b'{"name": "a"}', "no config"),
        (b'{"name": "a", "config": {}, "extra": 1}', "Unrecognized field extra"),
        (b'{"name": "a", "config": []}', "must be a JSON object"),
        (b'{"name": "a", "config": {"nest": {"a": 1}}}', "The value of nest must be"),
        (b'{"name": "a", "config": {"list": [1]}}', "The value of list must be"),
        (b'{"name": {}, "config": {}}', "must be a text"),
        (b'{"name": "a", "config": {"n": NaN}}', "not valid JSON"),
        (b'{"name": "a", "config": {"n": %s}}' % (b"9" * 5000), "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"name": "a", "config": {"name": "b"}}', "Connector name configuration (b) doesn't match"),
        (b'{"name": "a", "config": {}, "initial_state": "GONE"}', "initial_state must be one of"),
        (b'{"name": "a", "config": {}, "initial_state": 1}', "initial_state must be a text"),
        (b"\xff\xfe", "not valid JSON"),
    ],
)
def test_bad_bodies_are_400_with_a_reason(api: Api, body: bytes, words: str) -> None:
    answer = api.http.post("/connectors", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error_code"] == 400
    assert words in answer.json()["message"]


def test_media_types_methods_and_accept_headers(api: Api) -> None:
    assert api.call("POST", "/connectors", content=b"{}", headers={"content-type": "text/plain"})[0] == 415
    assert api.call("GET", "/connectors", headers={"accept": "text/html"})[0] == 406
    assert api.call("DELETE", "/connectors") == (405, {"error_code": 405, "message": "HTTP 405 Method Not Allowed"})
    assert api.call("GET", "/connectors/x/pause")[0] == 405
    refused = api.http.put("/connectors")
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert "content-type" not in refused.headers
    # What is no JSON is there for clients that take none.
    assert api.http.get("/metrics", headers={"accept": "text/plain"}).status_code == 200
    options = api.http.options("/connectors")
    assert (options.status_code, options.text) == (200, "GET,HEAD,OPTIONS,POST")
    head = api.http.head("/connectors")
    assert (head.status_code, head.content) == (200, b"")


def test_metrics_are_answered_whatever_a_plugin_makes_of_its_own(api: Api) -> None:
    api.create("a")
    own = BOARD.instances["a"][0].context().plugin_metrics()
    own.add_metric(own.metric_name("files", "Of a folder.", {"folder": "caf\udce9"}), lambda: 2)
    own.add_metric(own.metric_name("broken"), lambda: 1 / 0)
    answer = api.http.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'kafka_connect_plugins_files{connector="a",folder="caf?"} 2\n' in answer.text
    assert "kafka_connect_worker_connector_startup_success_total 1\n" in answer.text
    assert "broken" not in answer.text
    api.call("DELETE", "/connectors/a")
    assert "plugins" not in api.http.get("/metrics").text


def test_a_name_taken_is_409(api: Api) -> None:
    assert api.create("a")[0] == 201
    assert api.create("a") == (409, {"error_code": 409, "message": "Connector a already exists"})


def test_put_config_creates_and_changes(api: Api) -> None:
    config = {"connector.class": SOURCE, "errors.log.enable": True}
    answer = api.http.put("/connectors/a/config", json=config)
    assert answer.status_code == 201
    assert answer.headers["location"].endswith("/connectors/a")
    assert api.call("PUT", "/connectors/a/config", {**config, "name": "b"})[0] == 400
    status, info = api.call("PUT", "/connectors/a/config", {"connector.class": SOURCE})
    assert (status, info["config"]) == (200, {"connector.class": SOURCE, "name": "a"})


def test_patch_config_changes_and_removes_settings(api: Api) -> None:
    api.create("a", one="1", two="2")
    status, info = api.call("PATCH", "/connectors/a/config", {"one": None, "three": 3})
    assert (status, info["config"]) == (200, {"connector.class": SOURCE, "name": "a", "two": "2", "three": "3"})
    assert api.error("PATCH", "/connectors/a/config", {"name": "b"}) == (
        400,
        "Connector name configuration (b) doesn't match connector name in the URL (a)",
    )
    assert api.error("PATCH", "/connectors/a/config", {"name": None})[0] == 400
    assert api.call("GET", "/connectors/a/config")[1]["name"] == "a"
    for patch in ({}, {"name": "b"}):
        assert api.error("PATCH", "/connectors/x/config", patch) == (404, "Connector x not found")


def test_numbers_in_a_configuration_are_the_text_that_was_sent(api: Api) -> None:
    body = b'\xef\xbb\xbf{"connector.class": "%s", "a": 1e5, "b": 1.50, "c": 123456789012345678901234567890}'
    answer = api.http.put("/connectors/7/config", content=body % SOURCE.encode(), headers={"content-type": JSON})
    assert answer.status_code == 201
    assert answer.json()["config"] == {
        "connector.class": SOURCE,
        "name": "7",
        "a": "1e5",
        "b": "1.50",
        "c": "123456789012345678901234567890",
    }
    assert api.error("POST", "/connectors", {"name": 7, "config": {"connector.class": SOURCE}})[0] == 409


def test_a_request_may_name_the_whole_address_as_to_a_proxy(api: Api) -> None:
    api.create("a")
    host, port = "127.0.0.1", api.http.base_url.port
    with socket.create_connection((host, port or 0), timeout=20) as client:
        client.sendall(b"GET http://x/connectors/a?b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def test_a_client_that_goes_away_in_its_request_is_no_error_of_the_worker(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    answered = threading.Event()
    with pytest.MonkeyPatch.context() as patch:

        def watched(request: Request, error: Exception, own: Mapping[str, str]) -> Response:
            answer = on_error(request, error, own)
            answered.set()
            return answer

        patch.setattr("penstock.rest.errors.on_error", watched)
        with socket.create_connection(("127.0.0.1", api.http.base_url.port or 0), timeout=20) as client:
            client.sendall(b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n" % JSON.encode())
            client.sendall(b"Content-Length: 9\r\n\r\n{")
        assert answered.wait(20)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_names_with_blanks_slashes_and_other_letters_are_addressable(api: Api) -> None:
    for name, path in [("a b", "a%20b"), ("x/y", "x%2Fy"), ("50%", "50%25"), ("größe", "gr%C3%B6%C3%9Fe")]:
        answer = api.http.post("/connectors", json={"name": name, "config": {"connector.class": SOURCE}})
        assert answer.headers["location"].endswith(f"/connectors/{path}")
        assert api.call("GET", f"/connectors/{path}")[1]["name"] == name
        assert api.call("DELETE", f"/connectors/{path}")[0] == 204


def test_states_are_changed_by_requests(api: Api) -> None:
    api.create("a")
    assert api.call("PUT", "/connectors/a/pause") == (202, None)
    api.setup.await_state("a", "PAUSED", ["PAUSED"])
    assert api.call("PUT", "/connectors/a/resume") == (202, None)
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("POST", "/connectors/a/restart") == (204, None)
    assert api.call("POST", "/connectors/a/tasks/0/restart") == (204, None)
    status, plan = api.call("POST", "/connectors/a/restart?includeTasks=true")
    assert (status, plan["connector"]["state"]) == (202, "RESTARTING")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("PUT", "/connectors/a/stop") == (204, None)
    api.setup.await_state("a", "STOPPED", [])


def test_a_connector_that_cannot_start_tells_why(api: Api) -> None:
    BOARD.fail["a", "start"] = ConnectException("no such database")
    status, body = api.create("a")
    assert status == 500
    assert "no such database" in body["message"]


def test_reads_are_answered_while_a_connector_blocks(api: Api) -> None:
    BOARD.block["a", "start"] = threading.Event()
    api.setup.herder.put_connector("a", {"connector.class": SOURCE})
    await_true(lambda: "start" in BOARD.of("a"))
    assert api.call("GET", "/connectors") == (200, ["a"])
    assert api.call("GET", "/connectors/a")[0] == 200
    assert api.call("DELETE", "/connectors/a")[0] == 204


def test_plugins_are_listed_by_type(api: Api) -> None:
    status, connectors = api.call("GET", "/connector-plugins")
    assert status == 200
    assert {plugin["type"] for plugin in connectors} == {"source", "sink"}
    assert "org.apache.kafka.connect.file.FileStreamSinkConnector" in [plugin["class"] for plugin in connectors]
    everything = api.call("GET", "/connector-plugins?connectorsOnly=false")[1]
    assert {"converter", "header_converter", "transformation"} <= {plugin["type"] for plugin in everything}
    assert "config_provider" not in {plugin["type"] for plugin in everything}


def test_the_worker_answers_before_it_is_ready_and_a_request_that_takes_too_long_is_told() -> None:
    setup = Setup()
    setup.herder.start()
    server = serve(setup.herder, timeout_s=0.1)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.ports[0]}", timeout=20) as client:
            root = client.get("/")
            assert root.json() == {"version": "4.3.0", "commit": "unknown", "kafka_cluster_id": None}
            health = client.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "starting")
            assert client.get("/connectors").json() == []
            late = client.post("/connectors", json={"name": "a", "config": {"connector.class": SOURCE}})
            assert late.status_code == 500
            assert late.json()["message"].startswith("Request timed out")
            setup.serve()
            await_true(lambda: client.get("/health").status_code == 200)
            assert client.get("/").json()["kafka_cluster_id"] == "cluster"
    finally:
        server.stop()
        setup.herder.stop(10)


def test_random_bytes_never_make_the_worker_fail(api: Api) -> None:
    api.create("a")
    bodies = ["null", "1", '"x"', "[[]]", '{"config": null}', '{"name": {}, "config": {}}', json.dumps({"a": "\ud800"})]
    for body in bodies:
        for method, path in [("POST", "/connectors"), ("PUT", "/connectors/a/config")]:
            answer = api.http.request(
                method, path, content=body.encode("utf-8", "replace"), headers={"content-type": "application/json"}
            )
            assert answer.status_code in (200, 400), (method, path, body, answer.text)


def test_a_port_in_use_is_an_error_with_a_way_out() -> None:
    (taken,) = open_listeners([Listener("127.0.0.1", 0)])
    with (
        taken,
        pytest.raises(ConnectException, match=r"cannot listen on http://127\.0\.0\.1:.*choose another in listeners"),
    ):
        open_listeners([Listener("127.0.0.1", int(taken.getsockname()[1]))])


@pytest.mark.parametrize("text", ["ftp://:8083", "localhost:8083", "http://localhost", "http://x:99999", "8083"])
def test_listeners_that_cannot_be_used_are_refused(text: str) -> None:
    with pytest.raises(ConfigException, match="listeners"):
        Listener.parse(text)
