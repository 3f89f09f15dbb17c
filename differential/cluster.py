"""Compares how work is dealt out in a group with Kafka Connect's own leader: ``python -m differential.cluster``.

A case is either a scenario, some rounds of a group whose members join, leave, crash, miss answers and bring back what
they ran, while connectors come and go; or one message of the group's protocol, as bytes. Both go through Penstock's
functions and Java's classes, which need a JDK. ``--record FILE`` keeps cases and Java's answers for the tests.

Main functions: ``main``, ``answer_here``. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.java_source import NoCompilerError

from differential.java import java_answers
from penstock.herder.cluster.assignment import LeaderMemory, Round, RoundPlan, assign
from penstock.herder.cluster.connect_protocol import (
    Assignment,
    AssignmentError,
    MemberMetadata,
    encode_assignment,
    encode_metadata,
)
from penstock.model import ConnectorTaskId
from penstock.model.states import NOTHING, Units

_PROGRAM: Final = "org.apache.kafka.connect.runtime.distributed.Assignments"
#: Sets of Java give these names back in their order, in which ours come, too.
_MEMBERS: Final = [f"a{number}" for number in range(1, 7)]


def units_json(units: Units) -> list[object]:
    """Units as the Java program reads them."""
    return [*units.connectors, *(list(task) for task in units.tasks)]


def units_of(given: Sequence[Any]) -> Units:
    """Units as the Java program writes them."""
    return Units.of(
        (one for one in given if isinstance(one, str)),
        (ConnectorTaskId(*one) for one in given if not isinstance(one, str)),
    )


def answer_here(case: Mapping[str, Any]) -> dict[str, Any]:
    """What Penstock makes of a case, in the form of Java's answer."""
    if "rounds" not in case:
        return _bytes_here(case)
    memory, plans = LeaderMemory(), []
    for given in case["rounds"]:
        running = {member: units_of(units) for member, units in given["running"].items()}
        now = Round(
            units_of(given["configured"]), running, given["generation"], given["last_completed"], given["now_ms"]
        )
        memory, plan = assign(memory, now, case["max_delay_ms"])
        plans.append(_plan_json(plan))
    return {"plans": plans}


def _plan_json(plan: RoundPlan) -> dict[str, Any]:
    return {
        "delay_ms": plan.delay_ms,
        "assigned": {member: units_json(units) for member, units in plan.assigned.items() if units},
        "revoked": {member: units_json(units.ordered()) for member, units in plan.revoked.items() if units},
    }


def _bytes_here(case: Mapping[str, Any]) -> dict[str, Any]:
    assignment = Assignment(
        case["leader"],
        case["url"],
        case["config_offset"],
        units_of(case["assigned"]),
        units_of(case["revoked"]),
        case["delay_ms"],
        AssignmentError(case["error"]),
    )
    metadata = MemberMetadata(case["url"], case["config_offset"], None if case["idle"] else assignment)
    return {
        "assignment": encode_assignment(assignment, case["version"]).hex(),
        "metadata": encode_metadata(metadata, case["version"]).hex(),
    }


def comparable(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer without what has no meaning: the order of what is revoked, which Java takes from a hash table."""
    if "plans" not in answer:
        return answer
    plans = [
        {
            **plan,
            "revoked": {member: units_json(units_of(units).ordered()) for member, units in plan["revoked"].items()},
        }
        for plan in answer["plans"]
    ]
    return {"plans": plans}


# ------------------------------------------------------------------ cases
class _Group:
    """A group of workers in which things happen at random; its rounds are decided here."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._max_delay_ms = chance.choice([0, 1, 5_000, 300_000])
        self._memory = LeaderMemory()
        self._running: dict[str, Units] = {_MEMBERS[0]: NOTHING}
        self._configured: dict[str, int] = {}
        self._left: dict[str, Units] = {}
        self._now_ms = 1_000
        self._generation = self._completed = 0

    def scenario(self, rounds: int) -> dict[str, Any]:
        """A scenario of so many rounds."""
        return {"max_delay_ms": self._max_delay_ms, "rounds": [self._round() for _ in range(rounds)]}

    def _round(self) -> dict[str, Any]:
        for _ in range(self._chance.choice([0, 1, 1, 2, 4])):
            self._chance.choice([self._join, self._leave, self._configure, self._configure, self._forget])()
        self._now_ms += self._chance.choice([1, 100, 2_000, 5_000, 400_000])
        self._generation += self._chance.choice([1, 1, 1, 1, 2])
        configured = Units.of(
            self._configured,
            (ConnectorTaskId(name, number) for name, count in self._configured.items() for number in range(count)),
        )
        now = Round(configured, dict(self._running), self._generation, self._completed, self._now_ms)
        self._memory, plan = assign(self._memory, now, self._max_delay_ms)
        if self._chance.random() < 0.9:
            self._completed = self._generation
        for member, units in now.running.items():
            if self._chance.random() < 0.93:
                self._running[member] = units - plan.revoked.get(member, NOTHING) + plan.assigned[member]
        return {
            "configured": units_json(now.configured),
            "running": {member: units_json(units) for member, units in now.running.items()},
            "generation": now.generation,
            "last_completed": now.last_completed,
            "now_ms": now.now_ms,
        }

    def _join(self) -> None:
        member = self._chance.choice(_MEMBERS)
        if member not in self._running:
            # One that was cut off for a while comes back with what it ran.
            back = self._left.get(member, NOTHING)
            self._running[member] = back if self._chance.random() < 0.3 else NOTHING

    def _leave(self) -> None:
        if len(self._running) > 1:
            member = self._chance.choice(sorted(self._running))
            self._left[member] = self._running.pop(member)

    def _configure(self) -> None:
        name = f"c{self._chance.randrange(8)}"
        if name in self._configured and self._chance.random() < 0.3:
            del self._configured[name]
        else:
            self._configured[name] = self._chance.choice([0, 1, 1, 2, 3, 8])

    def _forget(self) -> None:
        member = self._chance.choice(sorted(self._running))
        self._running[member] = NOTHING


def _message(chance: random.Random) -> dict[str, Any]:
    names = ["a", "local-file-source", "Größe", "x-1"]

    def units() -> list[object]:
        # Java keeps connectors in a hash table: one alone has one order.
        name = chance.choice(names)
        connector = [name] if chance.random() < 0.5 else []
        return [*connector, *([name, number] for number in range(chance.randrange(4)))]

    version = chance.choice([0, 1, 2])
    return {
        "version": version,
        "url": chance.choice(["http://127.0.0.1:8083/", "https://[::1]:8443/", ""]),
        "leader": chance.choice(["connect-127.0.0.1:8083-0f1e", "m", ""]),
        "config_offset": chance.choice([-1, 0, 21, 2**40]),
        "error": chance.choice([0, 0, 1]),
        "assigned": units(),
        "revoked": [] if version == 0 else units(),
        "delay_ms": 0 if version == 0 else chance.choice([0, 1, 300_000]),
        "idle": chance.random() < 0.3,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status: 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m differential.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="equal seeds make equal cases (%(default)s)")
    parser.add_argument("--count", type=int, default=1_000, help="how many scenarios and messages, each (%(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of a scenario (%(default)s)")
    parser.add_argument("--record", type=Path, help="where to keep the cases with Java's answers")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    cases = [_Group(chance).scenario(options.rounds) for _ in range(options.count)]
    cases += [_message(chance) for _ in range(options.count)]
    try:
        with tempfile.TemporaryDirectory() as directory:
            answers = java_answers(cases, Path(directory), _PROGRAM)
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    found = 0
    for case, answer in zip(cases, answers, strict=True):
        here = answer_here(case)
        if comparable(here) != comparable(answer):
            found += 1
            print(f"case {json.dumps(case)}\n  here {json.dumps(here)}\n  Java {json.dumps(answer)}", flush=True)
    if options.record:
        lines = (json.dumps({"case": case, "java": answer}) for case, answer in zip(cases, answers, strict=True))
        options.record.write_text("\n".join(lines) + "\n", "ascii")
    print(f"seed {options.seed}: {len(cases)} cases, {found} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
