"""Positions that move without a record, and how far a task says that it is, with stand-ins for Spark and Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from testkit.doubles.source_doubles import WAIT_S, record
from testkit.waiting import await_true
from tests.generated import examples
from tests.unit.worker.source.test_exactly_once import committed, wait_commits
from tests.unit.worker.source.test_task import Rig, started, values

from penstock.api import SourceFrame, SourceTask, TransactionBoundary
from penstock.errors import DataException, RetriableException
from penstock.model import State
from penstock.model.states import Progress
from penstock.stores.offsets import partition_identity
from penstock.telemetry import Metrics
from penstock.worker.sink.context import WorkerSinkTaskContext
from penstock.worker.source import offset_commit
from penstock.worker.source.submitted import Moves, Submission, SubmittedOffsets
from penstock.worker.task.bounded_queue import BatchLimits
from penstock.worker.task_metrics import publish_source

POLL, INTERVAL, CONNECTOR = TransactionBoundary.POLL, TransactionBoundary.INTERVAL, TransactionBoundary.CONNECTOR


def moving(
    position: int | None, polled: object = None, file: str = "f", end: str = ""
) -> Callable[[SourceTask], object]:
    """A poll that moves the position of a file."""

    def poll(task: SourceTask) -> object:
        offset = None if position is None else {"position": position}
        task.context.advance({"file": file}, offset)
        if end:
            requests = task.context.transaction_context()
            assert requests is not None
            requests.commit_transaction() if end == "commit" else requests.abort_transaction()
        return polled

    return poll


def frame(count: int, position: int) -> SourceFrame:
    return SourceFrame(pa.table({"value": ["x"] * count}), "t", None, {"file": "f"}, {"position": position})


# ---------------------------------------------------------------- at least once
@pytest.mark.parametrize("polled", [values(3), frame(3, 3)], ids=["records", "frame"])
def test_a_position_that_moves_counts_behind_the_records_of_its_poll(rigs: list[Rig], polled: Any) -> None:
    rig = started(rigs, Rig())
    rig.task.give(moving(9, polled))
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.committed() == {"f": 9}


def test_a_position_that_moves_with_no_record_at_all_is_committed(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(interval_s=0.05))
    rig.task.give(moving(3), moving(8), moving(5, file="g"))
    await_true(lambda: rig.committed() == {"f": 8, "g": 5})
    rig.stop()
    assert rig.producer.sent == []


def test_a_position_that_moves_waits_for_the_records_before_it_and_not_for_the_interval(
    rigs: list[Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_commit, "_SOON_S", 0.02)
    rig = Rig(interval_s=600.0)
    rig.producer.acknowledge = False
    started(rigs, rig)
    rig.task.give(values(2), moving(7), moving(4, file="g"))
    rig.producer.wait_sent(1)
    await_true(lambda: rig.committed() == {"g": 4})
    rig.producer.answer()
    await_true(lambda: rig.committed() == {"f": 7, "g": 4})


def test_a_position_that_moves_stays_in_front_of_records_that_are_polled_later(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.pipeline.hold.clear()
    started(rigs, rig)
    rig.task.give(values(1))
    assert rig.pipeline.entered.wait(WAIT_S)
    rig.task.give(values(1, 2), moving(5), values(1, 6), moving(8, values(1, 7)), values(1, 9))
    with rig.task.available:
        assert rig.task.available.wait_for(lambda: not rig.task.polls, WAIT_S)
    rig.pipeline.hold.set()
    rig.stop()
    assert [len(batch) for batch in rig.pipeline.batches] == [1, 1, 2, 1]
    assert rig.committed() == {"f": 9}


def test_a_poll_above_the_limit_of_a_batch_has_its_move_behind_the_last_part(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(limits=BatchLimits(max_records=2)))
    rig.task.give(moving(20, values(5)))
    rig.producer.wait_sent(3)
    rig.stop()
    assert rig.committed() == {"f": 20}


def test_a_move_behind_a_record_that_ends_the_task_does_not_count(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(moving(9, [record(1, "a"), record(2, "bad"), record(3, "c")]))
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {"f": 1}


def test_a_move_behind_a_record_that_kafka_refuses_does_not_count(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give([record(1, "a"), record(2, "refused")], moving(9))
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {"f": 1}


def test_a_position_told_in_a_poll_that_asks_to_be_called_again_waits_for_the_next(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(interval_s=0.02))
    rig.task.give(moving(9, RetriableException("later", retry_after_s=0.01)), values(2))
    await_true(lambda: rig.committed() == {"f": 9})
    rig.stop()
    assert rig.producer.values() == ["v1", "v2"]


def test_a_source_partition_is_forgotten(rigs: list[Rig]) -> None:
    rig = Rig(interval_s=0.02)
    rig.store.data[b'["c",{"file":"old"}]'] = b'{"position":7}'
    started(rigs, rig)
    rig.task.give(moving(None, file="old"))
    await_true(lambda: rig.committed() == {})


def test_what_cannot_be_stored_is_an_error_where_it_is_told() -> None:
    moves = Moves()
    with pytest.raises(DataException, match="source offset"):
        moves.add({"file": "f"}, {"position": object()})
    with pytest.raises(DataException, match="source partition"):
        moves.add({"file": ["f"]}, None)
    assert moves.take() == []


def test_many_moves_while_spark_is_away_take_a_bounded_place(rigs: list[Rig]) -> None:
    rig = Rig(limits=BatchLimits(max_records=8))
    rig.pipeline.hold.clear()
    started(rigs, rig)
    rig.task.give(values(1))
    assert rig.pipeline.entered.wait(WAIT_S)
    rig.task.give(*(moving(at) for at in range(1, 30)))
    await_true(lambda: len(rig.task.polls) <= 21)
    rig.pipeline.hold.set()
    await_true(lambda: not rig.task.polls)
    rig.stop()
    assert rig.committed() == {"f": 29}


# ---------------------------------------------------------------- exactly once
@pytest.mark.parametrize("boundary", [POLL, INTERVAL])
def test_a_move_is_a_transaction_of_its_own_where_there_are_no_records(
    rigs: list[Rig], boundary: TransactionBoundary
) -> None:
    rig = started(rigs, Rig(boundary=boundary, interval_s=0.05))
    rig.task.give(moving(4))
    assert wait_commits(rig, 1) == [([], 4)]


@pytest.mark.parametrize("boundary", [POLL, INTERVAL, CONNECTOR])
def test_a_move_is_in_the_transaction_of_the_records_of_its_poll(
    rigs: list[Rig], boundary: TransactionBoundary
) -> None:
    rig = started(rigs, Rig(boundary=boundary, interval_s=0.05))
    rig.task.give(moving(4, [record(1, "a"), record(2, "b")], end="commit" if boundary is CONNECTOR else ""))
    assert wait_commits(rig, 1) == [(["a", "b"], 4)]


def test_a_move_waits_for_the_commit_that_the_task_asks_for(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=CONNECTOR))
    rig.task.give(moving(4), [record(5, "a")])
    rig.producer.wait_sent(1)
    assert committed(rig) == []
    rig.task.give(moving(8, end="commit"))
    assert wait_commits(rig, 1) == [(["a"], 8)]


def test_a_task_that_stops_without_having_asked_for_a_commit_moves_nothing(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=CONNECTOR))
    rig.task.give(moving(4), moving(6, [record(5, "a")]))
    rig.producer.wait_sent(1)
    rig.stop()
    assert committed(rig) == []


def test_records_that_are_given_up_leave_the_move_of_their_poll(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=CONNECTOR))
    rig.task.give(moving(4, [record(1, "a")], end="abort"))
    assert wait_commits(rig, 1) == [([], 4)]


def test_a_move_of_a_poll_that_fails_in_spark_is_not_in_the_last_transaction(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=INTERVAL, interval_s=60.0))
    rig.task.give([record(1, "a")], moving(9, [record(2, "bad")]))
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert committed(rig) in ([(["a"], 1)], [])


# ---------------------------------------------------------------- any order
@examples(40)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=14), st.randoms())
def test_no_move_overtakes_an_open_record_and_the_last_of_all_counts(
    steps: list[tuple[str, bool]], chance: Any
) -> None:
    offsets = SubmittedOffsets()
    open_records: list[tuple[int, str, Submission]] = []
    last: dict[str, int] = {}
    for at, (name, moves) in enumerate(steps):
        last[name] = at
        if moves:
            offsets.add(Submission.of_moves([({"f": name}, {"n": at})], partition_identity))
        else:
            submission = Submission.of_records(
                [record(at, source=name)], lambda partition: partition_identity({"f": (partition or {}).get("file")})
            )
            offsets.add(submission)
            open_records.append((at, name, submission))
    chance.shuffle(open_records)
    reached: dict[str, int] = {}

    def look() -> None:
        for partition, offset in offsets.take_committable():
            assert partition is not None
            assert offset is not None
            name = str(next(iter(partition.values())))
            reached[name] = max(reached.get(name, -1), int(str(next(iter(offset.values())))))
            assert not [one for one in open_records if one[1] == name and one[0] <= reached[name]]

    look()
    while open_records:
        _, _, submission = open_records.pop()
        offsets.settle_rows(submission, [0])
        look()
    assert reached == last


# ---------------------------------------------------------------- progress
def told(rig: Rig) -> Progress | None:
    return rig.runner.hints.progress


def test_a_task_says_how_far_it_is(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    metrics = Metrics()
    publish_source(metrics, rig.runner)
    rig.wait_state(State.RUNNING)
    assert told(rig) is None
    rig.task.context.progress(3, 12, "rows")
    assert told(rig) == Progress(3, 12, "rows")
    found = {(name, tags.get("unit")): value for name, tags, value in metrics.read() if "progress" in name}
    assert found == {("penstock_task_progress_done", "rows"): 3.0, ("penstock_task_progress_total", "rows"): 12.0}
    rig.task.context.progress(4)
    assert told(rig) == Progress(4, None, "records")
    rig.task.context.progress(None)
    assert told(rig) is None


def test_a_sink_says_how_far_it_is() -> None:
    said: list[Progress | None] = []
    context = WorkerSinkTaskContext(
        "s-0", read_config=dict, assignment=frozenset, reporter=None, wake=lambda: None, progress=said.append
    )
    context.progress(2, unit="files")
    context.progress(None)
    assert said == [Progress(2, None, "files"), None]


@pytest.mark.parametrize(
    "told", [(-1, 2, "rows"), (1, float("nan"), "rows"), (True, 2, "rows"), (1, 2, ""), ("1", 2, "x")]
)
def test_progress_that_is_none_is_refused(told: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ValueError, match="progress"):
        Progress(*told)
