"""``penstock connectors backfill``: reads a range again while a connector runs, or shows the progress of that.

Main object: the command ``backfill``. Thread: the main thread of the command.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from penstock.cli.output import complain, counting, say, table
from penstock.cli.session import EXIT_REFUSED, Session, asking, name_argument

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
    times = {} if begin is None else {"from": begin}
    body: dict[str, Any] = (
        {"offsets": _ranges(offsets)} if offsets else {**times, **({} if end is None else {"to": end})}
    )
    if of is not None:
        body["of"] = of
    found = session.api.call("POST", path, body=body, query={"dry_run": "true"} if dry_run else {})
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
    """Waits for the end of a backfill: with a bar on a terminal, else with a line for each change."""
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
    total = found["total"]
    of = "" if total is None else f" of {total:,} ({100 * found['records'] / max(1, total):.0f}%)"
    return f"{found['records']:,}{of} records"


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
