"""``penstock connectors offsets``: the offsets of a connector, looked at and changed from the command line.

Main object: the click group ``offsets``. Thread: the main thread of the command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.cli.connector_files import read_json
from penstock.cli.output import say, table
from penstock.cli.session import Session, asking, file_argument, name_argument


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
