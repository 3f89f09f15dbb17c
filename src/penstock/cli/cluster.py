"""``penstock cluster``: the workers of a group from the command line.

Main object: the click command ``cluster``. It calls any worker, which names the leader; the leader names the other
workers, which it calls in parallel. The pure function ``view_of`` combines the answers (``GroupDescription``,
``MemberView``): the members of the group, the work of each, and the problems.

Exit codes: see ``penstock.cli.session``; also 4 if the worker is standalone, and 5 if the group has a problem.
Thread: the main thread of the command, and one more for each worker that it calls.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlsplit

import click
from rich.text import Text

from penstock.cli.session import ApiClient, ApiError, Session, Unreachable, asking, say, table
from penstock.errors import ConfigException

Answer = Mapping[str, Any]
_MOST_NAMED: Final = 5


@dataclass(frozen=True)
class MemberView:
    """One member.

    Attributes:
        leads: True if it is the leader.
        given: The work that the leader has assigned to it: ``connectors`` and ``tasks``.
        answer: Its own answer; None if it does not answer.
        error: The reason why it does not answer.
    """

    url: str
    leads: bool
    given: Answer
    answer: Answer | None = None
    error: str = ""

    @property
    def runs(self) -> dict[str, Any]:
        """The connectors and tasks of its own answer, or, without an answer, its assigned work."""
        said = self.given if self.answer is None else self.answer
        return {"connectors": said["connectors"], "tasks": said["tasks"]}

    @property
    def config_offset(self) -> int | None:
        """The offset up to which it has read the config topic."""
        return None if self.answer is None else self.answer["config_offset"]


@dataclass(frozen=True)
class GroupDescription:
    """The state of a group.

    Attributes:
        leading: The leader's answer; if it does not answer, the answer of the worker called first.
        led: True if it is the leader's answer.
        written: The known end of the config topic before the members were called.
        findings: The problems, as sentences; empty if there are none.
    """

    leading: Answer
    led: bool
    members: tuple[MemberView, ...]
    written: int
    findings: tuple[str, ...] = ()

    def state(self, member: MemberView) -> str:
        """The state of a member, in a word."""
        answer = member.answer
        if answer is None:
            return "no answer"
        if answer["obstacle"] is not None:
            return "not in"
        if answer["generation"] != self.leading["generation"] or _units(answer) != _units(member.given):
            return "joining"
        return "behind" if answer["config_offset"] < self.written else "ok"

    @property
    def read(self) -> int:
        """The highest offset of the config topic that a member has read."""
        return max((one.config_offset for one in self.members if one.config_offset is not None), default=-1)

    @property
    def settled(self) -> bool:
        """True if no member is joining, and all that answer have read the config topic up to its known end."""
        return not {"joining", "behind"} & {self.state(one) for one in self.members}

    def to_json(self) -> dict[str, Any]:
        """The description as JSON."""
        leading = self.leading
        return {
            **{key: leading[key] for key in ("group_id", "config_topic", "generation", "protocol", "leader")},
            "members": [
                {
                    "url": one.url,
                    "is_leader": one.leads,
                    "state": self.state(one),
                    "config_offset": one.config_offset,
                    **one.runs,
                    **({} if one.answer is not None else {"error": one.error}),
                }
                for one in self.members
            ],
            "waiting": leading.get("waiting", {"connectors": [], "tasks": []}),
            "next_rebalance_in_ms": leading["next_rebalance_in_ms"],
            "findings": list(self.findings),
        }


def view_of(
    asked: Answer, leading: Answer | None, members: Iterable[MemberView], leader_error: str = "", written: int = -1
) -> GroupDescription:
    """Combines the answers.

    Args:
        asked: The answer of the worker called first.
        leading: The answer of the leader; None if there is no leader, or it does not answer.
        leader_error: The reason why the leader does not answer; empty if there is no leader.
        written: The end of the config topic before they were called; negative if unknown.
    """
    word = asked if leading is None else leading
    ordered = tuple(sorted(members, key=lambda one: one.url))
    view = GroupDescription(word, leading is not None, ordered, written)
    findings = _of_leader(asked, leading, leader_error)
    findings += [text for one in ordered if (text := _of_member(view, one))]
    findings += _of_addresses(ordered) + _of_waiting(word)
    if "warning" in word:
        findings.append(
            f"Warning: {word['warning']} ({word['config_topic']}): what one group configures, the other changes. Give "
            "each group.id topics of its own"
        )
    return replace(view, findings=tuple(findings))


def named(units: Answer) -> str:
    """Connectors and tasks in a few words.

    >>> tasks = [{"connector": "a", "task": n} for n in (0, 1, 2, 4)]
    >>> named({"connectors": ["a", "b"], "tasks": tasks})
    'a, b, a-0..2, a-4'
    """
    return ", ".join((*units["connectors"], *task_names(units["tasks"])))


def task_names(tasks: Sequence[Answer]) -> list[str]:
    """Tasks by connector and number; consecutive numbers are joined."""
    names: list[str] = []
    ordered = sorted((task["connector"], task["task"]) for task in tasks)
    for (connector, _), run in groupby(enumerate(ordered), key=lambda one: (one[1][0], one[1][1] - one[0])):
        numbers = [number for _, (_, number) in run]
        names.append(f"{connector}-{numbers[0]}" + (f"..{numbers[-1]}" if len(numbers) > 1 else ""))
    return names


def _of_leader(asked: Answer, leading: Answer | None, error: str) -> list[str]:
    if leading is not None:
        return []
    if error:
        return [
            f"The leader {asked['leader']} does not answer, so that only this worker's own word is shown: {error}. It "
            "may have ended: the group has another one after session.timeout.ms. If it runs, this machine cannot reach "
            "it there"
        ]
    why = asked["obstacle"] or "the group is assigning its work, or its broker cannot be reached; try again in a moment"
    return [f"No leader is known to {asked['worker_id']}: {why}"]


def _of_member(view: GroupDescription, member: MemberView) -> str:
    match view.state(member):
        case "no answer":
            return (
                f"{member.url} does not answer: {member.error}. If it has ended, the group continues without it after "
                "session.timeout.ms. If it runs, this machine cannot reach it at the address that its "
                "rest.advertised.host.name and rest.advertised.port give"
            )
        case "not in" if view.led:
            assert member.answer is not None
            return f"{member.url} is not in the group: {member.answer['obstacle']}"
        case "joining":
            return f"{member.url} does not run its assigned work yet: the group is assigning the work"
        case "behind":
            return (
                f"{member.url} has read the config topic up to {member.config_offset}, but it was written up to "
                f"{view.written}: it acts on an old configuration. Its log says why it cannot read "
                f"{view.leading['config_topic']}"
            )
    return ""


def _of_addresses(members: Sequence[MemberView]) -> list[str]:
    return [
        f"{count} members say that they are at {url}: requests to them reach one. Set rest.advertised.host.name and "
        "rest.advertised.port of each so that others reach it there"
        for url, count in sorted(Counter(one.url for one in members).items())
        if count > 1
    ]


def _of_waiting(leading: Answer) -> list[str]:
    waiting, delay_ms = leading.get("waiting"), leading["next_rebalance_in_ms"]
    when = "" if delay_ms is None else f" in {delay_ms / 1000:.1f} s"
    if waiting and (waiting["connectors"] or waiting["tasks"]):
        first = {"connectors": waiting["connectors"][:_MOST_NAMED], "tasks": waiting["tasks"][:_MOST_NAMED]}
        more = sum(len(waiting[kind]) - len(first[kind]) for kind in first)
        what = named(first) + (f" and {more} more" if more else "")
        if delay_ms is None:
            return [f"No worker runs {what}: the group is assigning the work"]
        return [
            f"No worker runs {what}: other workers get it{when}, unless its worker comes back "
            "(scheduled.rebalance.max.delay.ms)"
        ]
    return [f"The group assigns its work again{when}"] if when else []


def _units(said: Answer) -> tuple[frozenset[str], frozenset[tuple[str, int]]]:
    return frozenset(said["connectors"]), frozenset((one["connector"], one["task"]) for one in said["tasks"])


EXIT_NOT_IN_ORDER: Final = 5

_SIDE_BY_SIDE: Final = 16
#: The pause before all workers are called again: an answer may be outdated by the time of the next call.
_AGAIN_S: Final = 1.0
_COLOURS: Final = {"ok": "green", "no answer": "bold red", "not in": "bold red", "behind": "yellow"}


@click.command()
@click.option(
    "--timeout", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="Seconds for each answer."
)
@asking
def cluster(session: Session, timeout: float) -> None:
    """Show the workers of a group: the leader, the work of each, and what waits; the exit code is 5 if there is a
    problem.

    Any worker of the group will do: it leads to all other workers.
    """
    found = look(session.api, timeout)
    session.show(found.to_json(), lambda: _draw(found))
    if found.findings:
        sys.exit(EXIT_NOT_IN_ORDER)


def look(api: ApiClient, timeout_s: float) -> GroupDescription:
    """Calls all workers of a group, and calls them again after a pause if the group was changing.

    Raises:
        ApiError: the called worker refuses, or is standalone.
        Unreachable: the called worker does not answer.
    """
    first = _look(api, timeout_s, -1)
    if first.settled and all(one.config_offset in (None, first.read) for one in first.members):
        return first
    threading.Event().wait(_AGAIN_S)
    return _look(api, timeout_s, first.read)


def _look(api: ApiClient, timeout_s: float, written: int) -> GroupDescription:
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
    """All members, before they are called."""
    if leading is None:
        scheme = urlsplit(asked["leader"] or "http:").scheme
        return [MemberView(f"{scheme}://{asked['worker_id']}/", False, asked, asked)]
    return [MemberView(one["url"], one["member_id"] == leading["member_id"], one) for one in leading["members"]]


def _seen(api: ApiClient, known: dict[str, Answer], timeout_s: float, member: MemberView) -> MemberView:
    """A member with its own answer."""
    member_id = member.given["member_id"]
    said = known.get(member_id) or _ask(api, member.url, timeout_s)
    if isinstance(said, str):
        return replace(member, answer=None, error=said)
    if said["member_id"] not in (member_id, None):
        return replace(member, answer=None, error=f"the worker {said['worker_id']} answers there, another member")
    return replace(member, answer=said)


def _ask(api: ApiClient, url: str, timeout_s: float) -> Answer | str:
    """Calls a worker; returns an error text if its answer cannot be used."""
    try:
        found: Answer = api.at(url, timeout_s).call("GET", ["cluster"])
        return found
    except Unreachable as error:
        return error.reason
    except ApiError as error:
        return "it is no Penstock worker, and says nothing of the group" if error.status == 404 else str(error)
    except ConfigException as error:
        return str(error)


def _draw(found: GroupDescription) -> None:
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
