"""What the workers of a group say of it, put together: who is in it, what each runs, and what is not in order.

Main types: ``ClusterView``, ``MemberView``. Main function: ``view_of``. Pure.

Thread: any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

Answer = Mapping[str, Any]
_MOST_NAMED: Final = 5


@dataclass(frozen=True)
class MemberView:
    """One member.

    Attributes:
        url: Its address, as the group knows it.
        leads: Whether it leads.
        given: What the leader has given it: ``connectors`` and ``tasks``.
        answer: What it says itself; None where it does not answer.
        error: Why it does not.
    """

    url: str
    leads: bool
    given: Answer
    answer: Answer | None = None
    error: str = ""

    @property
    def runs(self) -> dict[str, Any]:
        """What it runs, by its own word where there is one."""
        said = self.given if self.answer is None else self.answer
        return {"connectors": said["connectors"], "tasks": said["tasks"]}

    @property
    def config_offset(self) -> int | None:
        """How much of the config topic it has read."""
        return None if self.answer is None else self.answer["config_offset"]


@dataclass(frozen=True)
class ClusterView:
    """A group.

    Attributes:
        leading: What its leader says; where that says nothing, what the worker says that was asked.
        led: Whether it is the leader's word.
        members: By address.
        written: Up to where the config topic was written before the members were asked, as far as is known.
        findings: What is not in order, for people; empty where all is.
    """

    leading: Answer
    led: bool
    members: tuple[MemberView, ...]
    written: int
    findings: tuple[str, ...] = ()

    def state(self, member: MemberView) -> str:
        """In a word, how a member is."""
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
        """How much of the config topic a member has read that has read the most of it."""
        return max((one.config_offset for one in self.members if one.config_offset is not None), default=-1)

    @property
    def settled(self) -> bool:
        """Whether no member says what another one's word may have overtaken."""
        return not {"joining", "behind"} & {self.state(one) for one in self.members}

    def to_json(self) -> dict[str, Any]:
        """For programs."""
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
) -> ClusterView:
    """Puts together what was found out.

    Args:
        asked: What the worker says that was asked first.
        leading: What the leader says; None where there is none, or it does not answer.
        members: All that are known.
        leader_error: Why the leader does not answer; empty where there is none.
        written: Up to where the config topic was written before they were asked; less where that is not known.
    """
    word = asked if leading is None else leading
    ordered = tuple(sorted(members, key=lambda one: one.url))
    view = ClusterView(word, leading is not None, ordered, written)
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
    """Tasks by connector and number, those that follow each other together."""
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
    why = asked["obstacle"] or "the group deals out its work, or its broker cannot be reached; try again in a moment"
    return [f"No leader is known to {asked['worker_id']}: {why}"]


def _of_member(view: ClusterView, member: MemberView) -> str:
    match view.state(member):
        case "no answer":
            return (
                f"{member.url} does not answer: {member.error}. If it has ended, the group goes on without it after "
                "session.timeout.ms. If it runs, this machine cannot reach it at the address that its "
                "rest.advertised.host.name and rest.advertised.port give"
            )
        case "not in" if view.led:
            assert member.answer is not None
            return f"{member.url} is not in the group: {member.answer['obstacle']}"
        case "joining":
            return f"{member.url} does not run yet what the group gives it: the work is being dealt out"
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
            return [f"Nobody runs {what}: the work is being dealt out"]
        return [
            f"Nobody runs {what}: others get it{when}, unless its worker comes back (scheduled.rebalance.max.delay.ms)"
        ]
    return [f"The group deals out its work again{when}"] if when else []


def _units(said: Answer) -> tuple[frozenset[str], frozenset[tuple[str, int]]]:
    return frozenset(said["connectors"]), frozenset((one["connector"], one["task"]) for one in said["tasks"])
