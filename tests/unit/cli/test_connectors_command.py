"""``penstock connectors`` and ``penstock plugins`` against a worker without Kafka and Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.rest.api_client import Api, serving

from penstock.api import TopicPartition
from penstock.cli.connectors import EXIT_MISSING, EXIT_REFUSED, EXIT_UNREACHABLE
from penstock.cli.main import main
from penstock.errors import ConnectException
from penstock.testing.control_plane import SINK, SOURCE
from penstock.testing.probes import BOARD


class Shell:
    """Runs commands against one worker."""

    def __init__(self, api: Api, directory: Path) -> None:
        self.api = api
        self.directory = directory

    def run(self, *words: str, stdin: str | None = None) -> Result:
        url = str(self.api.http.base_url)
        return CliRunner().invoke(main, ["connectors", *words], input=stdin, env={"PENSTOCK_URL": url})

    def ok(self, *words: str, stdin: str | None = None) -> str:
        done = self.run(*words, stdin=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json"))

    def file(self, content: str, name: str = "c.properties") -> str:
        path = self.directory / name
        path.write_text(content)
        return str(path)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with serving() as api:
        yield Shell(api, tmp_path)


def test_a_connector_from_its_file_to_its_end(shell: Shell) -> None:
    file = shell.file(f"name=a\nconnector.class={SOURCE}\ntasks.max=2\n")
    assert "Created a (source)" in shell.ok("create", file, "--wait")
    listed = shell.ok("list")
    assert "RUNNING" in listed
    assert "2/2" in listed
    assert shell.json("get", "a")["config"]["tasks.max"] == "2"
    assert "tasks.max" in shell.ok("get", "a")
    assert [task["state"] for task in shell.json("status", "a")["tasks"]] == ["RUNNING"] * 2
    assert "task 1" in shell.ok("status", "a")
    for verb, state, tasks in [("pause", "PAUSED", 2), ("resume", "RUNNING", 2), ("stop", "STOPPED", 0)]:
        shell.ok(verb, "a")
        shell.api.setup.await_state("a", state, [state] * tasks)
    shell.ok("resume", "a")
    shell.api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    assert shell.json("restart", "a", "--include-tasks", "--only-failed")["connector"]["state"] == "RUNNING"
    shell.ok("restart", "a")
    shell.ok("restart", "a", "--task", "1")
    assert "Deleted a" in shell.ok("delete", "a")
    assert "There are no connectors" in shell.ok("list")
    assert shell.json("list") == {}


def test_a_file_can_be_json_or_standard_input_and_have_another_name(shell: Shell) -> None:
    body = {"name": "a", "config": {"connector.class": SOURCE}, "initial_state": "STOPPED"}
    shell.ok("create", shell.file(json.dumps(body), "c.json"))
    shell.api.setup.await_state("a", "STOPPED", [])
    shell.ok("create", shell.file(json.dumps(body), "c.json"), "--name", "b", "--state", "paused")
    shell.api.setup.await_state("b", "PAUSED", [])
    shell.ok("create", "-", "--name", "c", stdin=f"connector.class={SOURCE}\n")
    assert sorted(shell.json("list")) == ["a", "b", "c"]


def test_settings_are_replaced_or_changed_one_by_one(shell: Shell) -> None:
    shell.api.create("a", one="1", two="2")
    assert shell.json("update", "a", "--set", "one=uno", "--unset", "two", "--set", "eq=a=b")["config"] == {
        "connector.class": SOURCE,
        "name": "a",
        "one": "uno",
        "eq": "a=b",
    }
    shell.ok("update", "a", shell.file(f"connector.class={SOURCE}\nnew=1\n"))
    assert shell.json("get", "a")["config"] == {"connector.class": SOURCE, "name": "a", "new": "1"}
    assert shell.run("update", "a").exit_code == 2
    assert shell.run("update", "a", "--set", "nothing").exit_code == 2


def test_refusals_have_exit_codes_of_their_own(shell: Shell) -> None:
    missing = shell.run("status", "x")
    assert (missing.exit_code, missing.stdout) == (EXIT_MISSING, "")
    assert "No status found for connector x" in missing.stderr
    file = shell.file(f"name=a\nconnector.class={SOURCE}\n")
    shell.ok("create", file)
    twice = shell.run("create", file)
    assert twice.exit_code == EXIT_REFUSED
    assert "Connector a already exists" in twice.stderr
    nobody = CliRunner().invoke(main, ["connectors", "list", "--url", "http://127.0.0.1:1"])
    assert nobody.exit_code == EXIT_UNREACHABLE
    assert "No worker answers at http://127.0.0.1:1" in nobody.stderr
    assert shell.run("create", shell.file("connector.class=x\n")).exit_code == 2


@pytest.mark.parametrize("url", ["http://[::1", "ftp://worker", "http://worker:port", "http://", "http://worker:99999"])
def test_an_address_that_is_none_is_wrong_usage(url: str) -> None:
    for command in (["connectors", "list"], ["plugins"]):
        done = CliRunner().invoke(main, [*command, "--url", url])
        assert done.exit_code == 2
        assert "is no address of a worker" in done.stderr


def test_certificates_that_cannot_be_read_are_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["connectors", "list", "--url", "https://x", "--ca-file", str(tmp_path / "gone")])
    assert (done.exit_code, "cannot be used" in done.stderr) == (2, True)


def test_options_of_all_commands_may_stand_before_the_command(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.api.create("a")
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:1")
    url = str(shell.api.http.base_url)
    for words in (
        ["--url", url, "-o", "json", "list"],
        ["--url", "http://127.0.0.1:2", "list", "--url", url, "-o", "json"],
    ):
        done = CliRunner().invoke(main, ["connectors", *words])
        assert (done.exit_code, list(json.loads(done.stdout))) == (0, ["a"])
    nested = CliRunner().invoke(main, ["connectors", "--url", url, "-o", "json", "offsets", "get", "a"])
    assert json.loads(nested.stdout) == {"offsets": []}


def test_a_failure_is_shown_with_its_trace(shell: Shell) -> None:
    BOARD.fail["a", "start"] = ConnectException("no such database")
    done = shell.run("create", shell.file(f"name=a\nconnector.class={SOURCE}\n"))
    assert done.exit_code == EXIT_REFUSED
    assert "no such database" in done.stderr
    assert "no such database" in shell.ok("status", "a")
    assert "no such database" not in shell.ok("status", "a", "--no-trace")


def test_a_configuration_is_checked(shell: Shell) -> None:
    good = shell.file("name=a\nconnector.class=FileStreamSource\ntopic=t\n")
    assert "is valid" in shell.ok("validate", good)
    bad = shell.run("validate", shell.file("name=a\nconnector.class=FileStreamSource\ntasks.max=0\n"))
    assert bad.exit_code == EXIT_REFUSED
    assert "Value must be at least 1" in bad.stdout
    assert 'Missing required configuration "topic"' in bad.stdout
    assert shell.run("validate", shell.file(f"name=a\nconnector.class={SOURCE}\n")).exit_code == 0


def test_offsets_are_shown_changed_and_reset(shell: Shell) -> None:
    config = {"connector.class": SINK, "topics": "t"}
    shell.api.call("POST", "/connectors", {"name": "s", "config": config, "initial_state": "STOPPED"})
    groups = shell.api.setup.groups.groups
    groups["connect-s"] = {TopicPartition("t", 0): 5}
    assert "kafka_topic" in shell.ok("offsets", "get", "s")
    dry = shell.ok("offsets", "set", "s", "--at", "t:0=2", "--dry-run")
    assert "3 records would be read again" in dry
    shell.ok("offsets", "set", "s", "--at", "t:0=2", "--at", "t:1=null")
    assert groups["connect-s"] == {TopicPartition("t", 0): 2}
    body = {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 9}}]}
    shell.ok("offsets", "set", "s", shell.file(json.dumps(body), "o.json"))
    assert groups["connect-s"] == {TopicPartition("t", 0): 9}
    shell.ok("offsets", "set", "s", "--timestamp", "1970-01-01T00:00:04Z")
    assert groups["connect-s"] == {TopicPartition("t", 0): 4}
    shell.ok("offsets", "reset", "s")
    assert groups == {}
    assert "has no offsets" in shell.ok("offsets", "get", "s")
    for words in (("set", "s"), ("set", "s", "--at", "t=5"), ("set", "s", shell.file("{", "o.json"))):
        assert shell.run("offsets", *words).exit_code == 2


def test_a_connector_is_explained(shell: Shell) -> None:
    shell.api.create("a")
    shell.ok("pause", "a")
    shell.api.setup.await_state("a", "PAUSED", ["PAUSED"])
    shown = shell.ok("explain", "a", "--settings")
    assert "It is paused; resume it." in shown
    assert "tasks.max" in shown
    assert shell.json("explain", "a")["waiting_for"]["reason"] == "paused"


def test_a_configuration_is_previewed(shell: Shell) -> None:
    file = shell.file(f"name=p\nconnector.class={SOURCE}\n")
    assert "0 records" in shell.ok("preview", file, "--limit", "3")
    records = shell.file('[{"value": 1}]', "r.json")
    assert shell.json("preview", file, "--records", records)["records"] == []
    assert [asked.limits.records for asked in shell.api.setup.previews] == [3, 10]
    assert shell.api.setup.previews[1].records is not None


def test_bars_are_for_terminals_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shell.file(f"name=a\nconnector.class={SOURCE}\n")
    assert shell.run("preview", file).stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    previewed = shell.run("preview", file, "-o", "json")
    assert "Reading records" in previewed.stderr
    assert "records" in json.loads(previewed.stdout)
    created = shell.run("create", file, "--wait", "-o", "json")
    assert "Starting a" in created.stderr
    assert "2/2" in created.stderr
    assert json.loads(created.stdout)["name"] == "a"


def test_plugins_are_those_of_this_machine_or_of_a_worker(shell: Shell) -> None:
    here = CliRunner().invoke(main, ["plugins", "--type", "sink", "-o", "json"])
    assert {"FileStreamSinkConnector"} <= {one["class"].rpartition(".")[2] for one in json.loads(here.stdout)}
    there = CliRunner().invoke(main, ["plugins", "--url", str(shell.api.http.base_url), "--type", "converter"])
    assert there.exit_code == 0
    assert "JsonConverter" in there.stdout
    assert CliRunner().invoke(main, ["plugins", "--type", "nonsense"]).exit_code == 2
    assert CliRunner().invoke(main, ["plugins", "--url", "http://127.0.0.1:1"]).exit_code == EXIT_UNREACHABLE


def test_names_complete_themselves(shell: Shell) -> None:
    shell.api.create("alpha")
    shell.api.create("beta")
    url = str(shell.api.http.base_url)
    words = f"penstock connectors status --url {url} al"
    environment = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "5"}
    done = CliRunner().invoke(main, [], env=environment, prog_name="penstock")
    assert done.stdout.split() == ["plain,alpha"]
