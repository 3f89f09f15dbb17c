"""``penstock cluster``: the workers of a group from the command line.

Main object: the click command ``cluster``. Any worker is asked; it names the leader, and that one the others, which are
asked side by side. What it means is in ``cluster_view``.

Exit codes: as of ``penstock.cli.session``, 4 where the worker is standalone, and 5 where the group is not in order.
Thread: the main thread of the command, and one for each worker that is asked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import click
from rich.text import Text

from penstock.cli.api_client import ApiClient, ApiError, Unreachable
from penstock.cli.cluster_view import Answer, ClusterView, MemberView, task_names, view_of
from penstock.cli.output import say, table
from penstock.cli.session import Session, asking
from penstock.errors import ConfigException

EXIT_NOT_IN_ORDER: Final = 5

_SIDE_BY_SIDE: Final = 16
#: What a worker says may have been overtaken when another one was asked.
_AGAIN_S: Final = 1.0
_COLOURS: Final = {"ok": "green", "no answer": "bold red", "not in": "bold red", "behind": "yellow"}


@click.command()
@click.option(
    "--timeout", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="Seconds for each answer."
)
@asking
def cluster(session: Session, timeout: float) -> None:
    """Show the workers of a group: who leads, what each runs, what waits; the exit code is 5 when it is not in order.

    Any worker of the group may be asked; the others are found through it.
    """
    found = look(session.api, timeout)
    session.show(found.to_json(), lambda: _draw(found))
    if found.findings:
        sys.exit(EXIT_NOT_IN_ORDER)


def look(api: ApiClient, timeout_s: float) -> ClusterView:
    """Asks all workers of a group; those and their leader once more where the group was about to change.

    Args:
        api: Of any of them.
        timeout_s: How long each answer may take.

    Raises:
        ApiError: it refuses, or is standalone.
        Unreachable: it does not answer.
    """
    first = _look(api, timeout_s, -1)
    if first.settled and all(one.config_offset in (None, first.read) for one in first.members):
        return first
    threading.Event().wait(_AGAIN_S)
    return _look(api, timeout_s, first.read)


def _look(api: ApiClient, timeout_s: float, written: int) -> ClusterView:
    asked: Answer = api.at(api.url, timeout_s).call("GET", ["cluster"])
    leading: Answer | None = asked if asked["is_leader"] else None
    error = ""
    if leading is None and asked["leader"] is not None:
        said = _ask(api, asked["leader"], timeout_s)
        leading, error = (None, said) if isinstance(said, str) else (said, "")
    if leading is not None and "members" not in leading:
        leading, error = None, "it does not lead any more; ask again"
    known = {one["member_id"]: one for one in (asked, leading) if one is not None}
    with ThreadPoolExecutor(_SIDE_BY_SIDE, "ask-worker") as pool:
        members = list(pool.map(partial(_seen, api, known, timeout_s), _members(asked, leading)))
    return view_of(asked, leading, members, error, written)


def _members(asked: Answer, leading: Answer | None) -> list[MemberView]:
    """All members, before they are asked."""
    if leading is None:
        scheme = urlsplit(asked["leader"] or "http:").scheme
        return [MemberView(f"{scheme}://{asked['worker_id']}/", False, asked, asked)]
    return [MemberView(one["url"], one["member_id"] == leading["member_id"], one) for one in leading["members"]]


def _seen(api: ApiClient, known: dict[str, Answer], timeout_s: float, member: MemberView) -> MemberView:
    """A member with what it says."""
    member_id = member.given["member_id"]
    said = known.get(member_id) or _ask(api, member.url, timeout_s)
    if isinstance(said, str):
        return replace(member, answer=None, error=said)
    if said["member_id"] not in (member_id, None):
        return replace(member, answer=None, error=f"the worker {said['worker_id']} answers there, another member")
    return replace(member, answer=said)


def _ask(api: ApiClient, url: str, timeout_s: float) -> Answer | str:
    """What a worker says; a text where it says nothing that helps."""
    try:
        found: Answer = api.at(url, timeout_s).call("GET", ["cluster"])
        return found
    except Unreachable as error:
        return error.reason
    except ApiError as error:
        return "it is no Penstock worker, and says nothing of the group" if error.status == 404 else str(error)
    except ConfigException as error:
        return str(error)


def _draw(found: ClusterView) -> None:
    leading = found.leading
    say(
        f"Group {leading['group_id']}, generation {leading['generation']}, "
        f"protocol {leading['protocol'] or '-'}, config topic {leading['config_topic']}",
        "bold",
    )
    rows: Sequence[Sequence[str | Text | None]] = [
        [
            one.url,
            "leader" if one.leads else " ",
            Text(found.state(one), style=_COLOURS.get(found.state(one), "")),
            None if one.config_offset is None else str(one.config_offset),
            ", ".join(one.runs["connectors"]),
            ", ".join(task_names(one.runs["tasks"])),
        ]
        for one in found.members
    ]
    table(["MEMBER", "", "STATE", "CONFIG OFFSET", "CONNECTORS", "TASKS"], rows, "")
    for text in found.findings:
        say(text, "yellow")
