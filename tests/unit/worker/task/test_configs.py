"""What the worker makes of a connector's task configurations."""

import pytest
from testkit.connectors.probes import ProbeTask

from penstock.connectors.file import FileStreamSourceTask
from penstock.errors import ConnectException
from penstock.plugins.stock import TASK_CLASSES
from penstock.worker.task.configs import changed, check_count, class_name, complete, load_class


class Outer:
    """Holds a nested class."""

    class Inner:
        """Is named with a colon."""


class OwnTask(FileStreamSourceTask):
    """Does something of its own."""


def test_a_placeholder_is_put_back_only_where_the_value_is_that_of_the_placeholder() -> None:
    raw = {"password": "${env:SECRET}", "user": "${env:USER}", "file": "x"}
    resolved = {"password": "hunter2", "user": "ann", "file": "x"}
    (task,) = complete(
        [{"password": "hunter2", "user": "per-task", "file": "y"}],
        task_class=ProbeTask,
        sink=False,
        raw=raw,
        resolved=resolved,
    )
    assert task == {
        "password": "${env:SECRET}",
        "user": "per-task",
        "file": "y",
        "task.class": "testkit.connectors.probes.ProbeTask",
    }


def test_sink_tasks_get_the_topics_with_their_placeholder() -> None:
    raw, resolved = {"topics": "${env:T}"}, {"topics": "orders"}
    assert complete([{}], task_class=ProbeTask, sink=True, raw=raw, resolved=resolved)[0]["topics"] == "${env:T}"
    assert "topics" not in complete([{}], task_class=ProbeTask, sink=False, raw=raw, resolved=resolved)[0]


@pytest.mark.parametrize(
    ("new", "old", "now", "then", "expected"),
    [
        ([{"a": "1"}], [{"a": "1"}], {"x": "1"}, {"x": "1"}, False),
        ([{"a": "2"}], [{"a": "1"}], {"x": "1"}, {"x": "1"}, True),
        ([{"a": "1"}], [{"a": "1"}, {}], {"x": "1"}, {"x": "1"}, True),
        ([{"a": "1"}], [{"a": "1"}], {"x": "2"}, {"x": "1"}, True),
        ([{"a": "1"}], [{"a": "1"}], {"x": "1"}, None, True),
        ([], [], {"x": "2"}, {"x": "1"}, False),
    ],
)
def test_tasks_are_restarted_when_they_or_their_connector_changed(
    new: list[dict[str, str]],
    old: list[dict[str, str]],
    now: dict[str, str],
    then: dict[str, str] | None,
    expected: bool,
) -> None:
    assert changed(new, old, connector_now=now, connector_then=then) is expected


def test_as_many_tasks_as_allowed_pass() -> None:
    check_count("a", 2, 2)
    with pytest.raises(ConnectException, match=r"connector a has generated 3 .*tasks\.max\.enforce=false"):
        check_count("a", 3, 2)


def test_a_class_is_found_again_by_its_path() -> None:
    assert load_class(class_name(ProbeTask)) is ProbeTask
    assert class_name(Outer.Inner).endswith(":Outer.Inner")
    with pytest.raises(ConnectException, match=r"gone\.Task cannot be imported"):
        load_class("gone.Task")


@pytest.mark.parametrize("java_name", TASK_CLASSES)
def test_a_task_class_that_java_has_is_stored_under_javas_name_and_found_by_both(java_name):
    cls = load_class(java_name)

    assert vars(cls)["java_name"] == java_name
    assert class_name(cls) == java_name
    assert complete([{}], task_class=cls, sink=False, raw={}, resolved={}) == [{"task.class": java_name}]
    assert load_class(f"{cls.__module__}.{cls.__qualname__}") is cls


def test_a_class_that_extends_such_a_task_keeps_its_own_name():
    assert class_name(OwnTask).endswith("test_configs.OwnTask")
