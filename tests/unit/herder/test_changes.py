"""Backfills asked of the herder, with doubles: when they begin, how they end, and who is refused one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from testkit.doubles.control_plane import SINK, SOURCE, Setup, running
from testkit.waiting import await_true

from penstock.errors import AlreadyExistsException, BadRequestException, ConflictException, NotFoundException
from penstock.model import TargetState
from penstock.model.payloads import BackfillRange, BackfillRequest

RANGE = BackfillRequest(ranges=[BackfillRange("t", 0, 5, 12)])


@pytest.fixture
def setup() -> Iterator[Setup]:
    with running() as started:
        yield started


def create(setup: Setup, cls: str = SINK, target: TargetState = TargetState.STARTED) -> None:
    settings = {"connector.class": cls, **({"topics": "t"} if cls == SINK else {})}
    setup.herder.put_connector("a", settings, target=target).result(10)
    if target is TargetState.STARTED:
        setup.await_state("a", "RUNNING", ["RUNNING"])


def begin(setup: Setup, request: BackfillRequest = RANGE) -> Any:
    return setup.herder.start_backfill("a", request).result(10)


def ended(setup: Setup) -> Any:
    await_true(lambda: setup.herder.backfill("a").result(10)["state"] != "RUNNING")
    return setup.herder.backfill("a").result(10)


def test_a_plan_begins_nothing(setup: Setup) -> None:
    create(setup)
    plan = begin(setup, BackfillRequest(start_ms=10, end_ms=20, dry_run=True))
    assert [(one["start_offset"], one["end_offset"]) for one in plan["reads"]] == [(10, 20)]
    assert (plan["total"], plan["writes"]) == (10, "its target")
    with pytest.raises(NotFoundException, match="Connector a has had no backfill on this worker"):
        setup.herder.backfill("a").result(10)


def test_one_runs_at_a_time_and_completes(setup: Setup) -> None:
    create(setup)
    assert begin(setup)["state"] == "RUNNING"
    with pytest.raises(AlreadyExistsException, match="Connector a has a backfill that began"):
        begin(setup)
    setup.tasks[-1].all_done = True  # type: ignore[attr-defined]
    body = ended(setup)
    assert (body["state"], body["records"]) == ("COMPLETED", 7)
    assert begin(setup)["state"] == "RUNNING"
    setup.herder.cancel_backfill("a").result(10)
    assert ended(setup)["state"] == "CANCELLED"
    assert setup.state("a") == ("RUNNING", ["RUNNING"])


@pytest.mark.parametrize("request_", ["stop_connector", "restart_connector", "delete_connector"])
def test_one_ends_with_the_instance_of_its_connector(setup: Setup, request_: str) -> None:
    create(setup)
    begin(setup)
    task = setup.tasks[-1]
    getattr(setup.herder, request_)("a").result(10)
    await_true(lambda: task.join(0))
    if request_ != "delete_connector":
        body = ended(setup)
        assert (body["state"], "was stopped, changed, deleted or moved" in body["trace"]) == ("FAILED", True)


def test_a_source_reads_positions_with_the_settings_of_its_tasks(setup: Setup) -> None:
    create(setup, SOURCE)
    begin(setup, BackfillRequest(span=("x", 7), of="f"))
    request = setup.tasks[-1].request
    assert request.backfill is not None
    (share,) = request.backfill.shares
    assert share.read_config() == request.task_config


def test_who_has_nothing_to_read_no_tasks_or_no_positions_is_refused(setup: Setup) -> None:
    for ask in (lambda: begin(setup), lambda: setup.herder.backfill("a").result(10)):
        with pytest.raises(NotFoundException, match="Connector a not found"):
            ask()
    create(setup)
    with pytest.raises(NotFoundException, match="has no messages in that range: there is nothing to read again"):
        begin(setup, BackfillRequest(start_ms=50))
    with pytest.raises(NotFoundException, match="has no backfill that is running"):
        setup.herder.cancel_backfill("a").result(10)
    setup.herder.stop_connector("a").result(10)
    setup.await_state("a", "STOPPED", [])
    with pytest.raises(ConflictException, match="Resume it with PUT /connectors/a/resume"):
        begin(setup)
    setup.herder.delete_connector("a").result(10)
    create(setup, SOURCE)
    with pytest.raises(BadRequestException, match="goes by positions"):
        begin(setup, BackfillRequest(start_ms=1))
