"""The life of a source task that delivers exactly once, with stand-ins for Spark, Kafka and the store."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest
from testkit.doubles.source_doubles import WAIT_S, HookedTask, ScriptedTask, record
from testkit.waiting import await_true
from tests.unit.worker.source.test_task import Rig

from penstock.api import SourceFrame, SourceRecord, TransactionBoundary
from penstock.errors import (
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    TransactionAbortableException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.model import State
from penstock.worker.source import exactly_once as transaction_commit
from penstock.worker.source.delivery_guarantee import Ownership
from penstock.worker.source.exactly_once import (
    COMMIT_ANSWERED,
    COMMIT_SENT,
    OFFSETS_SENT,
    RECORDS_SENT,
    TRANSACTION_BEGUN,
)
from penstock.worker.task.bounded_queue import BatchLimits

POLL, INTERVAL, CONNECTOR = TransactionBoundary.POLL, TransactionBoundary.INTERVAL, TransactionBoundary.CONNECTOR
KEY = b'["c",{"file":"f"}]'


def started(rigs: list[Rig], rig: Rig) -> Rig:
    rigs.append(rig)
    rig.runner.start()
    rig.wait_state(State.RUNNING)
    return rig


def position(at: int) -> bytes:
    return b'{"position":%d}' % at


def committed(rig: Rig) -> list[tuple[list[str], int | None]]:
    """The values of each transaction, and the position that it has committed."""
    found = []
    for values, offsets in rig.transactions.transactions:
        offset = offsets.get(KEY)
        found.append((values, None if offset is None else int(offset.decode().rpartition(":")[2].rstrip("}"))))
    return found


def wait_commits(rig: Rig, count: int) -> list[tuple[list[str], int | None]]:
    await_true(lambda: len(rig.transactions.transactions) >= count, lambda: str(rig.transactions.calls))
    return committed(rig)


# ---------------------------------------------------------------- boundaries
def test_a_poll_is_a_transaction_of_its_records_and_its_offset(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.task.give([record(1, "a"), record(2, "b")])
    wait_commits(rig, 1)
    rig.task.give([record(3, "c")])
    assert wait_commits(rig, 2) == [(["a", "b"], 2), (["c"], 3)]
    assert rig.transactions.calls[:4] == ["init", "records", "offsets", "commit"]
    rig.stop()
    assert len(rig.transactions.transactions) == 2, "nothing was open"


def test_the_points_of_a_transaction_are_passed_in_order(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.transactions.unanswered = 1
    rig.task.give([record(1, "a")])
    wait_commits(rig, 1)
    await_true(lambda: COMMIT_ANSWERED in rig.probes)
    points = [TRANSACTION_BEGUN, RECORDS_SENT, OFFSETS_SENT, COMMIT_SENT, COMMIT_ANSWERED]
    assert [one for one in rig.probes if one in points] == points


def test_a_poll_above_the_limit_of_a_batch_is_one_transaction(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL, limits=BatchLimits(max_records=2)))
    rig.task.give([record(at, f"v{at}") for at in range(5)])
    assert wait_commits(rig, 1) == [([f"v{at}" for at in range(5)], 4)]
    assert len(rig.producer.sent) == 3


def test_polls_that_wait_for_each_other_share_a_transaction_and_their_offset_is_the_last(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.pipeline.hold.clear()
    rig.task.give([record(1, "a")])
    assert rig.pipeline.entered.wait(WAIT_S)
    rig.task.give([record(2, "b")], [record(3, "c")])
    with rig.task.available:
        assert rig.task.available.wait_for(lambda: not rig.task.polls, WAIT_S)
    await_true(lambda: rig.task.polled.acquire(blocking=False))
    rig.pipeline.hold.set()
    rig.stop()
    found = committed(rig)
    assert [value for values, _ in found for value in values] == ["a", "b", "c"]
    assert found[-1][1] == 3
    assert len(found) < 3


def test_with_an_interval_several_polls_are_one_transaction_which_a_stop_commits(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=INTERVAL, interval_s=60.0))
    rig.task.give([record(1, "a")], [record(2, "b")])
    await_true(lambda: rig.producer.values() == ["a", "b"])
    assert committed(rig) == []
    rig.stop()
    assert committed(rig) == [(["a", "b"], 2)]
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]


def test_with_an_interval_a_commit_comes_also_when_nothing_more_is_polled(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=INTERVAL, interval_s=0.2))
    rig.task.give([record(1, "a")])
    assert wait_commits(rig, 1) == [(["a"], 1)]


@pytest.mark.parametrize("boundary", [INTERVAL, POLL])
def test_a_pause_commits_what_is_open(rigs: list[Rig], boundary: TransactionBoundary) -> None:
    rig = started(rigs, Rig(boundary=boundary, interval_s=60.0))
    rig.task.give([record(1, "a")])
    rig.producer.wait_sent(1)
    rig.runner.pause()
    rig.wait_state(State.PAUSED)
    assert wait_commits(rig, 1) == [(["a"], 1)]
    rig.runner.resume()
    rig.task.give([record(2, "b")])
    rig.producer.wait_sent(2)
    rig.stop()
    assert committed(rig)[-1] == (["b"], 2)


class Bounded(ScriptedTask):
    """Asks as tests tell it before a poll returns."""

    def __init__(self) -> None:
        super().__init__()
        self.commit_after: list[SourceRecord | None] = []
        self.abort_after: list[SourceRecord | None] = []

    def poll(self) -> Sequence[SourceRecord] | SourceFrame | None:
        polled = super().poll()
        context = self.context.transaction_context()
        assert context is not None
        if polled is not None:
            for one in self.commit_after:
                context.commit_transaction(one)
            for one in self.abort_after:
                context.abort_transaction(one)
            self.commit_after, self.abort_after = [], []
        return polled


def test_a_task_ends_its_transactions_itself_in_the_middle_of_polls_and_over_several(rigs: list[Rig]) -> None:
    task = Bounded()
    rig = started(rigs, Rig(task=task, boundary=CONNECTOR))
    polled = [record(1, "a"), record(2, "b"), record(3, "c")]
    task.commit_after = [polled[1]]
    task.give(polled)
    assert wait_commits(rig, 1) == [(["a", "b"], 2)]
    task.give([record(4, "d")])
    rig.producer.wait_sent(3)
    task.commit_after = [None]
    task.give([record(5, "e")])
    assert wait_commits(rig, 2)[1] == (["c", "d", "e"], 5)


def test_what_a_task_gives_up_is_not_there_and_not_read_again(rigs: list[Rig]) -> None:
    task = Bounded()
    rig = started(rigs, Rig(task=task, boundary=CONNECTOR))
    polled = [record(1, "a"), record(2, "b"), record(3, "c")]
    task.abort_after, task.commit_after = [polled[1]], [None]
    task.give(polled)
    assert wait_commits(rig, 2) == [([], 2), (["c"], 3)]
    assert rig.transactions.calls.count("abort") == 1


def test_a_task_that_stops_without_having_asked_for_a_commit_commits_nothing(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(task=Bounded(), boundary=CONNECTOR))
    rig.task.give([record(1, "a")])
    rig.producer.wait_sent(1)
    rig.stop()
    assert committed(rig) == []
    assert rig.transactions.calls[-1] == "abort"


def test_frames_are_whole_transactions(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.task.give(SourceFrame(pa.table({"value": ["a", "b"]}), "t", None, {"file": "f"}, {"position": 7}))
    assert wait_commits(rig, 1) == [(["a", "b"], 7)]


# ---------------------------------------------------------------- what is in a transaction, and who is told
def test_dropped_records_move_offsets_where_nothing_else_is_in_the_transaction(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.task.give([record(1, "drop"), record(2, "drop")])
    assert wait_commits(rig, 1) == [([], 2)]


def test_hooks_come_behind_the_commit_in_the_order_of_polls(rigs: list[Rig]) -> None:
    task = HookedTask()
    rig = started(rigs, Rig(task=task, boundary=INTERVAL, interval_s=60.0))
    task.give([record(1, "a"), record(2, "drop"), record(3, "b")])
    rig.producer.wait_sent(1)
    await_true(lambda: not rig.producer.open)
    assert task.told == []
    rig.stop()
    assert task.told == [
        ("acknowledged", ("a", 0)),
        ("record", "a"),
        ("record", "drop"),
        ("acknowledged", ("b", 1)),
        ("record", "b"),
        ("commit", None),
    ]


class HookedAndBounded(HookedTask, Bounded):
    """Both."""


def test_records_that_were_given_up_are_done_and_were_never_acknowledged(rigs: list[Rig]) -> None:
    task = HookedAndBounded()
    rig = started(rigs, Rig(task=task, boundary=CONNECTOR))
    task.abort_after = [None]
    task.give([record(1, "a"), record(2, "b")])
    wait_commits(rig, 1)
    await_true(lambda: ("commit", None) in task.told)
    assert task.told == [("record", "a"), ("record", "b"), ("commit", None)]


def test_a_frame_is_told_of_behind_the_commit(rigs: list[Rig]) -> None:
    task = HookedTask()
    rig = started(rigs, Rig(task=task, boundary=POLL))
    task.give(SourceFrame(pa.table({"value": ["a", "b"]}), "t", None, {"file": "f"}, {"position": 7}))
    wait_commits(rig, 1)
    await_true(lambda: len(task.told) == 2)
    assert task.told == [("frame", 2), ("commit", None)]


def test_a_refused_record_is_left_out_where_errors_are_tolerated(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL, tolerance_all=True))
    rig.task.give([record(1, "a"), record(2, "refused"), record(3, "b")])
    assert wait_commits(rig, 1)[0][1] == 3
    assert len(rig.reports.failed) == 1
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]


def test_a_record_for_the_tasks_own_offsets_topic_fails_the_task(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.task.give([record(1, "a", topic="offsets")])
    trace = rig.wait_state(State.FAILED)
    assert "topic offsets, in which its own source offsets are" in (trace or "")
    assert "records" not in rig.transactions.calls


def test_an_offset_that_cannot_be_stored_fails_the_task(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.task.give([SourceRecord({"file": "f"}, {"position": [1]}, "t", "a")])
    trace = rig.wait_state(State.FAILED)
    assert "source offsets of task c-0 cannot be stored" in (trace or "")
    assert rig.transactions.calls[-1] == "abort"
    assert committed(rig) == []


# ---------------------------------------------------------------- after errors
def test_a_refused_record_ends_the_task_and_its_transaction(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.task.give([record(1, "a"), record(2, "refused"), record(3, "b")])
    trace = rig.wait_state(State.FAILED)
    assert "Unrecoverable exception from producer send callback" in (trace or "")
    assert rig.runner.join(WAIT_S)
    assert committed(rig) == []
    assert "abort" in rig.transactions.calls


def test_whole_polls_before_a_bad_record_are_committed(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.pipeline.hold.clear()
    rig.task.give([record(1, "a")])
    assert rig.pipeline.entered.wait(WAIT_S)
    rig.task.give([record(2, "b"), record(3, "c")], [record(4, "d"), record(5, "bad")])
    await_true(lambda: not rig.task.polls)
    await_true(lambda: rig.task.polled.acquire(blocking=False))
    rig.pipeline.hold.set()
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    found = committed(rig)
    assert [value for values, _ in found for value in values] == ["a", "b", "c"], "of the last poll nothing"
    assert found[-1][1] == 3


@pytest.mark.parametrize("boundary", [INTERVAL, CONNECTOR])
def test_a_failed_task_commits_no_more(rigs: list[Rig], boundary: TransactionBoundary) -> None:
    rig = started(rigs, Rig(task=Bounded() if boundary is CONNECTOR else ScriptedTask(), boundary=boundary))
    rig.task.give([record(1, "a")])
    rig.producer.wait_sent(1)
    rig.task.give(ValueError("lost the source"))
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert committed(rig) == []
    assert rig.transactions.calls[-1] == "abort"


def test_polls_before_one_that_fails_are_committed(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL))
    rig.pipeline.hold.clear()
    rig.task.give([record(1, "a")], [record(2, "b")], ValueError("lost the source"))
    await_true(lambda: not rig.task.polls)
    rig.pipeline.hold.set()
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    found = committed(rig)
    assert [value for values, _ in found for value in values] == ["a", "b"]
    assert found[-1][1] == 2


@pytest.mark.parametrize(
    "error",
    [
        ProducerFencedException("another producer has the id"),
        TransactionAbortableException("INVALID_PRODUCER_EPOCH"),
        KafkaRetriableException("not stored in time"),
    ],
)
@pytest.mark.parametrize("call", ["records", "offsets", "commit"])
def test_what_becomes_of_a_transaction_makes_the_task_anew(rigs: list[Rig], call: str, error: KafkaException) -> None:
    rig = Rig(boundary=POLL)
    rig.transactions.fail[call] = error
    started(rigs, rig)
    rig.task.give([record(1, "a")])
    trace = rig.wait_state(State.RESTARTING)
    assert "producer.override.transaction.timeout.ms" in (trace or "")
    assert rig.runner.join(WAIT_S)
    assert committed(rig) == []
    assert rig.task.stopped.is_set()


def test_a_task_that_may_not_use_its_id_fails(rigs: list[Rig]) -> None:
    rig = Rig(boundary=POLL)
    rig.transactions.fail["init"] = TransactionalIdAuthorizationException("it needs an ACL")
    rigs.append(rig)
    rig.runner.start()
    assert "it needs an ACL" in (rig.wait_state(State.FAILED) or "")
    assert rig.task.calls == [], "it was not started"


def test_a_record_that_came_when_its_transaction_was_over_is_not_to_blame(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL, acknowledge=False))
    rig.task.give([record(1, "a")])
    rig.producer.wait_sent(1)
    sent = rig.producer.open.popleft()
    name = "org.apache.kafka.common.errors.InvalidTxnStateException"
    rig.transactions.ended = TransactionAbortableException("INVALID_TXN_STATE")
    sent.receipts.delivered(0, 1, [FailedDelivery(0, "t", KafkaException("no"), name)], {})
    rig.producer.open.append(sent)
    rig.wait_state(State.RESTARTING)


def test_a_commit_that_is_not_answered_is_asked_for_again(rigs: list[Rig]) -> None:
    rig = Rig(boundary=POLL)
    rig.transactions.unanswered = 3
    started(rigs, rig)
    rig.task.give([record(1, "a")])
    assert wait_commits(rig, 1) == [(["a"], 1)]
    assert rig.transactions.calls.count("commit") == 4


def test_a_commit_that_is_never_answered_ends_with_the_transactions_time_and_is_no_fault_of_the_task(
    rigs: list[Rig],
) -> None:
    rig = Rig(boundary=POLL, transaction_timeout_s=0.3)
    rig.transactions.unanswered = 1_000_000
    started(rigs, rig)
    rig.task.give([record(1, "a")])
    rig.wait_state(State.RESTARTING)
    assert rig.runner.has_delivered, "it is tried again without end"


def test_a_transaction_that_nobody_ends_is_ended_and_the_task_may_be_to_blame(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(task=Bounded(), boundary=CONNECTOR, transaction_timeout_s=0.3))
    rig.task.give([record(1, "a")])
    trace = rig.wait_state(State.RESTARTING)
    assert "open for longer than 0.3 s" in (trace or "")
    assert not rig.runner.has_delivered
    assert rig.transactions.calls[-1] == "abort"


# ---------------------------------------------------------------- beginning and end
def test_the_id_is_taken_and_confirmed_before_the_task_is_initialized(rigs: list[Rig]) -> None:
    said: list[str] = []
    rig = Rig(boundary=POLL)

    def confirm() -> None:
        said.extend([*rig.transactions.calls, *rig.task.calls, "confirm"])

    rig = Rig(boundary=POLL, ownership=Ownership(confirm=confirm))
    started(rigs, rig)
    assert said == ["init", "confirm"]
    assert rig.task.calls == ["start"]


def test_a_task_whose_configuration_has_changed_meanwhile_fails_before_it_is_initialized(rigs: list[Rig]) -> None:
    def confirm() -> None:
        raise ConnectException("the configuration has changed")

    rig = Rig(boundary=POLL, ownership=Ownership(confirm=confirm))
    rigs.append(rig)
    rig.runner.start()
    assert "the configuration has changed" in (rig.wait_state(State.FAILED) or "")
    assert rig.task.calls == []


def test_a_task_that_is_to_stop_takes_no_id(rigs: list[Rig]) -> None:
    rig = Rig(boundary=POLL)
    rigs.append(rig)
    rig.runner.stop()
    rig.runner.start()
    rig.wait_state(State.UNASSIGNED)
    assert rig.transactions.calls == []


def test_an_instance_that_comes_again_takes_the_id_only_once_the_task_is_known_to_be_this_workers(
    rigs: list[Rig],
) -> None:
    is_owner, asked = threading.Event(), threading.Semaphore(0)

    def confirm_owner(since_s: float) -> bool:
        asked.release()
        return is_owner.is_set()

    rig = Rig(boundary=POLL, ownership=Ownership(confirm_owner=confirm_owner, again=True))
    rigs.append(rig)
    rig.runner.start()
    assert asked.acquire(timeout=WAIT_S)
    assert asked.acquire(timeout=WAIT_S), "it asks again"
    assert rig.transactions.calls == []
    is_owner.set()
    rig.wait_state(State.RUNNING)
    assert rig.transactions.calls == ["init"]


def test_an_instance_that_is_not_the_owner_any_more_ends_when_it_is_stopped_and_fences_nobody(rigs: list[Rig]) -> None:
    asked = threading.Event()

    def confirm_owner(since_s: float) -> bool:
        asked.set()
        return False

    rig = Rig(boundary=POLL, ownership=Ownership(confirm_owner=confirm_owner, again=True))
    rigs.append(rig)
    rig.runner.start()
    assert asked.wait(WAIT_S)
    rig.stop()
    assert rig.state_names() == ["UNASSIGNED"]
    assert rig.transactions.calls == []


def test_a_coordinator_that_does_not_answer_is_waited_for(rigs: list[Rig]) -> None:
    rig = Rig(boundary=POLL)
    rig.transactions.fail["init"] = KafkaRetriableException("not yet")
    started(rigs, rig)
    assert rig.transactions.calls == ["init", "init"]


def test_a_cancelled_task_commits_nothing_more(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=POLL, acknowledge=False))
    rig.task.give([record(1, "a")])
    rig.producer.wait_sent(1)
    rig.runner.cancel()
    rig.producer.answer()
    assert rig.runner.join(WAIT_S)
    assert committed(rig) == []
    assert "commit" not in rig.transactions.calls


def test_a_commit_that_fails_when_the_task_stops_fails_nobody(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(boundary=INTERVAL))
    rig.task.give([record(1, "a")])
    rig.producer.wait_sent(1)
    rig.transactions.fail["commit"] = ProducerFencedException("somebody else has it")
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert committed(rig) == []


def test_what_an_open_transaction_waits_for_is_told_once_it_is_not_just_begun(
    rigs: list[Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = started(rigs, Rig(task=Bounded(), boundary=CONNECTOR))
    assert rig.runner.hints.transaction is None
    rig.task.give([record(1, "a"), record(2, "b")])
    await_true(lambda: rig.runner.counts.records == 2)
    assert rig.runner.hints.transaction is None
    monkeypatch.setattr(transaction_commit, "_WORTH_A_WORD_S", 0.0)
    await_true(lambda: rig.runner.hints.transaction is not None)
    assert "a transaction of 2 records has been open for 0 s" in str(rig.runner.hints.transaction)
    assert "producer.override.transaction.timeout.ms" in str(rig.runner.hints.transaction)
