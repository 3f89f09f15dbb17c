"""The eager protocol deals out everything in turns."""

from penstock.assignors.assignment import assign_eagerly
from penstock.model import ConnectorTaskId
from penstock.model.states import Units


def test_connectors_then_tasks_go_to_the_members_in_turns():
    tasks = [ConnectorTaskId("b", 1), ConnectorTaskId("b", 0), ConnectorTaskId("a", 0)]

    shares = assign_eagerly({"y", "x"}, Units.of(["c", "b", "a"], tasks))

    assert shares == {
        "x": Units.of(["a", "c"], [ConnectorTaskId("b", 0)]),
        "y": Units.of(["b"], [ConnectorTaskId("a", 0), ConnectorTaskId("b", 1)]),
    }


def test_a_member_without_a_share_is_there_too():
    assert assign_eagerly(["x", "y"], Units.of(["a"])) == {"x": Units.of(["a"]), "y": Units()}
