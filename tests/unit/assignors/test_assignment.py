"""What must hold of every group, whatever happens to its members."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.assignors.assignment import LeaderMemory, Round, assign
from penstock.model import ConnectorTaskId
from penstock.model.states import NOTHING, Units

DELAY_MS = 5_000


class Group:
    """Members that do as they are told, in rounds that take no time."""

    def __init__(self, members: int, max_delay_ms: int = DELAY_MS) -> None:
        self.running = {f"m{number}": NOTHING for number in range(members)}
        self.configured = NOTHING
        self.memory = LeaderMemory()
        self.generation = 0
        self.now_ms = 0
        self.max_delay_ms = max_delay_ms

    def configure(self, **tasks: int) -> None:
        self.configured = Units.of(
            tasks, (ConnectorTaskId(name, number) for name, count in tasks.items() for number in range(count))
        )

    def round(self, *, deaf: str | None = None):
        self.generation += 1
        now = Round(self.configured, dict(self.running), self.generation, self.generation - 1, self.now_ms)
        self.memory, plan = assign(self.memory, now, self.max_delay_ms)
        for member, units in now.running.items():
            if member != deaf:
                self.running[member] = units - plan.revoked.get(member, NOTHING) + plan.assigned[member]
        return plan

    def settle(self) -> None:
        """Rounds as the members ask for them: after what was given up, and when a delay is over."""
        for _ in range(20):
            plan = self.round()
            self.now_ms += plan.delay_ms
            if not plan.revoked and not plan.delay_ms and not any(plan.assigned.values()):
                return
        raise AssertionError("the group does not come to rest")

    def sizes(self) -> list[tuple[int, int]]:
        return sorted((len(units.connectors), len(units.tasks)) for units in self.running.values())


def test_a_second_member_gets_its_share_in_the_second_round():
    group = Group(1)
    group.configure(a=2, b=2)
    group.round()
    group.running["m1"] = NOTHING

    first, second = group.round(), group.round()

    assert first.revoked == {"m0": Units.of(["a"], [ConnectorTaskId("a", 0), ConnectorTaskId("a", 1)])}
    assert not first.assigned["m1"]
    assert second.assigned["m1"] == first.revoked["m0"]


def test_work_of_a_member_that_is_gone_waits_for_it():
    group = Group(2)
    group.configure(a=1, b=1)
    group.settle()
    before = dict(group.running)
    lost = group.running.pop("m1")

    assert group.round().delay_ms == DELAY_MS
    assert group.running["m0"] == before["m0"]

    group.now_ms += DELAY_MS - 1
    group.running["m1"] = lost
    assert group.round().delay_ms == 0
    assert group.running == before


def test_work_of_a_member_that_stays_away_is_dealt_when_the_time_is_over():
    group = Group(2)
    group.configure(a=1, b=1)
    group.settle()
    del group.running["m1"]
    group.round()

    group.now_ms += DELAY_MS
    group.round()

    assert group.sizes() == [(2, 2)]


def test_without_a_delay_lost_work_is_dealt_at_once():
    group = Group(2, max_delay_ms=0)
    group.configure(a=1, b=1)
    group.settle()
    del group.running["m1"]

    assert group.round().delay_ms == 0

    assert group.sizes() == [(2, 2)]


def test_a_member_that_comes_meanwhile_gets_what_was_lost():
    group = Group(2)
    group.configure(a=1, b=1)
    group.settle()
    lost = group.running.pop("m1")
    group.round()
    group.running["m2"] = NOTHING
    group.round()

    group.now_ms += DELAY_MS
    group.round()

    assert group.running["m2"] == lost


def test_what_runs_on_two_members_is_taken_from_both_and_dealt_once():
    group = Group(2)
    group.configure(a=1)
    group.running = {"m0": Units.of(["a"]), "m1": Units.of(["a"])}

    assert group.round().revoked == {"m0": Units.of(["a"]), "m1": Units.of(["a"])}
    group.settle()

    assert group.sizes() == [(0, 1), (1, 0)] or group.sizes() == [(0, 0), (1, 1)]


@examples(30)
@given(st.data())
def test_a_group_that_is_left_alone_runs_everything_once_and_evenly(data):
    group = Group(data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0, 1, DELAY_MS])))
    names = st.sampled_from(["a", "b", "c", "d"])
    for step in data.draw(st.lists(st.sampled_from(["join", "leave", "wipe", "deaf", "config", "time"]), max_size=12)):
        members = sorted(group.running)
        if step == "join":
            group.running.setdefault(f"m{data.draw(st.integers(0, 5))}", NOTHING)
        elif step == "leave" and len(members) > 1:
            del group.running[data.draw(st.sampled_from(members))]
        elif step == "wipe":
            group.running[data.draw(st.sampled_from(members))] = NOTHING
        elif step == "config":
            group.configure(**data.draw(st.dictionaries(names, st.integers(0, 5), max_size=4)))
        elif step == "time":
            group.now_ms += DELAY_MS
        group.round(deaf=data.draw(st.sampled_from(members)) if step == "deaf" else None)

    group.settle()

    owned = Counter(unit for units in group.running.values() for unit in units)
    assert owned == Counter(group.configured)
    for kind in ("connectors", "tasks"):
        sizes = [len(getattr(units, kind)) for units in group.running.values()]
        assert max(sizes) - min(sizes) <= 1
    before = dict(group.running)
    group.round()
    assert group.running == before
