"""A leader's round from bytes to bytes, and what holds of every group, whatever happens to its members."""

import json
from collections import Counter
from pathlib import Path
from types import MappingProxyType

import pytest
from differential.cluster import units_of
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.herder.cluster.assignment import LeaderMemory, LedRound, Round, assign, assign_eagerly, plan_round
from penstock.herder.cluster.connect_protocol import (
    Assignment,
    AssignmentError,
    MemberMetadata,
    decode_assignment,
    decode_metadata,
    encode_metadata,
)
from penstock.model import ConnectorTaskId
from penstock.model.cluster_config import ClusterConfig, ConfiguredConnector
from penstock.model.states import NOTHING, Units, all_units

_FILE = Path(__file__).parents[3] / "data" / "cluster" / "rounds.jsonl"
SCENARIOS = [one for one in map(json.loads, _FILE.read_text("ascii").splitlines()) if "rounds" in one["case"]]
LEADER_URL, OTHER_URL = "http://leader:8083/", "http://other:8083/"


def config_of(offset: int = 5, **tasks: int) -> ClusterConfig:
    """Connectors with so many tasks."""
    connectors = {name: ConfiguredConnector({}, ({},) * count) for name, count in tasks.items()}
    return ClusterConfig(offset, MappingProxyType(connectors))


def says(url: str, offset: int = 5, units: Units = NOTHING, version: int = 2) -> bytes:
    current = Assignment("l", LEADER_URL, offset, units) if units else None
    return encode_metadata(MemberMetadata(url, offset, current), version)


def led(members: dict[str, bytes], protocol: str = "sessioned", generation: int = 1, last: int = 0) -> LedRound:
    return LedRound(protocol, "l", members, generation, last, 1_000)


def test_an_incremental_round_tells_each_member_what_is_new_and_who_leads():
    planned = plan_round(led({"l": says(LEADER_URL), "m": says(OTHER_URL, 3)}), config_of(a=2, b=1), LeaderMemory(), 0)

    told = {member: decode_assignment(data) for member, data in planned.assignments.items()}
    assert all((one.leader, one.leader_url, one.config_offset) == ("l", LEADER_URL, 5) for one in told.values())
    assert Units.union(one.assigned for one in told.values()).ordered() == all_units(config_of(a=2, b=1).task_counts)
    assert {len(one.assigned.connectors) for one in told.values()} == {1}
    assert (planned.behind_offset, planned.delay_ms) == (None, 0)
    assert planned.memory.generation == 1
    assert [data[:4] for data in planned.assignments.values()] == [bytes.fromhex("00020000")] * 2


def test_what_members_run_already_is_not_told_again():
    everything = all_units(config_of(a=1).task_counts)
    planned = plan_round(led({"l": says(LEADER_URL, units=everything)}), config_of(a=1), LeaderMemory(), 0)
    assert decode_assignment(planned.assignments["l"]) == Assignment("l", LEADER_URL, 5)


def test_the_version_is_that_of_the_protocol_that_was_picked():
    for protocol, version in (("default", 0), ("compatible", 1), ("sessioned", 2)):
        members = {"l": says(LEADER_URL, version=version)}
        planned = plan_round(led(members, protocol), config_of(a=1), LeaderMemory(), 0)
        assert planned.assignments["l"][:2] == version.to_bytes(2, "big")
        assert set(decode_assignment(planned.assignments["l"]).assigned) == {"a", ConnectorTaskId("a", 0)}


def test_an_eager_round_deals_out_everything_and_leaves_the_memory_alone():
    memory = LeaderMemory(generation=7)
    members = {"l": says(LEADER_URL, version=0), "m": says(OTHER_URL, version=0)}
    planned = plan_round(led(members, "default"), config_of(a=1, b=1), memory, 300_000)
    told = [decode_assignment(planned.assignments[member]).assigned for member in ("l", "m")]
    assert told == [
        Units.of(["a"], [ConnectorTaskId("a", 0)]),
        Units.of(["b"], [ConnectorTaskId("b", 0)]),
    ]
    assert planned.memory is memory


@pytest.mark.parametrize("protocol", ["default", "compatible", "sessioned"])
def test_a_leader_that_has_read_less_than_a_member_tells_all_to_join_again(protocol):
    version = {"default": 0, "compatible": 1, "sessioned": 2}[protocol]
    memory = LeaderMemory(generation=3)
    members = {"l": says(LEADER_URL, 5, version=version), "m": says(OTHER_URL, 1_000_000, version=version)}

    planned = plan_round(led(members, protocol), config_of(5, a=1), memory, 0)

    assert planned.behind_offset == 1_000_000
    assert planned.memory is memory
    for data in planned.assignments.values():
        told = decode_assignment(data)
        assert told == Assignment("l", LEADER_URL, 1_000_000, error=AssignmentError.CONFIG_MISMATCH)
    # With what the leader reads then, the same round is planned.
    assert plan_round(led(members, protocol), config_of(1_000_000, a=1), memory, 0).behind_offset is None


def test_a_java_leader_that_is_behind_sends_these_bytes():
    # Seen on the wire of a Java leader whose member claimed to have read a million records.
    members = {"l": says("u", 5), "m": says("v", 1_000_000)}
    assert plan_round(led(members), config_of(5), LeaderMemory(), 0).assignments["m"] == bytes.fromhex(
        "00020001" + "00016c" + "000175" + "00000000000f4240" + "00000000" * 3
    )


def test_members_are_told_the_offset_that_was_decided_with():
    # They read up to there before they start anything.
    planned = plan_round(led({"l": says(LEADER_URL, 5)}), config_of(9, a=1), LeaderMemory(), 0)
    assert decode_assignment(planned.assignments["l"]).config_offset == 9


@pytest.mark.parametrize(
    "broken", [b"", b"\0\2\0\5ab", b"\xff\xff\0\0", encode_metadata(MemberMetadata("x", 1), 2)[:-2]]
)
def test_a_member_that_cannot_be_read_gets_nothing_and_is_named(broken, caplog):
    planned = plan_round(led({"l": says(LEADER_URL), "odd": broken}), config_of(a=2), LeaderMemory(), 0)

    assert decode_assignment(planned.assignments["odd"]) == Assignment("l", LEADER_URL, 5)
    assert set(decode_assignment(planned.assignments["l"]).assigned) == set(all_units(config_of(a=2).task_counts))
    assert "The member odd of the group gets no work" in caplog.text


def test_a_delay_is_told_to_all_and_to_the_caller():
    units = all_units(config_of(a=2).task_counts)
    memory = LeaderMemory(assigned=units, generation=1, members=frozenset({"l", "m"}))
    planned = plan_round(led({"l": says(LEADER_URL)}, generation=2, last=1), config_of(a=2), memory, 60_000)
    assert planned.delay_ms == decode_assignment(planned.assignments["l"]).delay_ms == 60_000


def test_connectors_that_are_not_whole_have_no_tasks_to_deal():
    config = ClusterConfig(1, MappingProxyType({"a": ConfiguredConnector({}, (), inconsistent=True)}))
    assert all_units(config.task_counts) == Units.of(["a"])


def keeps_its_order(scenario) -> bool:
    """Whether what members run comes out of bytes in its order: those keep the tasks of a connector together."""
    for members in scenario["case"]["rounds"]:
        for units in map(units_of, members["running"].values()):
            current = decode_metadata(says(OTHER_URL, units=units)).current
            if units and (current is None or current.assigned != units):
                return False
    return True


IN_ORDER = [scenario for scenario in SCENARIOS if keeps_its_order(scenario)]


def test_enough_recorded_scenarios_can_be_told_in_bytes():
    assert len(IN_ORDER) >= 10


@pytest.mark.parametrize("recorded", IN_ORDER, ids=range(len(IN_ORDER)))
def test_whole_rounds_come_out_as_java_decides_them(recorded):
    memory, plans = LeaderMemory(), []
    for one in recorded["case"]["rounds"]:
        configured = units_of(one["configured"])
        tasks = {name: sum(task.connector == name for task in configured.tasks) for name in configured.connectors}
        members = {member: says(OTHER_URL, units=units_of(units)) for member, units in one["running"].items()}
        begun = LedRound("sessioned", "a1", members, one["generation"], one["last_completed"], one["now_ms"])
        planned = plan_round(begun, config_of(**tasks), memory, recorded["case"]["max_delay_ms"])
        memory = planned.memory
        told = {member: decode_assignment(data) for member, data in planned.assignments.items()}
        plans.append(
            (
                planned.delay_ms,
                {m: set(t.assigned) for m, t in told.items() if t.assigned},
                {m: set(t.revoked) for m, t in told.items() if t.revoked},
            )
        )
    assert plans == [
        (
            plan["delay_ms"],
            *(
                {member: set(units_of(units)) for member, units in plan[kind].items()}
                for kind in ("assigned", "revoked")
            ),
        )
        for plan in recorded["java"]["plans"]
    ]


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
        """Rounds as the members ask for them: after what was members up, and when a delay is over."""
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


def test_connectors_then_tasks_go_to_the_members_in_turns():
    tasks = [ConnectorTaskId("b", 1), ConnectorTaskId("b", 0), ConnectorTaskId("a", 0)]

    shares = assign_eagerly({"y", "x"}, Units.of(["c", "b", "a"], tasks))

    assert shares == {
        "x": Units.of(["a", "c"], [ConnectorTaskId("b", 0)]),
        "y": Units.of(["b"], [ConnectorTaskId("a", 0), ConnectorTaskId("b", 1)]),
    }


def test_a_member_without_a_share_is_there_too():
    assert assign_eagerly(["x", "y"], Units.of(["a"])) == {"x": Units.of(["a"]), "y": Units()}
