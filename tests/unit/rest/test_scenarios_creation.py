"""Creating, changing and deleting connectors, with a probe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testkit.connectors.probes import BOARD, ProbeSource
from testkit.doubles.control_plane import SINK, SOURCE, Setup
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.errors import ConnectException
from penstock.plugins import Plugins
from penstock.validation.validator import ConnectorValidator

C = "/connectors/a"


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def create(api: Api, state: str, name: str = "a", cls: str = SOURCE) -> int:
    """Creates a connector in a state."""
    body = {"name": name, "config": {"connector.class": cls, "topics": "t"}, "initial_state": state}
    return api.call("POST", "/connectors", body)[0]


def test_a_connector_created_stopped_has_no_tasks_until_it_is_resumed(api: Api) -> None:
    assert create(api, "STOPPED") == 201
    api.setup.await_state("a", "STOPPED", [])
    assert BOARD.of("a") == []
    api.call("PUT", f"{C}/resume")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])


def test_a_name_can_be_used_once(api: Api) -> None:
    assert api.create("a")[0] == 201
    assert api.create("a") == (409, {"error_code": 409, "message": "Connector a already exists"})


def test_a_new_configuration_restarts_the_task_with_it(api: Api) -> None:
    api.create("a", file="old")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("PUT", f"{C}/config", {"connector.class": SOURCE, "file": "new"})[0] == 200
    await_true(lambda: len(api.setup.tasks) == 2)
    assert api.setup.tasks[1].request.connector_config["file"] == "new"
    assert BOARD.instances["a"][1].props["file"] == "new"


def test_a_patch_changes_adds_and_removes_settings_and_the_tasks_follow(api: Api) -> None:
    api.create("a", one="1", two="2", **{"tasks.max": "1"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    status, info = api.call("PATCH", f"{C}/config", {"one": "uno", "two": None, "three": "3", "tasks.max": 3})
    assert status == 200
    assert info["config"] == {"connector.class": SOURCE, "name": "a", "one": "uno", "three": "3", "tasks.max": "3"}
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 3)
    assert api.error("PATCH", "/connectors/x/config", {"a": "b"}) == (404, "Connector x not found")
    assert api.error("PATCH", f"{C}/config", {"tasks": {"max": 1}})[0] == 400


@pytest.mark.parametrize("state", ["PAUSED", "paused"])
def test_a_connector_created_paused_is_not_asked_for_tasks(api: Api, state: str) -> None:
    assert create(api, state) == 201
    api.setup.await_state("a", "PAUSED", [])
    assert BOARD.of("a") == []
    api.call("PUT", f"{C}/resume")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert BOARD.of("a") == ["start", "task_configs"]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_connector_created_resting_can_be_deleted(api: Api, state: str) -> None:
    create(api, state)
    assert api.call("DELETE", C) == (204, None)
    assert api.call("GET", "/connectors") == (200, [])
    assert BOARD.of("a") == []


def test_the_status_has_as_many_tasks_as_there_are(api: Api) -> None:
    api.create("a", **{"tasks.max": "2"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    for number in (3, 2, 1, 4):
        api.call("PATCH", f"{C}/config", {"tasks.max": number})
        api.setup.await_state("a", "RUNNING", ["RUNNING"] * number)
        assert [task["id"] for task in api.call("GET", f"{C}/status")[1]["tasks"]] == list(range(number))


def test_too_many_tasks_fail_the_connector_and_leave_running_tasks_alone(api: Api) -> None:
    api.create("a", **{"tasks.max": "2"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    BOARD.configs["a"] = [{}, {}, {}]
    status, message = api.error("PUT", f"{C}/config", {"connector.class": SOURCE, "tasks.max": "2"})
    assert status == 500
    assert "tasks.max" in message
    api.setup.await_state("a", "FAILED", ["RUNNING"] * 2)
    assert "tasks.max" in api.call("GET", f"{C}/status")[1]["connector"]["trace"]
    off = {"connector.class": SOURCE, "tasks.max": "2", "tasks.max.enforce": "false"}
    assert api.call("PUT", f"{C}/config", off)[0] == 200
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 3)


def test_a_deleted_connector_is_forgotten(api: Api) -> None:
    api.create("a")
    assert api.call("DELETE", C) == (204, None)
    assert api.call("GET", "/connectors") == (200, [])
    assert api.error("GET", C) == (404, "Connector a not found")
    assert api.error("GET", f"{C}/status") == (404, "No status found for connector a")
    assert api.error("DELETE", C) == (404, "Connector a not found")


@pytest.mark.parametrize(
    ("connector", "converter", "transform"),
    [
        (
            "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "org.apache.kafka.connect.json.JsonConverter",
            "org.apache.kafka.connect.transforms.HoistField$Value",
        ),
        ("FileStreamSourceConnector", "JsonConverter", "HoistField$Value"),
        ("FileStreamSource", "Json", "org.apache.kafka.connect.transforms.HoistField.Value"),
    ],
)
def test_classes_are_found_by_full_simple_and_short_names(connector: str, converter: str, transform: str) -> None:
    config = {
        "name": "a",
        "connector.class": connector,
        "topic": "t",
        "value.converter": converter,
        "transforms": "x",
        "transforms.x.type": transform,
        "transforms.x.field": "line",
    }
    infos = ConnectorValidator(Plugins()).infos(config, config)
    assert [finding.name for finding in infos.findings if finding.value.error_messages] == []
    shown = {finding.name: finding.to_json()["value"] for finding in infos.findings}
    assert shown["value.converter"]["value"] == converter  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("", "Invalid value  for configuration name: String may not be empty"),
        ("  ", "Invalid value  for configuration name: String may not be empty"),
        ("a\nb", "String may not contain control sequences but had the following ASCII chars: 10"),
    ],
)
def test_names_that_java_refuses_are_refused(name: str, refusal: str) -> None:
    with serving() as api:
        api.setup.validator.strict = True
        status, message = api.error("POST", "/connectors", {"name": name, "config": {"connector.class": SINK}})
        assert status == 400
        assert refusal in message


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a b", "a%20b"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("..", "%2E%2E"),
        ("a:b_c.d", "a%3Ab_c.d"),
        ("x/y", "x%2Fy"),
        ("50%", "50%25"),
        ("😀", "%F0%9F%98%80"),
    ],
)
def test_escaped_paths_reach_the_connector(api: Api, name: str, path: str) -> None:
    assert api.create(name)[0] == 201
    assert list(api.setup.herder.connectors()) == [name]
    url = api.http.base_url.copy_with(raw_path=f"/connectors/{path}".encode())
    found = api.http.send(api.http.build_request("GET", url))
    assert found.json()["name"] == name


def test_health_is_not_healthy_while_the_worker_starts() -> None:
    from tests.unit.rest.api_client import serve

    setup = Setup()
    setup.herder.start()
    server = serve(setup.herder)
    try:
        import httpx

        with httpx.Client(base_url=f"http://127.0.0.1:{server.ports[0]}") as client:
            starting = client.get("/health")
            assert (starting.status_code, starting.json()["status"]) == (503, "starting")
            assert starting.json()["message"]
            setup.serve()
            await_true(lambda: client.get("/health").json()["status"] == "healthy")
            assert client.get("/health").status_code == 200
    finally:
        server.stop()
        setup.herder.stop(10)


# ------------------------------------------------------------------ secrets
def test_secrets_are_hidden_and_taken_back_as_they_were_shown(api: Api) -> None:
    created = api.create("a", user="u", password="hunter2")[1]
    assert created["config"]["password"] == "[hidden]"
    for path in ("", "/config", "/tasks"):
        assert "hunter2" not in api.http.get(f"{C}{path}").text
    assert "hunter2" not in api.http.get("/connectors?expand=info&expand=status").text
    shown = api.call("GET", f"{C}/config")[1]
    assert shown["password"] == "[hidden]"
    assert api.call("PUT", f"{C}/config", {**shown, "user": "v"})[0] == 200
    assert BOARD.instances["a"][1].props["password"] == "hunter2"
    assert BOARD.instances["a"][1].props["user"] == "v"
    assert api.call("PATCH", f"{C}/config", {"password": "[hidden]", "user": "w"})[0] == 200
    assert BOARD.instances["a"][2].props["password"] == "hunter2"
    assert api.call("PATCH", f"{C}/config", {"password": "new"})[0] == 200
    assert BOARD.instances["a"][3].props["password"] == "new"


def test_a_mask_where_there_is_no_secret_is_not_taken_for_one(api: Api) -> None:
    words = "stands for the value that a connector has already, and this one has none for password: give the value"
    for method, path, body in [
        ("POST", "/connectors", {"name": "a", "config": {"connector.class": SOURCE, "password": "[hidden]"}}),
        ("PUT", f"{C}/config", {"connector.class": SOURCE, "password": "[hidden]"}),
    ]:
        status, message = api.error(method, path, body)
        assert status == 400
        assert words in message
    assert api.call("GET", "/connectors") == (200, [])
    api.create("a")
    assert api.error("PATCH", f"{C}/config", {"password": "[hidden]"})[0] == 400
    assert "password" not in api.call("GET", f"{C}/config")[1]


def test_a_reference_to_a_secret_is_shown_as_it_is(api: Api) -> None:
    api.create("a", password="${env:SECRET}")
    assert api.call("GET", f"{C}/config")[1]["password"] == "${env:SECRET}"
    assert "hunter2" not in api.http.get(f"{C}/tasks").text


def test_passwords_of_clients_are_secrets_to_the_validator() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    config = {
        "name": "a",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "producer.override.sasl.jaas.config": jaas,
        "producer.override.linger.ms": "5",
    }
    validator = ConnectorValidator(Plugins())
    assert validator(config, config).secrets == {"producer.override.sasl.jaas.config"}
    found = {finding.name: finding for finding in validator.infos(config, config).findings}
    assert 'password="b"' not in str(found["producer.override.sasl.jaas.config"].to_json())
    assert found["producer.override.linger.ms"].to_json()["value"]["value"] == "5"  # type: ignore[index]


# ------------------------------------------------------------------ limits
def test_bodies_that_are_too_large_are_refused_unread(api: Api) -> None:
    answer = api.http.post("/connectors", content=b"x" * (9 << 20), headers={"content-type": "application/json"})
    assert answer.status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * (1 << 20)

    assert (
        api.http.post("/connectors", content=endless(), headers={"content-type": "application/json"}).status_code == 413
    )


def test_the_workers_own_files_are_shown_by_their_settings() -> None:
    with serving(own_paths={"/var/penstock/off": "offset.storage.file.filename"}) as api:
        BOARD.fail["a", "start"] = ConnectException("The offsets file /var/penstock/off is locked")
        status, message = api.error("POST", "/connectors", {"name": "a", "config": {"connector.class": SOURCE}})
    assert status == 500
    assert message.endswith("The offsets file [offset.storage.file.filename] is locked")
    assert "Traceback" not in message
    assert ".py" not in message


@pytest.mark.parametrize("kind", ["raises", "is none"])
def test_a_connector_that_cannot_say_its_settings_is_a_bad_request_everywhere(
    kind: str, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config(self: object) -> object:
        if kind == "raises":
            raise RuntimeError("no licence")
        return None

    monkeypatch.setattr(ProbeSource, "config", config)
    api.setup.validator.strict = True
    given = {"name": "a", "connector.class": SOURCE}
    plugin = f"/connector-plugins/{SOURCE}/config"

    refused = [
        api.error("POST", "/connectors", {"name": "a", "config": given}),
        api.error("PUT", "/connectors/a/config", given),
        api.error("PUT", f"{plugin}/validate", given),
        api.error("GET", plugin),
    ]

    assert [status for status, _ in refused] == [400] * 4
    assert all("RuntimeError: no licence" in told or "must return a ConfigDef" in told for _, told in refused)
    assert all(f"Invalid value {SOURCE} for configuration connector.class: " in told for _, told in refused[:3])
    assert api.call("GET", "/connectors") == (200, [])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a+b;c,d:e&f='g'@h", "a+b;c,d:e&f='g'@h"),
        ("$!()*~-._", "$!()*~-._"),
        ("a b", "a%20b"),
        ("a/b%20", "a%2Fb%2520"),
        ('"#<>?[]^`|', "%22%23%3C%3E%3F%5B%5D%5E%60%7C"),
        ("Größe 日本", "Gr%C3%B6%C3%9Fe%20%E6%97%A5%E6%9C%AC"),
        ("\u00a0a\u3000", "%C2%A0a%E3%80%80"),
    ],
)
def test_the_location_of_a_new_connector_is_written_as_java_writes_it(api: Api, name: str, path: str) -> None:
    body = {"name": f" {name}\t", "config": {"connector.class": SOURCE}}

    made = api.http.post("/connectors", json=body)

    assert made.status_code == 201
    assert made.json()["name"] == name
    assert made.headers["location"].endswith(f"/connectors/{path}")
    assert api.call("GET", f"/connectors/{path}")[1]["name"] == name
