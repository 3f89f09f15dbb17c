"""``penstock connectors``: a worker's connectors from the command line.

Main object: the click group ``connectors``. Exit codes: 0 done, 1 the worker refused or a configuration is invalid,
2 wrong usage, 3 no worker answers, 4 there is no such connector or task. Main thread.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from rich.text import Text

from penstock.cli.api_client import ApiClient, ApiError, Unreachable
from penstock.cli.connector_files import parse_connector_file, read_text
from penstock.cli.findings import faults, in_commands, warnings
from penstock.cli.output import complain, counting, filling, say, show_json, state_text, table
from penstock.errors import ConfigException
from penstock.traces import root_cause

DEFAULT_URL: Final = "http://localhost:8083"
EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3
EXIT_MISSING: Final = 4

_POLL_S: Final = 0.3
#: Tasks that have been RUNNING for so long go on.
_STEADY_S: Final = 1.0
#: What a task that is RUNNING waits for before it does anything that could fail.
_NOT_BEGUN: Final = ("spark_starting", "group_join")
_BAD_REQUEST: Final = 400
#: The options of every command, in the order of ``ApiClient``; they may stand before its name, too.
_COMMON: Final = ("url", "ca_file", "certificate", "output")


@dataclass(frozen=True)
class Session:
    """What every command gets: whom to ask, and how to show what it says."""

    api: ApiClient
    json: bool

    def show(self, found: object, draw: Callable[[], None]) -> None:
        """Prints an answer in the form that was asked for."""
        if self.json:
            show_json(found)
        else:
            draw()


def _complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del parameter
    try:
        given = _with_those_of_the_group(context, context.params)
        client = ApiClient(str(given.get("url") or DEFAULT_URL), timeout_s=2)
        return [CompletionItem(name) for name in client.call("GET", ["connectors"]) if name.startswith(incomplete)]
    except (ApiError, Unreachable, ConfigException):
        return []


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of every command that asks a worker, and turns refusals into exit codes."""

    @click.option("--url", envvar="PENSTOCK_URL", default=DEFAULT_URL, show_default=True, help="Of the worker.")
    @click.option("--ca-file", envvar="PENSTOCK_CA_FILE", help="Certificates to trust, for https.")
    @click.option("--certificate", envvar="PENSTOCK_CERTIFICATE", help="Own key and certificate (PEM), for https.")
    @click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form."
    )
    @wraps(command)
    def run(**arguments: Any) -> None:
        given = _with_those_of_the_group(click.get_current_context(), arguments)
        url, ca_file, certificate, output = (given.pop(name) for name in _COMMON)
        try:
            session = Session(ApiClient(url, ca_file=ca_file, certificate=certificate), output == "json")
            command(session, **given)
            for warning in session.api.warnings:
                complain(f"Warning: {warning}")
        except ApiError as error:
            _end(in_commands(str(error)), EXIT_MISSING if error.status == 404 else EXIT_REFUSED)
        except Unreachable as error:
            _end(str(error), EXIT_UNREACHABLE)
        except ConfigException as error:
            raise click.UsageError(str(error)) from error

    return run


def _with_those_of_the_group(context: click.Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command; those given before its name count where it has none of its own."""
    before = {name: value for name, value in (context.obj or {}).items() if value is not None}
    own = {name for name in _COMMON if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return {**arguments, **{name: value for name, value in before.items() if name not in own}}


def _end(message: str, code: int) -> NoReturn:
    complain(message)
    sys.exit(code)


name_argument = click.argument("name", shell_complete=_complete_name)


@click.group()
@click.option("--url", help="Of the worker, as with each command.")
@click.option("--ca-file", help="As with each command.")
@click.option("--certificate", help="As with each command.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), help="As with each command.")
@click.pass_context
def connectors(context: click.Context, /, **common: str | None) -> None:
    """Look at and change the connectors of a running worker."""
    context.obj = common


# ------------------------------------------------------------------ looking
@connectors.command("list")
@asking
def list_connectors(session: Session) -> None:
    """List all connectors with their states."""
    found = session.api.call("GET", ["connectors"], query={"expand": ["info", "status"]})

    def draw() -> None:
        rows = []
        for name, parts in sorted(found.items()):
            status = parts.get("status") or {"connector": {"state": "UNASSIGNED"}, "tasks": [], "type": None}
            rows.append(
                [
                    name,
                    parts["info"]["type"],
                    state_text(status["connector"]["state"]),
                    _task_summary(status["tasks"]),
                    parts["info"]["config"].get("connector.class"),
                ]
            )
        table(["NAME", "TYPE", "STATE", "TASKS", "CLASS"], rows, "There are no connectors.")

    session.show(found, draw)


def _task_summary(tasks: Sequence[Mapping[str, Any]]) -> Text:
    running = sum(task["state"] == "RUNNING" for task in tasks)
    failed = sum(task["state"] == "FAILED" for task in tasks)
    text = Text(f"{running}/{len(tasks)}")
    return text.append(f" ({failed} failed)", style="bold red") if failed else text


@connectors.command("get")
@name_argument
@asking
def get_connector(session: Session, name: str) -> None:
    """Show the configuration of a connector."""
    found = session.api.call("GET", ["connectors", name])
    session.show(found, lambda: table(["SETTING", "VALUE"], sorted(found["config"].items()), "No settings."))


@connectors.command("status")
@name_argument
@click.option("--trace/--no-trace", default=True, help="Show why something failed.")
@asking
def status(session: Session, name: str, trace: bool) -> None:
    """Show what a connector and its tasks are doing."""
    found = session.api.call("GET", ["connectors", name, "status"])

    def draw() -> None:
        parts = [("connector", found["connector"]), *((f"task {task['id']}", task) for task in found["tasks"])]
        table(["", "STATE", "WORKER"], [[what, state_text(one["state"]), one["worker_id"]] for what, one in parts], "")
        for what, one in parts:
            if trace and one.get("trace"):
                say(f"\n{what} failed:", "bold red")
                say(one["trace"].rstrip())

    session.show(found, draw)


@connectors.command("explain")
@name_argument
@click.option("--settings/--no-settings", default=False, help="All settings with their origin.")
@asking
def explain(session: Session, name: str, settings: bool) -> None:
    """Tell what a connector and its tasks wait for, and how far they are."""
    found = session.api.call("GET", ["connectors", name, "explain"])

    def draw() -> None:
        parts = [("connector", found["state"] or "-", found["waiting_for"])]
        parts += [(f"task {task['id']}", task["state"], task["waiting_for"]) for task in found["tasks"]]
        rows = [[what, state_text(state), why["reason"], why["text"]] for what, state, why in parts]
        table(["", "STATE", "WAITS FOR", ""], rows, "")
        for what, _, why in parts:
            if why.get("stack"):
                since = f" (since {why['since']})" if "since" in why else ""
                say(f"\n{what} stands in{since}:", "bold")
                say("\n".join(why["stack"]))
        say("")
        places = [
            [json.dumps(one["partition"]), json.dumps(one["offset"]), str(one.get("lag", "-"))]
            for one in found["offsets"]
        ]
        table(["PARTITION", "OFFSET", "LAG"], places, found.get("offsets_error", "No offsets are committed."))
        if settings:
            say("")
            origins = [[one["name"], one["value"], one["origin"]] for one in found["settings"]]
            table(["SETTING", "VALUE", "ORIGIN"], origins, "")

    session.show(found, draw)


# ------------------------------------------------------------------ creating and changing
@connectors.command("create")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--name", help="Instead of the name in the file.")
@click.option("--state", type=click.Choice(["running", "paused", "stopped"], case_sensitive=False), help="First state.")
@click.option("--wait", is_flag=True, help="Wait until connector and tasks go on running; tell why one fails.")
@asking
def create(session: Session, file: str, name: str | None, state: str | None, wait: bool) -> None:
    """Create a connector from a properties or JSON file (- for standard input)."""
    config, initial = _configuration(file, name)
    body = {"name": config["name"], "config": config, "initial_state": (state or initial).upper()}
    found = _with_faults(session, config, lambda: session.api.call("POST", ["connectors"], body=body))
    if wait and body["initial_state"] == "RUNNING":
        _await_running(session, config["name"])
    session.show(found, lambda: say(f"Created {found['name']} ({found['type']}).", "green"))


@connectors.command("update")
@name_argument
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove one setting.")
@asking
def update(session: Session, name: str, file: str | None, settings: Sequence[str], unset: Sequence[str]) -> None:
    """Replace the configuration of a connector by a file, or change single settings."""
    if (file is None) == (not settings and not unset):
        raise click.UsageError("Give either a FILE, or --set and --unset.")
    if file is not None:
        config, _ = _configuration(file, name)
        found = _with_faults(
            session, config, lambda: session.api.call("PUT", ["connectors", name, "config"], body=config)
        )
    else:
        changes: dict[str, str | None] = dict.fromkeys(unset)
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise click.UsageError(f"--set {setting} has no =.")
            changes[key.strip()] = value
        changed = {**session.api.call("GET", ["connectors", name, "config"]), **changes}
        found = _with_faults(
            session,
            {key: value for key, value in changed.items() if value is not None},
            lambda: session.api.call("PATCH", ["connectors", name, "config"], body=changes),
        )
    session.show(found, lambda: say(f"Updated {found['name']}.", "green"))


@connectors.command("validate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@asking
def validate(session: Session, file: str) -> None:
    """Check a configuration without creating anything; the exit code is 1 when it has errors."""
    config, _ = _configuration(file, None)
    found = _validated(session, config, _plugin(file, config))

    def draw() -> None:
        rows = [[one.name, one.value, Text(one.error, style="red")] for one in faults(found, config)]
        table(["SETTING", "VALUE", "ERROR"], rows, "The configuration is valid.")
        _warn(found)

    session.show(found, draw)
    if found["error_count"]:
        sys.exit(EXIT_REFUSED)


@connectors.command("preview")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--records", "given", type=click.Path(exists=True, dir_okay=False), help="JSON records to use instead.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many records.")
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="How long to read.")
@asking
def preview(session: Session, file: str, given: str | None, limit: int, seconds: float) -> None:
    """Show what a configuration would do to some records, step by step; nothing is created."""
    config, _ = _configuration(file, None)
    body: dict[str, Any] = {"config": config, "limits": {"records": limit, "seconds": seconds}}
    if given is not None:
        body["records"] = _json_file(given)
    plugin = _plugin(file, config)
    with filling("Reading records", seconds):
        found = session.api.call("POST", ["connector-plugins", plugin, "preview"], body=body)

    def draw() -> None:
        for number, record in enumerate(found["records"], start=1):
            say(f"record {number}", "bold")
            rows: list[Sequence[str | Text | None]] = [
                ["input", json.dumps(record["input"]["value"], ensure_ascii=False)]
            ]
            outcome = Text("passes")
            for step in record["steps"]:
                if "after" in step:
                    rows.append([step["transform"], json.dumps(step["after"].get("value"), ensure_ascii=False)])
                elif "dropped" in step:
                    outcome = Text(f"dropped by {step['transform']}", style="yellow")
            error = record.get("error")
            if error:
                outcome = Text(f"{error['stage']}: {error['message']}", style="red")
            table(["STEP", "VALUE"], [*rows, ["result", outcome]], "")
        say(found.get("error") or f"{len(found['records'])} records", "red" if found.get("error") else "dim")

    session.show(found, draw)


def _validated(session: Session, config: Mapping[str, str], plugin: str) -> Any:
    return session.api.call("PUT", ["connector-plugins", plugin, "config", "validate"], body=config)


def _warn(found: Mapping[str, Any]) -> None:
    for warning in warnings(found):
        complain(f"Warning: {warning}", "yellow")


def _with_faults(session: Session, config: Mapping[str, str], change: Callable[[], Any]) -> Any:
    """Makes a change, and says which settings it fails for, or which of them nobody reads."""
    refused: ApiError | None = None
    done = None
    try:
        done = change()
    except ApiError as error:
        if error.status != _BAD_REQUEST:
            raise
        refused = error
    try:
        found = _validated(session, config, _simple(config.get("connector.class") or ""))
    except ApiError:
        # The class cannot be found: the refusal says so, too.
        found = {"configs": []}
    if refused is not None:
        _warn(found)
        listed = faults(found, config)
        if not listed:
            raise refused
        lines = [f"  {one.name} = {'' if one.value is None else one.value}: {one.error}" for one in listed]
        _end("\n".join(["The configuration is invalid:", *lines]), EXIT_REFUSED)
    _warn(found)
    return done


def _plugin(file: str, config: Mapping[str, str]) -> str:
    """The name of a configuration's class as it stands in a path."""
    cls = config.get("connector.class")
    if not cls:
        raise click.UsageError(f"{file} has no connector.class.")
    return _simple(cls)


def _simple(cls: str) -> str:
    return cls.replace(":", ".").rpartition(".")[2]


def _configuration(file: str, name: str | None) -> tuple[dict[str, str], str]:
    """The settings and the first state in a file."""
    text = sys.stdin.read() if file == "-" else read_text(file)
    if name is not None and not text.lstrip().startswith("{"):
        # A file for many connectors need not have a name; one that it has is replaced.
        text = f"{text}\nname={name}\n"
    elif name is not None:
        text = _renamed(text, name)
    found = parse_connector_file(file, text)
    states = {"STARTED": "running", "PAUSED": "paused", "STOPPED": "stopped"}
    return dict(found.config), states[found.target.value]


def _renamed(text: str, name: str) -> str:
    try:
        content = json.loads(text)
    except ValueError:
        return text
    if isinstance(content, dict):
        inner = content.get("config")
        content["name"] = name
        if isinstance(inner, dict):
            inner["name"] = name
    return json.dumps(content)


# ------------------------------------------------------------------ states
def _state_command(verb: str, path: str, done: str, help_text: str) -> None:
    @connectors.command(verb, help=help_text)
    @name_argument
    @asking
    def command(session: Session, name: str) -> None:
        session.api.call("PUT", ["connectors", name, path])
        session.show({"name": name, "request": verb}, lambda: say(f"{name} {done}.", "green"))


_state_command("pause", "pause", "is going to rest", "Let a connector and its tasks rest.")
_state_command("resume", "resume", "is going on", "Let a connector go on.")
_state_command("stop", "stop", "is stopped", "End the tasks of a connector and keep it.")


@connectors.command("restart")
@name_argument
@click.option("--include-tasks", is_flag=True, help="The tasks too.")
@click.option("--only-failed", is_flag=True, help="Only what has failed.")
@click.option("--task", type=int, help="Only this task.")
@asking
def restart(session: Session, name: str, include_tasks: bool, only_failed: bool, task: int | None) -> None:
    """Restart a connector, its tasks, or one task."""
    if task is not None:
        found = session.api.call("POST", ["connectors", name, "tasks", str(task), "restart"])
    else:
        query = {"includeTasks": str(include_tasks).lower(), "onlyFailed": str(only_failed).lower()}
        found = session.api.call("POST", ["connectors", name, "restart"], query=query)
    session.show(found or {"name": name, "request": "restart"}, lambda: say(f"{name} is restarting.", "green"))


@connectors.command("delete")
@name_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@asking
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a connector; its offsets stay."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete connector {name}?", abort=True)
    session.api.call("DELETE", ["connectors", name])
    session.show({"name": name, "request": "delete"}, lambda: say(f"Deleted {name}.", "green"))


def _await_running(session: Session, name: str, timeout_s: float = 60.0) -> None:
    """Waits until all have been RUNNING for a second and no task still waits to begin; ends with the first error."""
    deadline = time.monotonic() + timeout_s
    steady_since: float | None = None
    waits: Sequence[Mapping[str, Any]] = ()
    pause = threading.Event()
    with counting(f"Starting {name}") as running:
        while True:
            found = session.api.call("GET", ["connectors", name, "status"])
            parts = [("the connector", found["connector"]), *((f"task {one['id']}", one) for one in found["tasks"])]
            for what, one in parts:
                if one["state"] == "FAILED":
                    _end(_failure(name, what, one.get("trace") or "no reason is known"), EXIT_REFUSED)
            up = sum(one["state"] == "RUNNING" for _, one in parts)
            running(up, len(parts))
            now = time.monotonic()
            steady_since = None if up < len(parts) else now if steady_since is None else steady_since
            if steady_since is not None and now - steady_since >= _STEADY_S:
                explained = session.api.call("GET", ["connectors", name, "explain"])
                waits = [one["waiting_for"] for one in explained["tasks"]]
                if not any(one["reason"] in _NOT_BEGUN for one in waits):
                    break
                # What it waits for may end with an error: after it, a second again.
                steady_since = None
            if now > deadline:
                why = "".join(f"\n  task {number}: {one['text']}" for number, one in enumerate(waits))
                _end(f"{name} does not run after {timeout_s:.0f} seconds{why}", EXIT_REFUSED)
            pause.wait(_POLL_S)
    for number, one in enumerate(waits):
        if one.get("cause"):
            complain(f"Warning: task {number} has nothing to do yet. {one['text']}", "yellow")


def _failure(name: str, what: str, trace: str) -> str:
    return (
        f"{name} was created, but {what} has failed: {root_cause(trace)}\n"
        f"The whole trace: penstock connectors status {shlex.quote(name)}"
    )


# ------------------------------------------------------------------ offsets
@connectors.group("offsets")
def offsets() -> None:
    """Look at and change the offsets of a connector."""


@offsets.command("get")
@name_argument
@asking
def get_offsets(session: Session, name: str) -> None:
    """Show the committed offsets."""
    found = session.api.call("GET", ["connectors", name, "offsets"])

    def draw() -> None:
        rows = [[json.dumps(one["partition"]), json.dumps(one["offset"])] for one in found["offsets"]]
        table(["PARTITION", "OFFSET"], rows, f"{name} has no offsets.")

    session.show(found, draw)


_dry_run = click.option("--dry-run", is_flag=True, help="Only tell what would be read again.")
_timestamp = click.option("--timestamp", help="For sinks: milliseconds or a date and time; all partitions go there.")


@offsets.command("set")
@name_argument
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--at", "places", multiple=True, metavar="TOPIC:PARTITION=OFFSET", help="For sinks; OFFSET may be null.")
@_timestamp
@_dry_run
@asking
def set_offsets(
    session: Session, name: str, file: str | None, places: Sequence[str], timestamp: str | None, dry_run: bool
) -> None:
    """Change offsets of a stopped connector: from a JSON file, by place, or to a time."""
    if sum((file is not None, bool(places), timestamp is not None)) != 1:
        raise click.UsageError("Give one of FILE, --at and --timestamp.")
    if timestamp is not None:
        body: Any = {"timestamp": timestamp}
    elif file is not None:
        body = _json_file(file)
    else:
        body = {"offsets": [_place(text) for text in places]}
    found = session.api.call("PATCH", ["connectors", name, "offsets"], body=body, query=_dry(dry_run))
    session.show(found, lambda: _draw_change(found))


@offsets.command("reset")
@name_argument
@_timestamp
@_dry_run
@asking
def reset_offsets(session: Session, name: str, timestamp: str | None, dry_run: bool) -> None:
    """Remove the offsets of a stopped connector, or set a sink to a time."""
    query = _dry(dry_run) | ({} if timestamp is None else {"timestamp": timestamp})
    found = session.api.call("DELETE", ["connectors", name, "offsets"], query=query)
    session.show(found, lambda: _draw_change(found))


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dry_run": "true"} if dry_run else {}


def _json_file(file: str) -> Any:
    text = sys.stdin.read() if file == "-" else read_text(file)
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{file} is not valid JSON: {error}") from error


def _place(text: str) -> dict[str, object]:
    where, equals, offset = text.rpartition("=")
    topic, colon, partition = where.rpartition(":")
    if not equals or not colon or not partition.isdecimal() or not (offset.isdecimal() or offset == "null"):
        raise click.UsageError(f"--at {text} is not of the form TOPIC:PARTITION=OFFSET.")
    value = None if offset == "null" else {"kafka_offset": int(offset)}
    return {"partition": {"kafka_topic": topic, "kafka_partition": int(partition)}, "offset": value}


def _draw_change(found: Mapping[str, Any]) -> None:
    say(found["message"], "yellow" if found.get("dry_run") else "green")
    if found.get("dry_run"):
        rows = [
            [
                json.dumps(one["partition"]),
                json.dumps(one["current"]),
                json.dumps(one["new"]),
                str(one.get("records_read_again", "-")),
            ]
            for one in found["offsets"]
        ]
        table(["PARTITION", "NOW", "THEN", "READ AGAIN"], rows, "There is nothing to change.")
