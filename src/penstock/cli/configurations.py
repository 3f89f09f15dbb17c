"""The commands of ``penstock connectors`` that read a configuration: create, update, validate, preview.

They explain a refusal setting by setting, with the worker's validation.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from penstock.cli.session import (
    EXIT_REFUSED,
    NOT_FOUND,
    ApiClient,
    ApiError,
    Session,
    asking,
    complain,
    counting,
    end,
    file_argument,
    filling,
    name_argument,
    say,
    table,
)
from penstock.config.parse import HIDDEN, java_trim
from penstock.config.properties import parse_properties
from penstock.errors import ConfigException
from penstock.model import TargetState
from penstock.traces import root_cause

log = logging.getLogger(__name__)

_REQUEST_FIELDS = {"name", "config", "initial_state"}
#: The further fields of an answer to ``GET /connectors/{name}``: a saved answer can be used as a file.
_ANSWER_FIELDS = {"tasks", "type"}


@dataclass(frozen=True)
class ConnectorFile:
    """A connector that the command line asks for."""

    path: str
    name: str
    config: Mapping[str, str]
    target: TargetState = TargetState.STARTED


def read_connector_files(paths: Sequence[str]) -> list[ConnectorFile]:
    """Reads all files."""
    files: list[ConnectorFile] = []
    by_name: dict[str, str] = {}
    for path in paths:
        found = parse_connector_file(path, read_text(path))
        if found.name in by_name:
            raise ConfigException(
                f"The connector files {by_name[found.name]} and {path} both have name={found.name}; "
                "every connector needs a name of its own"
            )
        by_name[found.name] = path
        files.append(found)
    return files


def read_text(path: str) -> str:
    """The text of a file, UTF-8."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigException(f"The file {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigException(f"The file {path} is not UTF-8 text: {error}") from error


def read_given(file: str) -> str:
    """The text of a file that the command line names; ``-`` is standard input."""
    return sys.stdin.read() if file == "-" else read_text(file)


def read_json(file: str) -> Any:
    """The JSON in a file that the command line names; ``-`` is standard input."""
    text = read_given(file)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigException(f"{file} is not valid JSON: {error}") from error


def parse_connector_file(path: str, text: str) -> ConnectorFile:
    """A connector file's content.

    >>> parse_connector_file("a.properties", "name=a").config
    {'name': 'a'}
    >>> parse_connector_file("a.json", '{"name": "a", "config": {"tasks.max": 2}}').config
    {'tasks.max': '2', 'name': 'a'}
    """
    if text.lstrip().startswith("{") or path.endswith(".json"):
        return _from_json(path, text)
    try:
        config = parse_properties(text)
    except ConfigException as error:
        raise ConfigException(f"The connector file {path} is not a properties file: {error}") from error
    return _named(path, config, None)


def _from_json(path: str, text: str) -> ConnectorFile:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigException(f"The connector file {path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigException(f"The connector file {path} must hold a JSON object")
    config = content.get("config")
    if not isinstance(config, dict):
        return _named(path, _texts(path, content), None)
    unknown = sorted(set(content) - _REQUEST_FIELDS - _ANSWER_FIELDS)
    if unknown:
        log.warning(
            "The connector file %s has fields next to config that are not used: %s; name, config and "
            "initial_state are known",
            path,
            ", ".join(unknown),
        )
    name, settings = content.get("name"), _texts(path, config)
    if name is not None and settings.setdefault("name", str(name)) != str(name):
        raise ConfigException(f"The connector file {path} has two names: {name}, and {settings['name']} in its config")
    try:
        target = TargetState.from_initial_state(content.get("initial_state"))
    except (ValueError, AttributeError) as error:
        raise ConfigException(f"The connector file {path}: {error}") from error
    return _named(path, settings, target)


def _texts(path: str, config: Mapping[str, object]) -> dict[str, str]:
    texts = {}
    for key, value in config.items():
        if value is None:
            continue  # as if it were not set
        if isinstance(value, (dict, list)):
            raise ConfigException(f"The connector file {path}: the value of {key} must be a text, number or boolean")
        texts[key] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _named(path: str, config: Mapping[str, str], target: TargetState | None) -> ConnectorFile:
    name = java_trim(config.get("name", ""))
    if not name:
        raise ConfigException(f"The connector file {path} has no name; add a line name=...")
    return ConnectorFile(path, name, {**config, "name": name}, target or TargetState.STARTED)


_POLL_S: Final = 0.3
#: Seconds after which RUNNING tasks count as steady.
_STEADY_S: Final = 1.0
#: Seconds in which an obstacle for a task may pass by itself, such as a topic that is being created.
_PASSING_S: Final = 5.0
#: The waits of a RUNNING task before it does anything that could fail.
_NOT_BEGUN: Final = ("spark_starting", "group_join")
_CONFLICT: Final = 409


def await_running(api: ApiClient, name: str, timeout_s: float = 60.0) -> None:
    """Waits until all parts have been RUNNING for a second and every task has begun; ends with the first error."""
    deadline = time.monotonic() + timeout_s
    steady_since: float | None = None
    waits: Sequence[Mapping[str, Any]] = ()
    pause = threading.Event()
    with counting(f"Starting {name}") as running:
        while True:
            found = _status_of(api, name)
            parts = [("the connector", found["connector"]), *((f"task {one['id']}", one) for one in found["tasks"])]
            for what, one in parts:
                if one["state"] == "FAILED":
                    end(_failure(name, what, one.get("trace") or "no reason is known"), EXIT_REFUSED)
            up = sum(one["state"] == "RUNNING" for _, one in parts)
            running(up, len(parts))
            now = time.monotonic()
            steady_since = None if up < len(parts) else now if steady_since is None else steady_since
            if steady_since is not None and now - steady_since >= _STEADY_S and _all_told(api, found):
                explained = api.call("GET", ["connectors", name, "explain"])
                waits = [one["waiting_for"] for one in explained["tasks"]]
                if any(one["reason"] in _NOT_BEGUN for one in waits):
                    # The wait may end with an error: after it, the task must run steadily again.
                    steady_since = None
                elif now - steady_since >= _PASSING_S or not any(one.get("cause") for one in waits):
                    break
            if now > deadline:
                causes = [(f"task {number}", one) for number, one in enumerate(waits)]
                causes = causes or [(what, one["waiting_for"]) for what, one in parts if one.get("waiting_for")]
                why = "".join(f"\n  {what}: {one['text']}" for what, one in causes)
                end(f"{name} does not run after {timeout_s:.0f} seconds{why}", EXIT_REFUSED)
            pause.wait(_POLL_S)
    for number, one in enumerate(waits):
        if one.get("cause"):
            complain(f"Warning: task {number} has nothing to do yet. {one['text']}", "yellow")


def _status_of(api: ApiClient, name: str) -> Any:
    """Returns the status of a new connector; in a group its worker may report the first state a little later."""
    try:
        return api.call("GET", ["connectors", name, "status"])
    except ApiError as error:
        if error.status not in (NOT_FOUND, _CONFLICT):
            raise
        return {"name": name, "connector": {"state": "UNASSIGNED"}, "tasks": []}


def _all_told(api: ApiClient, found: Mapping[str, Any]) -> bool:
    """True if all tasks that a connector has report a state."""
    return len(found["tasks"]) >= len(api.call("GET", ["connectors", found["name"]])["tasks"])


def _failure(name: str, what: str, trace: str) -> str:
    return (
        f"{name} was created, but {what} has failed: {root_cause(trace)}\n"
        f"The whole trace: penstock connectors status {shlex.quote(name)}"
    )


_BAD_REQUEST: Final = 400
#: The follow-up errors of a setting whose value could not be read.
_NULL: Final = re.compile(r"Invalid value null for configuration |Missing required configuration ")


@dataclass(frozen=True)
class SettingError:
    """An error in one setting.

    Attributes:
        value: Its value; None if it was not set. The value of a secret is hidden.
    """

    name: str
    value: str | None
    error: str


def faults(found: Mapping[str, Any], config: Mapping[str, str]) -> list[SettingError]:
    """The faults in a validation's answer: one for each setting."""
    listed = []
    for entry in found["configs"]:
        value, definition = entry["value"], entry["definition"] or {}
        name, errors = value["name"], list(dict.fromkeys(value["errors"]))
        # Later checks take an unreadable value for null, which is not a further error.
        errors = [error for error in errors if not _NULL.match(error)] or errors[:1]
        if not errors:
            continue
        given = config.get(name, value["value"])
        secret = definition.get("type") == "PASSWORD"
        text = "; ".join(errors)
        if secret and given:
            text, given = text.replace(given, HIDDEN), HIDDEN
        listed.append(SettingError(name, given, text))
    return listed


@click.command("create")
@file_argument()
@click.option("--name", help="Instead of the name in the file.")
@click.option("--state", type=click.Choice(["running", "paused", "stopped"], case_sensitive=False), help="First state.")
@click.option("--wait", is_flag=True, help="Wait until connector and tasks run steadily; report why one fails.")
@asking
def create(session: Session, file: str, name: str | None, state: str | None, wait: bool) -> None:
    """Create a connector from a properties or JSON file (- for standard input)."""
    config, initial = _configuration(file, name)
    body = {"name": config["name"], "config": config, "initial_state": (state or initial).upper()}
    found = _with_faults(session.api, config, lambda: session.api.call("POST", ["connectors"], body=body))
    if wait and body["initial_state"] == "RUNNING":
        await_running(session.api, config["name"])
    session.show(found, lambda: say(f"Created {found['name']} ({found['type']}).", "green"))


@click.command("update")
@name_argument
@file_argument(required=False)
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
            session.api, config, lambda: session.api.call("PUT", ["connectors", name, "config"], body=config)
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
            session.api,
            {key: value for key, value in changed.items() if value is not None},
            lambda: session.api.call("PATCH", ["connectors", name, "config"], body=changes),
        )
    session.show(found, lambda: say(f"Updated {found['name']}.", "green"))


@click.command("validate")
@file_argument()
@asking
def validate(session: Session, file: str) -> None:
    """Check a configuration without creating anything; the exit code is 1 when it has errors."""
    config, _ = _configuration(file, None)
    found = _validated(session.api, config, _plugin(file, config))

    def draw() -> None:
        rows = [[one.name, one.value, Text(one.error, style="red")] for one in faults(found, config)]
        table(["SETTING", "VALUE", "ERROR"], rows, "The configuration is valid.")
        _warn(found)

    session.show(found, draw)
    if found["error_count"]:
        sys.exit(EXIT_REFUSED)


@click.command("preview")
@file_argument()
@click.option("--records", "given", type=click.Path(exists=True, dir_okay=False), help="JSON records to use instead.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many records.")
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="How long to read.")
@asking
def preview(session: Session, file: str, given: str | None, limit: int, seconds: float) -> None:
    """Show the results of a configuration for some records, step by step; creates nothing."""
    config, _ = _configuration(file, None)
    body: dict[str, Any] = {"config": config, "limits": {"records": limit, "seconds": seconds}}
    if given is not None:
        body["records"] = read_json(given)
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


def _validated(api: ApiClient, config: Mapping[str, str], plugin: str) -> Any:
    return api.call("PUT", ["connector-plugins", plugin, "config", "validate"], body=config)


def _warn(found: Mapping[str, Any]) -> None:
    for one in found.get("warnings", ()):
        complain(f"Warning: {one['name']}: {one['message']}", "yellow")


def _with_faults(api: ApiClient, config: Mapping[str, str], change: Callable[[], Any]) -> Any:
    """Makes a change, and names the settings for which it fails, or which no class reads."""
    refused: ApiError | None = None
    done = None
    try:
        done = change()
    except ApiError as error:
        if error.status != _BAD_REQUEST:
            raise
        refused = error
    try:
        found = _validated(api, config, _simple(config.get("connector.class") or ""))
    except ApiError:
        # The class cannot be found, which the refusal reports, too.
        found = {"configs": []}
    _warn(found)
    if refused is not None:
        listed = faults(found, config)
        if not listed:
            raise refused
        lines = [f"  {one.name} = {'' if one.value is None else one.value}: {one.error}" for one in listed]
        end("\n".join(["The configuration is invalid:", *lines]), EXIT_REFUSED)
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
    text = read_given(file)
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
