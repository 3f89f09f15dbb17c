"""A task that a worker makes anew, because an instance of it has ended by itself."""

from __future__ import annotations

from dataclasses import replace

from testkit.doubles.control_plane import FakeTask, running
from testkit.waiting import await_true

from penstock.model import ConnectorTaskId, ConnectorType, State
from penstock.worker.task.slot import (
    StateReport,
    TaskRequest,
)
from penstock.worker.worker import Worker

TASK = ConnectorTaskId("c", 0)


def test_an_instance_that_comes_again_knows_that_and_whether_it_is_to_rest() -> None:
    made: list[FakeTask] = []

    def make(request: TaskRequest, report: StateReport) -> FakeTask:
        made.append(FakeTask(request, report))
        return made[-1]

    with running() as setup:
        parts = replace(setup.worker._parts, make_task=make)
        worker = Worker(parts, setup.herder, setup.herder)
        worker.start_task(TaskRequest(TASK, ConnectorType.SOURCE, {}, {}, dict, False, 1), None)
        await_true(lambda: len(made) == 1)
        worker.pause_task(TASK)
        made[0].report(State.RESTARTING, "its transaction was lost")
        await_true(lambda: len(made) == 2)

        assert [task.request.again for task in made] == [False, True]
        assert [task.request.paused for task in made] == [False, True]
        worker.stop_task(TASK).result(10)
