"""Secrets, and what config providers gave, in what a worker answers."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
from testkit.doubles.control_plane import Setup, running
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.api import ConnectRecord, SourceConnector, SourceTask, Transformation
from penstock.config import Config, ConfigDef, ConfigType
from penstock.config.providers import ConfigTransformer, EnvVarConfigProvider
from penstock.errors import ConfigException, ConnectException
from penstock.model.cluster_config import ClusterConfig, ConfigRecord, connector_entries, fold
from penstock.model.payloads import PreviewRequest
from penstock.stores.config import FileConnectorStore
from penstock.validation.config_infos import Redaction, is_secret_name, provided_values
from penstock.worker.task.slot import complete

MARK = "hush-7c1e55d0"
HERE = "tests.unit.hostile.test_secrets"
KEEPER, OPEN, SEAL = f"{HERE}:Keeper", f"{HERE}:Open", f"{HERE}:Seal"


R = TypeVar("R", bound=ConnectRecord)


class Task(SourceTask):
    def version(self) -> str:
        return "1"

    def start(self, props: Mapping[str, str]) -> None: ...

    def poll(self) -> None: ...

    def stop(self) -> None: ...


class Open(SourceConnector):
    """Knows no secret, and says what it was given in whichever way a test wants."""

    says: Callable[[str], str] = staticmethod(str)
    fails: str = ""

    def version(self) -> str:
        return "1"

    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)
        if type(self).fails == "start":
            raise ConnectException(f"cannot start: {type(self).says(props['word'])}")

    def stop(self) -> None: ...

    def task_class(self) -> type[Task]:
        return Task

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        given = self.props
        pin = given.get("pin", "")
        return [{"other": pin, "url": f"db://me:{pin}@host", "word": given.get("word", ""), "name": "x"}]

    def config(self) -> ConfigDef:
        return (
            ConfigDef()
            .define("word", ConfigType.STRING, default="")
            .define("words", ConfigType.LIST, default="")
            .define("count", ConfigType.INT, default=1)
        )

    def validate(self, props: Mapping[str, str]) -> Config:
        found = super().validate(props)
        if type(self).fails == "validate":
            next(one for one in found.config_values if one.name == "word").add_error_message(
                f"bad: {type(self).says(props['word'])}"
            )
        if type(self).fails == "refuse":
            raise ConfigException(f"no: {type(self).says(props['word'])}")
        return found


class Keeper(Open):
    """Has a secret whose name says nothing."""

    def config(self) -> ConfigDef:
        return super().config().define("pin", ConfigType.PASSWORD, default="")


class Seal(Transformation):
    """A transform with such a secret."""

    def config(self) -> ConfigDef:
        return ConfigDef().define("stamp", ConfigType.PASSWORD, default="")

    def apply(self, record: R) -> R | None:
        return record


@pytest.fixture
def api() -> Iterator[Api]:
    Open.says, Open.fails = str, ""
    with serving() as made:
        made.setup.validator.strict = True
        yield made


def answers(api: Api, name: str, config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """All that is told of a connector, by what was asked."""
    asked: dict[str, tuple[str, str, object]] = {
        "config": ("GET", f"/connectors/{name}/config", None),
        "connector": ("GET", f"/connectors/{name}", None),
        "all": ("GET", "/connectors?expand=info&expand=status", None),
        "status": ("GET", f"/connectors/{name}/status", None),
        "tasks": ("GET", f"/connectors/{name}/tasks", None),
        "tasks-config": ("GET", f"/connectors/{name}/tasks-config", None),
        "explain": ("GET", f"/connectors/{name}/explain", None),
        "metrics": ("GET", "/metrics", None),
        "health": ("GET", "/health", None),
    }
    if config is not None:
        asked["put"] = ("PUT", f"/connectors/{name}/config", config)
        plugin = quote(str(config["connector.class"]), safe="")
        asked["validate"] = ("PUT", f"/connector-plugins/{plugin}/config/validate", {"name": name, **config})
        asked["preview"] = ("POST", f"/connector-plugins/{plugin}/preview", {"config": config})
    found = {}
    for what, (method, path, body) in asked.items():
        answer = api.http.request(method, path, json=body)
        assert answer.status_code < 500, (what, answer.text)
        found[what] = answer.text
    return found


def provides(setup: Setup, **values: str) -> None:
    """What the provider `env` gives from now on."""
    parts = setup.worker._parts
    setup.worker._parts = replace(parts, transformer=ConfigTransformer({"env": EnvVarConfigProvider(values)}))


def leaks(found: Mapping[str, str], *secrets: str) -> dict[str, str]:
    """The answers that tell a secret, with what stands around it."""
    told = {}
    for what, text in found.items():
        for secret in secrets:
            at = text.lower().find(secret.lower())
            if at >= 0:
                told[what] = text[max(0, at - 80) : at + 60]
    return told


JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARK}";'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("admin.override.sasl.jaas.config", JAAS),
        ("consumer.override.sasl.jaas.config", JAAS),
        ("producer.override.sasl.jaas.config", JAAS),
        ("admin.override.ssl.key.password", MARK),
        ("consumer.override.ssl.keystore.key", MARK),
        ("producer.override.ssl.truststore.certificates", MARK),
        ("admin.override.sasl.password", MARK),
        ("consumer.override.sasl.password", MARK),
        ("producer.override.sasl.password", MARK),
        ("consumer.override.sasl.oauthbearer.client.secret", MARK),
        ("admin.override.sasl.oauthbearer.client.credentials.client.secret", MARK),
        ("producer.override.sasl.oauthbearer.assertion.private.key.passphrase", MARK),
        ("consumer.override.ssl.key.pem", MARK),
        ("producer.override.no.such.password", MARK),
        ("transforms.t.secret", MARK),
        ("transforms.t.api.key", MARK),
        ("predicates.p.password", MARK),
        ("value.converter.basic.auth.user.info", f"me:{MARK}"),
        ("key.converter.bearer.auth.token", MARK),
        ("header.converter.secret", MARK),
        ("aws.secret.access.key", MARK),
        ("apiKey", MARK),
        ("DB_PASSWORD", MARK),
        ("my.credentials", MARK),
    ],
)
def test_a_secret_by_its_name_is_in_no_answer_whoever_reads_it(api: Api, name: str, value: str) -> None:
    config = {"connector.class": OPEN, name: value, "word": "shown"}
    status, body = api.call("PUT", "/connectors/c/config", config)
    assert status == 201, body
    api.setup.await_state("c", "RUNNING", ["RUNNING"])
    found = answers(api, "c", config)
    assert leaks(found, MARK) == {}
    assert json.loads(found["config"])[name] == "[hidden]"
    assert json.loads(found["config"])["word"] == "shown"
    # What is sent back as it was shown stays what it was.
    assert api.call("PUT", "/connectors/c/config", json.loads(found["config"]))[0] == 200
    assert api.setup.herder.plane.snapshot.connectors["c"].config[name] == value
    assert api.call("PATCH", "/connectors/c/config", {name: "[hidden]", "word": "other"})[0] == 200
    assert api.setup.herder.plane.snapshot.connectors["c"].config[name] == value


def stored(api: Api, name: str) -> Mapping[str, str | None]:
    return api.setup.herder.plane.snapshot.connectors[name].config


def changes() -> list[tuple[str, str, Any]]:
    """Ways to change a configuration after which nothing defines what was a secret."""
    there: dict[str, Any] = {"connector.class": KEEPER, "pin": "[hidden]"}
    sealed: dict[str, Any] = {**there, "transforms": "t", "transforms.t.type": SEAL, "transforms.t.stamp": "[hidden]"}
    return [
        ("PATCH another class", "PATCH", {"connector.class": OPEN}),
        ("PUT another class", "PUT", {**sealed, "connector.class": OPEN}),
        ("PATCH no transforms", "PATCH", {"transforms": None, "transforms.t.type": None}),
        ("PUT no transforms", "PUT", {**there, "transforms.t.stamp": "[hidden]"}),
        ("PATCH another alias", "PATCH", {"transforms": "u", "transforms.u.type": SEAL}),
        ("PATCH all", "PATCH", {"connector.class": OPEN, "transforms": None}),
        ("PUT in the clear", "PUT", {"connector.class": OPEN, "pin": MARK, "transforms.t.stamp": MARK}),
    ]


@pytest.mark.parametrize(("method", "body"), [one[1:] for one in changes()], ids=[one[0] for one in changes()])
def test_what_was_a_secret_once_stays_one(api: Api, method: str, body: dict[str, Any]) -> None:
    config = {
        "connector.class": KEEPER,
        "pin": MARK,
        "transforms": "t",
        "transforms.t.type": SEAL,
        "transforms.t.stamp": MARK,
    }
    assert api.call("PUT", "/connectors/c/config", config)[0] == 201
    status, answer = api.call(method, "/connectors/c/config", body)
    assert status == 200, answer
    for name in ("pin", "transforms.t.stamp"):
        assert stored(api, "c")[name] == MARK
    assert leaks({"answer": json.dumps(answer), **answers(api, "c")}, MARK) == {}
    shown = api.call("GET", "/connectors/c/config")[1]
    assert shown["pin"] == shown["transforms.t.stamp"] == "[hidden]"
    # And once more, from what was shown: through another class, and without the setting for a while.
    assert api.call("PUT", "/connectors/c/config", shown)[0] == 200
    assert api.call("PATCH", "/connectors/c/config", {"pin": None, "connector.class": OPEN})[0] == 200
    assert api.call("PATCH", "/connectors/c/config", {"pin": f"{MARK}-2"})[0] == 200
    assert stored(api, "c")["transforms.t.stamp"] == MARK
    assert leaks(answers(api, "c"), MARK) == {}


def test_a_connector_of_the_same_name_made_anew_has_no_such_past(api: Api) -> None:
    assert api.call("PUT", "/connectors/c/config", {"connector.class": KEEPER, "pin": MARK})[0] == 201
    assert api.call("DELETE", "/connectors/c")[0] == 204
    assert api.call("PUT", "/connectors/c/config", {"connector.class": OPEN, "pin": "shown"})[0] == 201
    assert api.call("GET", "/connectors/c/config")[1]["pin"] == "shown"


def test_what_stands_for_a_secret_is_refused_where_there_is_none(api: Api) -> None:
    for name in ("my.password", "admin.override.sasl.password", "transforms.t.secret"):
        status, message = api.error("PUT", "/connectors/c/config", {"connector.class": OPEN, name: "[hidden]"})
        assert status == 400
        assert name in message


def test_what_was_a_secret_stays_one_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "connectors.json"
    for turn in range(3):
        store = FileConnectorStore(path)
        store.start()
        with running(store) as setup:
            setup.validator.strict = True
            if turn == 0:
                put(setup, {"connector.class": KEEPER, "pin": MARK})
                put(setup, {"connector.class": OPEN, "pin": "[hidden]"})
            if turn == 1:
                put(setup, {"connector.class": OPEN, "pin": "[hidden]", "word": "2"})
            setup.await_state("c", "RUNNING", ["RUNNING"])
            assert setup.herder.connectors()["c"].config["pin"] == "[hidden]"
            assert setup.herder.plane.snapshot.connectors["c"].config["pin"] == MARK
        store.stop()


def put(setup: Setup, config: Mapping[str, str]) -> None:
    setup.herder.put_connector("c", config, replace=True).result(20)


def test_other_workers_read_it_from_the_topic_and_keep_it_where_a_java_worker_leaves_it_out() -> None:
    def folded(before: ClusterConfig, *entries: tuple[str, bytes | None]) -> ClusterConfig:
        return fold(before, [ConfigRecord(before.offset + at, *entry) for at, entry in enumerate(entries, 1)])[0]

    first = folded(ClusterConfig(), *connector_entries("c", {"pin": MARK}, secrets={"pin"}))
    assert first.connectors["c"].secrets == {"pin"}
    again = folded(first, *connector_entries("c", {"pin": MARK, "other": "1"}))
    assert again.connectors["c"].secrets == {"pin"}
    assert folded(folded(again, ("connector-c", None)), *connector_entries("c", {})).connectors["c"].secrets == set()
    odd = b'{"properties":{},"secrets":{"a":1}}'
    assert folded(ClusterConfig(), ("connector-c", odd)).connectors["c"].secrets == set()


def test_tasks_that_get_a_secret_under_another_name_do_not_show_it(api: Api) -> None:
    assert api.call("PUT", "/connectors/c/config", {"connector.class": KEEPER, "pin": MARK})[0] == 201
    api.setup.await_state("c", "RUNNING", ["RUNNING"])
    assert api.setup.tasks[-1].request.task_config["url"] == f"db://me:{MARK}@host"
    assert leaks(answers(api, "c"), MARK) == {}
    assert api.call("GET", "/connectors/c/tasks")[1][0]["config"]["url"] == "db://me:[hidden]@host"


def test_tasks_that_get_what_a_provider_gave_are_stored_with_the_placeholder(api: Api) -> None:
    provides(api.setup, SECRET=MARK)
    assert api.call("PUT", "/connectors/c/config", {"connector.class": KEEPER, "pin": "${env:SECRET}"})[0] == 201
    api.setup.await_state("c", "RUNNING", ["RUNNING"])
    assert api.setup.tasks[-1].request.task_config["url"] == f"db://me:{MARK}@host"
    (task,) = api.setup.herder.plane.snapshot.connectors["c"].tasks
    assert task["other"] == "${env:SECRET}"
    assert task["url"] == "db://me:${env:SECRET}@host"
    assert leaks(answers(api, "c"), MARK) == {}


def test_a_short_value_of_a_task_is_not_taken_for_one_of_a_provider() -> None:
    (task,) = complete(
        [{"part": "1", "n": "1"}], task_class=Task, sink=False, raw={"n": "${env:N}"}, resolved={"n": "1"}
    )
    assert task["part"] == "1"
    assert task["n"] == "${env:N}"


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "title case": str.title,
    "quoted": repr,
    "as JSON": json.dumps,
    "in a URL": lambda text: quote(text, safe=""),
    "as base64": lambda text: base64.b64encode(text.encode()).decode(),
    "as hexadecimal": lambda text: text.encode().hex(),
    "cut": lambda text: f"{text[:-3]}...",
    "its end": lambda text: f"...{text[4:]}",
    "in another word": lambda text: f"x{text}x",
    "in letters": lambda text: f"url=db://me:{text}@host/a?b",
    "split": lambda text: " and ".join(text.split(",")),
}
VALUE = 'Kenn-wort,"zwei",drei/vier+5'


def pieces(text: str) -> list[str]:
    """What must not be read in an answer: the words of a value that nothing else says."""
    return [word for word in ("Kenn-wort", "zwei", "drei", "vier") if word.lower() in text.lower()]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("fails", ["validate", "refuse", "start"])
def test_what_a_provider_gave_is_in_no_error_whatever_was_made_of_it(
    api: Api, fails: str, form: Callable[[str], str]
) -> None:
    provides(api.setup, SECRET=VALUE)
    Open.says, Open.fails = staticmethod(form), fails
    config = {"connector.class": OPEN, "word": "${env:SECRET}"}
    status, body = api.call("PUT", "/connectors/c/config", config)
    assert status in (400, 500), body
    plugin = quote(OPEN, safe="")
    _, validated = api.call("PUT", f"/connector-plugins/{plugin}/config/validate", {"name": "c", **config})
    found = {"put": json.dumps(body), "validate": json.dumps(validated)}
    if fails == "start":
        found |= answers(api, "c")
        assert "cannot start" in found["status"]
    made = form(VALUE)
    told = {what: pieces(text) + [made] * (made in text) for what, text in found.items()}
    assert not any(told.values()), (told, found)
    assert "${env:SECRET}" in found["put"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_the_trace_of_a_task_has_the_placeholder(api: Api, form: Callable[[str], str]) -> None:
    provides(api.setup, SECRET=VALUE)
    api.setup.task_error = ConnectException(f"no login with {form(VALUE)}")
    config = {"connector.class": KEEPER, "word": "${env:SECRET}", "pin": "pin-0815"}
    assert api.call("PUT", "/connectors/c/config", config)[0] == 201
    api.setup.await_state("c", "RUNNING", ["FAILED"])
    api.call("POST", "/connectors/c/tasks/0/restart")
    api.setup.await_state("c", "RUNNING", ["FAILED"])
    api.setup.task_error = RuntimeError("what about pin-0815?")
    api.call("POST", "/connectors/c/restart?includeTasks=true")
    found = answers(api, "c")
    assert not any(map(pieces, found.values())), found
    await_true(lambda: "what about [hidden]?" in answers(api, "c")["status"])
    assert leaks(answers(api, "c"), "0815") == {}


def test_validation_shows_the_placeholder_where_a_value_was_taken(api: Api) -> None:
    provides(api.setup, SECRET=MARK, N="41", CLASS=OPEN, LIST=f"{MARK},b", CONVERTER="StringConverter")
    config = {
        "name": "c",
        "connector.class": OPEN,
        "word": "${env:SECRET}",
        "words": "${env:LIST}",
        "count": "${env:N}",
        "tasks.max": "${env:N}",
        "value.converter": "${env:CONVERTER}",
        "value.converter.converter.encoding": "x${env:N}",
        "producer.override.client.id": "${env:SECRET}",
        "producer.override.acks": "${env:N}",
        "transforms": "t",
        "transforms.t.type": "HoistField$Value",
        "transforms.t.field": "f-${env:SECRET}",
        "errors.tolerance": "${env:SECRET}",
    }
    plugin = quote(OPEN, safe="")
    status, answer = api.call("PUT", f"/connector-plugins/{plugin}/config/validate", config)
    assert status == 200
    shown = {one["value"]["name"]: one["value"]["value"] for one in answer["configs"]}
    for name, text in config.items():
        if "${" in text:
            assert shown[name] == text, name
    assert leaks({"validate": json.dumps(answer)}, MARK, '"41"', " 41 ") == {}
    assert any("${env:N}" in error for one in answer["configs"] for error in one["value"]["errors"])


def test_a_class_that_a_provider_names_is_not_told_either(api: Api) -> None:
    provides(api.setup, CLASS=f"no.such.{MARK}")
    status, body = api.call("PUT", "/connectors/c/config", {"connector.class": "${env:CLASS}"})
    assert status == 400
    assert leaks({"put": json.dumps(body)}, MARK) == {}


def test_a_preview_tells_neither_secrets_nor_what_a_provider_gave(api: Api) -> None:
    provides(api.setup, SECRET=MARK, N="4711")

    def shown(request: PreviewRequest) -> dict[str, object]:
        word = request.config["word"]
        return {"type": "source", "records": [{"value": {word: [word.upper(), 4711, b"x".hex()]}, "key": "pin-0815"}]}

    api.setup.worker._parts = replace(api.setup.worker._parts, preview=shown)
    config = {"connector.class": KEEPER, "word": "${env:SECRET}", "count": "${env:N}", "pin": "pin-0815"}
    status, body = api.call("POST", f"/connector-plugins/{quote(KEEPER, safe='')}/preview", {"config": config})
    assert status == 200, body
    assert leaks({"preview": json.dumps(body)}, MARK, "4711", "0815") == {}
    assert body["records"] == [{"value": {"${env:SECRET}": ["${env:SECRET}", "${env:N}", "78"]}, "key": "[hidden]"}]


def test_errors_of_a_connector_do_not_tell_its_passwords(api: Api) -> None:
    Open.fails, Open.says = "start", staticmethod(lambda text: f"login as me with {MARK} failed")
    status, body = api.call("PUT", "/connectors/c/config", {"connector.class": KEEPER, "pin": MARK})
    assert status == 500
    assert leaks({"put": json.dumps(body), **answers(api, "c")}, MARK) == {}


def test_a_word_that_is_part_of_another_stays() -> None:
    redaction = Redaction({"two": "${env:N}", "4": "${env:F}"})
    assert redaction.text("Invalid value TWO: twofold, 44, 4.") == "Invalid value ${env:N}: twofold, 44, ${env:F}."
    assert Redaction({}, ["abc", ""]).text("abc") == "abc"
    around = Redaction(provided_values({"a": "orders-${env:E}"}, {"a": "orders-berlin"}))
    assert around.text("orders-berlin, orders, Berlin") == "orders-${env:E}, orders, ${env:E}"
    assert not Redaction({"": "x", " ": "y"})


def test_placeholders_next_to_each_other_are_told_together() -> None:
    given = {"a": "<${env:A}${env:B}>-${env:C}", "b": "${env:D}", "c": None, "d": "plain"}
    found = provided_values(given, {"a": "<onetwo>-three", "b": "", "c": None, "d": "plain"})
    assert found == {
        "<onetwo>-three": "<${env:A}${env:B}>-${env:C}",
        "onetwo": "${env:A}${env:B}",
        "three": "${env:C}",
    }


@pytest.mark.parametrize("kind", ["message", "value", "values", "placeholders"])
def test_what_is_hidden_in_a_text_costs_time_by_its_length(kind: str) -> None:
    def run(size: int) -> float:
        text = "a" * 50
        values = {"x" * 50: "${env:X}"}
        given: dict[str, str | None] = {}
        resolved: dict[str, str | None] = {}
        if kind == "message":
            text = "ab cd" * size
        elif kind == "value":
            values = {"ab cd" * size: "${env:X}"}
        elif kind == "values":
            values = {f"value-{n}": f"${{env:{n}}}" for n in range(size // 20)}
        else:
            given, resolved = {"a": "${env:X}a" * (size // 20)}, {"a": "aaba" * (size // 20)}
        began = time.thread_time()
        Redaction({**values, **provided_values(given, resolved)}).text(text)
        return time.thread_time() - began

    run(100)
    small, large = (min(run(size) for _ in range(3)) for size in (5_000, 20_000))
    assert large < max(0.05, 14 * small), (small, large)


@pytest.mark.parametrize(
    "name",
    [
        "topics",
        "key.converter",
        "transforms.maskPassword.type",
        "transforms.token.fields",
        "predicates.secret.pattern",
        "producer.override.acks",
        "consumer.override.sasl.oauthbearer.token.endpoint.url",
        "value.converter.basic.auth.credentials.source",
        "value.converter.schema.registry.ssl.keystore.location",
        "primary.key",
        "topic.creation.passwords.partitions",
        "max.tokens",
    ],
)
def test_what_only_sounds_like_a_secret_is_shown(name: str) -> None:
    assert not is_secret_name(name)
