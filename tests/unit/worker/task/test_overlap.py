"""Two batches of a source task in Spark at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from testkit.doubles.source_doubles import WAIT_S, FakePipeline, record
from testkit.waiting import await_true

from penstock.api import SourceFrame
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import PendingBatch, PolledBatch, ProduceBatch, Submit
from penstock.telemetry import BusyTimes
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.source.batcher import Batcher, TakenBatch
from penstock.worker.source.delivery import Outgoing, SourceConverter
from penstock.worker.task.bounded_queue import (
    SHARING,
    SHARING_BYTES,
    WAITING_BYTES,
    BatchLimits,
    OverlappingBatches,
    SharedLoad,
)


class Gated(FakePipeline):
    """Each batch's job waits until the test lets it go; tells on which thread it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[object, threading.Event] = {}
        self.began: list[object] = []
        self.threads: dict[object, str] = {}
        self.refused: object = None

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        assert not isinstance(batch, SourceFrame)
        name = batch[0].value
        self.began.append(name)
        if name == self.refused:
            raise ConnectException("cannot be begun")

        def job() -> ProduceBatch:
            self.threads[name] = threading.current_thread().name
            if name in self.gates:
                assert self.gates[name].wait(WAIT_S)
            return self.run(batch)

        return submit(job)


class Rig:
    """Overlapping batches after a batcher that holds one record at a time, and what polls into it."""

    def __init__(self) -> None:
        self.batcher = Batcher(BatchLimits(max_records=1))
        self.load = SharedLoad()
        self.polling: threading.Thread | None = None
        self.use(Gated())

    def use(self, pipeline: Gated) -> None:
        """Converts by this pipeline."""
        self.pipeline = pipeline
        errors = ErrorHandler(
            ErrorPolicy(), [], counts=ErrorCounts(), clock=lambda: 0, random=lambda: 0.5, cancelled=threading.Event()
        )
        converter = SourceConverter("t-0", self.pipeline, errors)
        self.overlapping = OverlappingBatches[TakenBatch, Outgoing](
            "t-0", self.batcher, converter.begin, BusyTimes(["spark"]), self.load
        )

    def poll(self, values: Sequence[str]) -> None:
        """Polls these, one by one, on a thread, which waits for room each time; then polling ends."""

        def run() -> None:
            for position, value in enumerate(values):
                self.batcher.put([record(position, value)])
            self.batcher.close()

        self.polling = threading.Thread(target=run)
        self.polling.start()
        await_true(lambda: self.batcher._full)

    def rest(self) -> list[object]:
        """What comes until the end."""
        return [value_of(one) for one in iter(self.overlapping.next, None)]


def value_of(outgoing: Outgoing) -> object:
    return outgoing.batch.table.column("value")[0].as_py()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    for gate in made.pipeline.gates.values():
        gate.set()
    made.batcher.discard()
    made.overlapping.close()
    if made.polling is not None:
        made.polling.join(WAIT_S)


def test_a_lone_batch_stays_on_the_thread_that_asks_for_it(rig: Rig) -> None:
    rig.batcher.put([record(1, "a")])

    assert value_of(rig.overlapping.next() or pytest.fail("no batch")) == b"a"
    assert rig.pipeline.threads == {"a": threading.current_thread().name}


def test_two_batches_are_under_way_when_polling_has_to_wait_and_end_in_order(rig: Rig) -> None:
    rig.pipeline.gates = {"a": threading.Event()}
    run = rig.pipeline.run

    def noted(batch: PolledBatch) -> ProduceBatch:
        made = run(batch)
        # The first job ends only when the second has.
        rig.pipeline.gates["a"].set()
        return made

    rig.pipeline.run = noted  # type: ignore[method-assign]
    rig.poll(["a", "b", "c", "d", "e"])
    assert rig.polling is not None

    assert rig.rest() == [b"a", b"b", b"c", b"d", b"e"]
    assert rig.pipeline.batches[:2] == [["b"], ["a"]]
    assert rig.pipeline.threads["a"] == rig.pipeline.threads["b"] == "spark-t-0"


def test_no_more_than_two_are_begun(rig: Rig) -> None:
    rig.pipeline.gates = {"b": threading.Event()}
    rig.poll(["a", "b", "c", "d", "e"])

    assert value_of(rig.overlapping.next() or pytest.fail("no batch")) == b"a"
    assert len(rig.pipeline.began) <= 2


def test_a_batch_that_cannot_be_begun_fails_after_the_one_before_it(rig: Rig) -> None:
    rig.pipeline.refused = "b"
    rig.poll(["a", "b", "c"])

    assert value_of(rig.overlapping.next() or pytest.fail("no batch")) == b"a"
    with pytest.raises(ConnectException, match="cannot be begun"):
        rig.overlapping.next()


def test_a_job_that_fails_on_its_own_thread_fails_its_batch(rig: Rig) -> None:
    rig.pipeline.error = ConnectException("no Spark session")
    rig.poll(["a", "b", "c"])

    with pytest.raises(ConnectException, match="no Spark session"):
        rig.overlapping.next()


def test_no_second_batch_is_begun_where_other_tasks_keep_the_cores_busy(rig: Rig) -> None:
    rig.load.begin()
    rig.poll(["a", "b", "c"])

    assert value_of(rig.overlapping.next() or pytest.fail("no batch")) == b"a"
    assert rig.pipeline.began == ["a"]
    rig.load.end()
    assert rig.rest() == [b"b", b"c"]
    rig.load.begin()
    assert rig.load.has_idle_cores


class Sharing(Gated):
    """Each batch waits for a job that it shares, and holds a tenth of a MiB, or what a test says."""

    held = 100_000

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        return super().begin(batch, partial(submit, shares=self.held))


@pytest.fixture
def sharing(rig: Rig) -> Sharing:
    made = Sharing()
    rig.use(made)
    return made


def test_batches_that_share_a_job_are_begun_beside_each_other_whatever_other_tasks_do(
    rig: Rig, sharing: Sharing
) -> None:
    rig.load.begin()
    rig.load.begin()
    sharing.gates = {"a": threading.Event()}
    rig.poll([*"abcdefghijkl"])

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(rig.overlapping.next)
        await_true(lambda: len(sharing.began) == SHARING)
        assert not first.done()
        sharing.gates["a"].set()
        assert value_of(first.result(WAIT_S) or pytest.fail("no batch")) == b"a"
    assert rig.load.bytes_left <= WAITING_BYTES - (SHARING - 1) * sharing.held
    assert rig.rest() == [one.encode() for one in "bcdefghijkl"]
    assert rig.load.bytes_left == WAITING_BYTES
    assert not rig.load.has_idle_cores


def test_batches_that_share_a_job_do_not_hold_more_than_they_may_together(rig: Rig, sharing: Sharing) -> None:
    sharing.held = SHARING_BYTES // 2
    sharing.gates = {"a": threading.Event()}
    rig.poll([*"abcdef"])

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(rig.overlapping.next)
        await_true(lambda: len(sharing.began) == 2)
        sharing.gates["a"].set()
        first.result(WAIT_S)
    assert len(sharing.began) <= 3
    rig.batcher.discard()
    rig.overlapping.close()
    assert rig.load.bytes_left == WAITING_BYTES
