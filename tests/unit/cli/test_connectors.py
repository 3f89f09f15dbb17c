"""``penstock connectors`` and ``penstock plugins`` against a worker without Kafka and Spark."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.text import Text
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SINK, SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.api import TopicPartition
from penstock.cli import configurations as connector_configurations
from penstock.cli.configurations import faults
from penstock.cli.main import main
from penstock.cli.session import EXIT_MISSING, EXIT_REFUSED, EXIT_UNREACHABLE, table
from penstock.errors import ConnectException, stack_trace
from penstock.herder import queries as explanation
from penstock.model import State
from penstock.model.states import Progress
from penstock.telemetry.metrics import SPARK_RECORDS_TOTAL
from penstock.worker.task.waiting import Hints, WaitReason


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


PLUGIN = """
from testkit.connectors.probes import ProbeSource
from edited_helper import TOPIC
class Edited(ProbeSource):
    pass
"""


def test_a_restart_says_that_the_code_on_disk_is_not_what_runs(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plugin, helper = tmp_path / "edited_plugin.py", tmp_path / "edited_helper.py"
    plugin.write_text(PLUGIN)
    helper.write_text("TOPIC = 'a'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, cls in (("a", "edited_plugin.Edited"), ("stock", SOURCE)):
        shell.ok("create", shell.file(f"name={name}\nconnector.class={cls}\n"), "--wait")
    restarts = (["restart", "a"], ["restart", "a", "--include-tasks"], ["restart", "a", "--task", "0"], ["resume", "a"])

    def told(*words: str) -> str:
        done = shell.run(*words)
        assert done.exit_code == 0, done.output
        shell.api.setup.await_state("a", "RUNNING", ["RUNNING"])
        return done.stderr

    assert [told(*words) for words in restarts] == [""] * 4
    assert "has changed on disk" not in caplog.text
    helper.write_text("TOPIC = 'another'\n")
    wanted = "Warning: The code of edited_helper has changed on disk since this worker loaded it. The worker still "
    assert all(told(*words).startswith(wanted) for words in restarts)
    assert "Connector a: The code of edited_helper has changed on disk" in caplog.text
    plugin.unlink()
    assert "The code of edited_helper, edited_plugin has changed" in told("restart", "a", "-o", "json")
    config = "name=b\nconnector.class=edited_plugin.Edited\n"
    assert "edited_helper" in shell.run("create", shell.file(config)).stderr
    assert shell.run("restart", "stock").stderr == ""


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


def test_a_configuration_has_one_error_a_setting_with_the_value_that_was_given(shell: Shell) -> None:
    bad = {
        "name": "a",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "tasks.max": "many",
        "value.converter": "JsonConvertr",
        "errors.tolerance": "some",
        "producer.override.sasl.jaas.config": "hunter2",
        "flie": "x",
    }
    file = shell.file("".join(f"{name}={value}\n" for name, value in bad.items()))
    shell.api.create("a")
    shell.api.setup.validator.strict = True
    checked = shell.run("validate", file)
    created = shell.run("create", file)
    updated = shell.run("update", "a", file)
    patched = shell.run("update", "a", "--set", "tasks.max=many")
    assert checked.exit_code == created.exit_code == updated.exit_code == patched.exit_code == EXIT_REFUSED
    told = {
        "tasks.max": ("many", "Not a number of type INT"),
        "value.converter": ("JsonConvertr", "could not be found"),
        "errors.tolerance": ("some", "must be one of"),
    }
    for shown in (checked.stdout, created.stderr, updated.stderr):
        for name, (value, error) in told.items():
            [line] = [line for line in shown.splitlines() if line.split()[:1] == [name]]
            assert value in line
            assert error in line
            assert "null" not in line
        assert "hunter2" not in shown
    assert "tasks.max = many: " in patched.stderr
    for done in (checked, created, updated):
        assert "Did you mean file?" in done.stderr
        assert "HTTP" not in done.stderr
        assert "endpoint" not in done.stderr


def test_what_a_secret_was_set_to_is_not_shown_with_its_error() -> None:
    value = {"name": "p", "value": "[hidden]", "errors": ["Invalid value hunter2 for configuration p: too short"]}
    found = {"configs": [{"definition": {"type": "PASSWORD"}, "value": value}]}
    [fault] = faults(found, {"p": "hunter2"})
    assert (fault.value, fault.error) == ("[hidden]", "Invalid value [hidden] for configuration p: too short")


def test_a_created_connector_is_warned_of_settings_that_nobody_reads(shell: Shell) -> None:
    file = shell.file(f"name=a\nconnector.class={SOURCE}\nerrors.tolerence=all\n")
    created = shell.run("create", file, "-o", "json")
    assert json.loads(created.stdout)["name"] == "a"
    assert created.exit_code == 0
    for done in (created, shell.run("update", "a", file), shell.run("validate", file)):
        assert done.exit_code == 0
        assert "Warning: errors.tolerence: " in done.stderr
        assert "Did you mean errors.tolerance?" in done.stderr
    assert shell.json("validate", file)["warnings"][0]["name"] == "errors.tolerence"


def test_waiting_ends_with_the_root_error_of_a_task_that_fails_after_it_ran(shell: Shell) -> None:
    def fail_soon() -> None:
        await_true(lambda: len(shell.api.setup.tasks) == 1)
        error = ConnectException("the rows cannot be read")
        error.__cause__ = KeyError("price")
        shell.api.setup.await_state("a", "RUNNING", ["RUNNING"])
        shell.api.setup.tasks[0].report(State.FAILED, stack_trace(error))

    failing = threading.Thread(target=fail_soon)
    failing.start()
    done = shell.run("create", shell.file(f"name=a\nconnector.class={SOURCE}\n"), "--wait")
    failing.join()
    assert done.exit_code == EXIT_REFUSED
    assert done.stderr.splitlines() == [
        "a was created, but task 0 has failed: KeyError: 'price'",
        "Led to: org.apache.kafka.connect.errors.ConnectException: the rows cannot be read",
        "The whole trace: penstock connectors status a",
    ]


@pytest.mark.parametrize(
    ("reasons", "warning"),
    [
        (["spark_starting", "group_join", "no_data"], False),
        (["spark_starting", "input_missing", "no_data"], False),
        (["group_join", *["input_missing"] * 1000], True),
    ],
)
def test_waiting_goes_on_while_tasks_wait_to_begin(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, reasons: list[str], warning: bool
) -> None:
    left = iter(reasons)

    def waiting(*args: object, **more: object) -> WaitReason:
        reason = next(left)
        return WaitReason(reason, f"{reason}.", cause="no file" if reason == "input_missing" else None)

    monkeypatch.setattr(explanation, "task_waiting", waiting)
    monkeypatch.setattr(connector_configurations, "_STEADY_S", 0.01)
    monkeypatch.setattr(connector_configurations, "_PASSING_S", 0.2 if warning else 10)
    monkeypatch.setattr(connector_configurations, "_POLL_S", 0.02)
    done = shell.run("create", shell.file(f"name=a\nconnector.class={SOURCE}\n"), "--wait")
    assert done.exit_code == 0
    assert next(left, None) == ("input_missing" if warning else None)
    assert ("Warning: task 0 has nothing to do yet. input_missing." in done.stderr) == warning


def test_errors_name_commands(shell: Shell) -> None:
    shell.api.create("a b")
    done = shell.run("offsets", "reset", "a b")
    assert done.exit_code == EXIT_REFUSED
    assert "penstock connectors stop 'a b'" in done.stderr
    assert "PUT" not in done.stderr
    shell.ok("stop", "a b")


class Terminal(io.StringIO):
    """Text that may be shown on a screen."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal(terminal)
    monkeypatch.setattr("sys.stdout", out)
    table(["SETTING", "VALUE", "ERROR"], [["value.converter", "z" * 60, "a long text " * 20]], "")
    shown = Text.from_ansi(out.getvalue()).plain
    widest = max(len(line.rstrip()) for line in shown.splitlines())
    assert (widest <= 60) == terminal
    # Nothing is cut off.
    assert shown.count("z") == 60
    assert shown.split().count("long") == 20


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
    tags = {"connector": "a", "road": "rows", "why": "a huge value"}
    shell.api.setup.metrics.counter(SPARK_RECORDS_TOTAL, **tags).add(12_345)
    shown = shell.ok("explain", "a", "--settings")
    assert re.search("12,345 +rows +a huge value", shown)
    assert "It is paused; resume it." in shown
    assert "tasks.max" in shown
    assert shell.json("explain", "a")["waiting_for"]["reason"] == "paused"


def test_how_far_a_task_is_is_shown(shell: Shell) -> None:
    shell.api.create("a")
    shell.api.setup.await_state("a", "RUNNING", ["RUNNING"])
    for total, shown in (
        (20_000, "task 0: 5,000 of 20,000 rows (25%)"),
        (None, "task 0: 5,000 rows"),
        (0, "of 0 rows"),
    ):
        shell.api.setup.tasks[-1].hints = Hints(progress=Progress(5_000, total, "rows"))
        assert shown in shell.ok("status", "a")
        assert shown in shell.ok("explain", "a")


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
