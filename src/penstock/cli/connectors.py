"""``penstock connectors``: shows connectors and their offsets, changes offsets, starts, stops and deletes connectors.

``configurations`` has the commands that read a configuration. Exit codes: see ``penstock.cli.session``.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich.text import Text

from penstock.cli.configurations import create, preview, read_json, update, validate
from penstock.cli.session import (
    EXIT_REFUSED,
    Session,
    asking,
    complain,
    counting,
    file_argument,
    name_argument,
    say,
    state_text,
    table,
)

_LOOK_S: Final = 0.5
_OF_TOPIC: Final = re.compile(r"([^=]+):([0-9]+)=([0-9]+)\.\.([0-9]+)")


@click.command("backfill")
@name_argument
@click.option("--from", "begin", help="Messages or rows starting at this time: milliseconds, or a date and time.")
@click.option("--to", "end", help="And before this time; without it up to now.")
@click.option(
    "--offsets",
    "offsets",
    multiple=True,
    metavar="RANGE",
    help="Instead of times. Of a sink TOPIC:PARTITION=START..END, once for each partition; of a source FROM..TO.",
)
@click.option("--of", "of", metavar="NAME", help="Of a source: only this table, file or whatever it has several of.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be read and written.")
@click.option("--wait", is_flag=True, help="Wait for the end, and show how far it is.")
@click.option("--cancel", is_flag=True, help="End the running backfill; the records that it has written stay.")
@asking
def backfill(
    session: Session,
    name: str,
    begin: str | None,
    end: str | None,
    offsets: Sequence[str],
    of: str | None,
    dry_run: bool,
    wait: bool,
    cancel: bool,
) -> None:
    """Read a range again, while the connector runs, through its chain; without a range: show the last backfill."""
    path = ["connectors", name, "backfill"]
    if cancel:
        session.api.call("DELETE", path)
        session.show({"name": name, "request": "cancel"}, lambda: say(f"The backfill of {name} ends.", "green"))
        return
    if begin is None and end is None and not offsets and of is None:
        found = session.api.call("GET", path)
        session.show(found, lambda: _draw(found))
        return
    if offsets and (begin is not None or end is not None):
        raise click.UsageError("Give either --offsets, or --from and --to.")
    given = {"offsets": _ranges(offsets) if offsets else None, "from": begin, "to": end, "of": of}
    body = {name: value for name, value in given.items() if value is not None}
    found = session.api.call("POST", path, body=body, query=_dry(dry_run))
    if dry_run:
        session.show(found, lambda: _draw_plan(found))
        return
    if wait:
        found = _awaited(session, path, found)
    session.show(found, lambda: _draw(found))
    if found["state"] in ("FAILED", "CANCELLED"):
        complain(f"The backfill of {name} is {found['state']}.")
        sys.exit(EXIT_REFUSED)


def _awaited(session: Session, path: Sequence[str], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Waits for the end of a backfill; shows a bar on a terminal, else a line for each change."""
    pause, told = threading.Event(), -1
    lines = not (session.json or sys.stderr.isatty())
    with counting(f"Backfill of {path[1]}") as show:
        while found["state"] == "RUNNING":
            pause.wait(_LOOK_S)
            found = session.api.call("GET", path)
            show(found["records"], found["total"])
            if lines and found["state"] == "RUNNING" and found["records"] != told:
                told = found["records"]
                say(_progress(found))
    return found


def _progress(found: Mapping[str, Any]) -> str:
    part = "" if found["total"] is None else f" ({100 * found['records'] / max(1, found['total']):.0f}%)"
    return f"{_count(found['records'], found['total'])}{part} records"


def _count(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def _draw(found: Mapping[str, Any]) -> None:
    say(f"{found['state']}: {_progress(found)}", "green" if found["state"] in ("RUNNING", "COMPLETED") else "red")
    _draw_reads(found)
    if waiting := found.get("waiting_for"):
        say(waiting["text"], "yellow")
    if found["state"] != "COMPLETED":
        for one in found["positions"]:
            say(f"delivered up to {json.dumps(one)}")
    if found.get("trace"):
        say(found["trace"].rstrip())


def _draw_plan(found: Mapping[str, Any]) -> None:
    total = found["total"]
    say(
        "A dry run: how many records would be read is not known."
        if total is None
        else f"A dry run: {total:,} records would be read.",
        "yellow",
    )
    _draw_reads(found)
    say(f"They would be written to {found['writes']}.")


def _draw_reads(found: Mapping[str, Any]) -> None:
    reads = found["reads"]
    if reads and "kafka_topic" in reads[0]:
        rows = [
            [f"{one['kafka_topic']}-{one['kafka_partition']}", str(one["start_offset"]), str(one["end_offset"])]
            for one in reads
        ]
        table(["PARTITION", "FROM", "TO"], rows, "")
    else:
        for one in reads:
            say(json.dumps(one))


def _ranges(texts: Sequence[str]) -> object:
    found = [_OF_TOPIC.fullmatch(text) for text in texts]
    if len(texts) == 1 and found[0] is None:
        first, dots, last = texts[0].partition("..")
        if not dots or not first or not last:
            raise click.UsageError(f"--offsets {texts[0]} is not of the form FROM..TO, or TOPIC:PARTITION=START..END.")
        return {"from": first, "to": last}
    return [_range(text, match) for text, match in zip(texts, found, strict=True)]


def _range(text: str, match: re.Match[str] | None) -> dict[str, object]:
    if match is None:
        raise click.UsageError(f"--offsets {text} is not of the form TOPIC:PARTITION=START..END.")
    partition, start, end = map(int, match.groups()[1:])
    return {"kafka_topic": match[1], "kafka_partition": partition, "start_offset": start, "end_offset": end}


@click.group()
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
@file_argument(required=False)
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
        body = read_json(file)
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


@click.group()
@click.option("--url", help="Of the worker, as with each command.")
@click.option("--ca-file", help="As with each command.")
@click.option("--certificate", help="As with each command.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), help="As with each command.")
@click.pass_context
def connectors(context: click.Context, /, **common: str | None) -> None:
    """Look at and change the connectors of a running worker."""
    context.obj = common


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


def _say_progress(what: str, one: Mapping[str, Any]) -> None:
    """Prints a line with the progress, if the answer has one."""
    if told := one.get("progress"):
        done, total = told["done"], told["total"]
        part = f" ({100 * done / total:.0f}%)" if total else ""
        more = f", {told['text']}" if told.get("text") else ""
        say(f"{what}: {_count(done, total)} {told['unit']}{part}{more}")


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
    """Show the states of a connector and its tasks."""
    found = session.api.call("GET", ["connectors", name, "status"])

    def draw() -> None:
        parts = [("connector", found["connector"]), *((f"task {task['id']}", task) for task in found["tasks"])]
        table(["", "STATE", "WORKER"], [[what, state_text(one["state"]), one["worker_id"]] for what, one in parts], "")
        for what, one in parts:
            if trace and one.get("trace"):
                say(f"\n{what} failed:", "bold red")
                say(one["trace"].rstrip())
            if waits := one.get("waiting_for"):
                say(f"\n{what} stands still ({waits['reason']}):", "bold yellow")
                say(waits["text"])
            _say_progress(what, one)

    session.show(found, draw)


@connectors.command("explain")
@name_argument
@click.option("--settings/--no-settings", default=False, help="All settings with their origin.")
@asking
def explain(session: Session, name: str, settings: bool) -> None:
    """Show the waits and the progress of a connector and its tasks."""
    found = session.api.call("GET", ["connectors", name, "explain"])

    def draw() -> None:
        parts = [("connector", found["state"] or "-", found["waiting_for"])]
        parts += [(f"task {task['id']}", task["state"], task["waiting_for"]) for task in found["tasks"]]
        rows = [[what, state_text(state), why["reason"], why["text"]] for what, state, why in parts]
        table(["", "STATE", "WAITS FOR", ""], rows, "")
        for task in found["tasks"]:
            _say_progress(f"task {task['id']}", task)
        if told := found.get("backfill"):
            say(f"backfill: {told['state']}, {_count(told['records'], told['total'])} records")
        for what, _, why in parts:
            if why.get("stack"):
                since = f" (since {why['since']})" if "since" in why else ""
                say(f"\n{what} stands in{since}:", "bold")
                say("\n".join(why["stack"]))
        if found.get("roads"):
            say("")
            roads = [[f"{one['records']:,}", one["road"], one["why"] or ""] for one in found["roads"]]
            table(["RECORDS", "WENT AS", "BECAUSE OF"], roads, "")
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


def _state_command(verb: str, path: str, done: str, help_text: str) -> None:
    @connectors.command(verb, help=help_text)
    @name_argument
    @asking
    def command(session: Session, name: str) -> None:
        session.api.call("PUT", ["connectors", name, path])
        session.show({"name": name, "request": verb}, lambda: say(f"{name} {done}.", "green"))


_state_command("pause", "pause", "is going to rest", "Let a connector and its tasks rest.")
_state_command("resume", "resume", "is going on", "Resume a connector.")
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


for _command in (create, update, validate, preview, offsets, backfill):
    connectors.add_command(_command)
