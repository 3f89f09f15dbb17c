"""Bad rows of a frame are found by halves, reported, and the others are written in order."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.api import Rows, SinkFrame, isolate
from penstock.errors import (
    DataException,
    IllegalWorkerStateException,
    KafkaRetriableException,
    RetriableException,
    SparkUnavailableException,
    ToleranceExceededException,
)


def frame_of(numbers: Sequence[int]) -> SinkFrame:
    rows = len(numbers)
    columns = {"topic": ["t"] * rows, "partition": [0] * rows, "offset": range(rows), "value": numbers}
    return SinkFrame(pa.table({name: pa.array(values) for name, values in columns.items()}), None, None)


class Store:
    """Writes all rows of a frame or none; refuses some numbers."""

    def __init__(self, bad: Sequence[int], error: type[Exception] = ValueError) -> None:
        self.bad = set(bad)
        self.error = error
        self.written: list[int] = []
        self.sizes: list[int] = []
        self.reported: list[tuple[int, str]] = []

    def write(self, frame: SinkFrame) -> None:
        numbers = frame.table["value"].to_pylist()
        self.sizes.append(len(numbers))
        if found := self.bad.intersection(numbers):
            raise self.error(f"{min(found)} is bad")
        self.written += numbers

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> None:
        self.reported.append((frame.take(rows).origin["offset"].to_pylist()[0], str(error)))


def test_a_frame_without_bad_rows_is_written_at_once() -> None:
    store = Store([])
    assert isolate(store.write, frame_of(range(100)), report=store.report) == 100
    assert store.sizes == [100]


@pytest.mark.parametrize("bad", [[0], [99], [50], [0, 99], [3, 4, 5], list(range(100)), list(range(0, 100, 7))])
def test_the_bad_rows_are_reported_and_the_others_written_in_order(bad: list[int]) -> None:
    store = Store(bad)

    assert isolate(store.write, frame_of(range(100)), report=store.report) == 100 - len(bad)

    assert store.written == [number for number in range(100) if number not in bad]
    assert store.reported == [(number, f"{number} is bad") for number in bad]


def test_one_bad_row_costs_a_few_calls_and_none_with_an_empty_frame() -> None:
    store = Store([random.Random(4).randrange(4096)])
    isolate(store.write, frame_of(range(4096)), report=store.report)
    assert len(store.sizes) <= 2 * 12 + 1
    assert 0 not in store.sizes

    isolate(Store([]).write, frame_of([]), report=store.report)


@pytest.mark.parametrize(
    "error",
    [RetriableException, KafkaRetriableException, SparkUnavailableException, ConnectionResetError, TimeoutError],
)
def test_an_outage_is_raised_and_nothing_is_halved_or_reported(error: type[Exception]) -> None:
    store = Store([7], error)

    with pytest.raises(error, match="7 is bad"):
        isolate(store.write, frame_of(range(10)), report=store.report)

    assert (store.sizes, store.reported) == ([10], [])


def test_only_errors_that_a_row_may_be_to_blame_for_are_halved() -> None:
    store = Store([7], KeyError)
    with pytest.raises(KeyError):
        isolate(store.write, frame_of(range(10)), errors=(DataException, ValueError), report=store.report)
    assert store.sizes == [10]


def test_a_report_that_is_refused_ends_it_behind_the_rows_before() -> None:
    store = Store([7])

    def refuse(frame: SinkFrame, rows: Rows, error: BaseException) -> None:
        raise ToleranceExceededException("none is tolerated")

    with pytest.raises(ToleranceExceededException):
        isolate(store.write, frame_of(range(10)), report=refuse)

    assert store.written == list(range(7))


def test_a_frame_made_outside_of_a_worker_has_nobody_to_report_to() -> None:
    with pytest.raises(IllegalWorkerStateException, match=r"report=\.\.\.") as caught:
        isolate(Store([1]).write, frame_of(range(3)))
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_was_written_is_not_kept_until_the_collector_runs() -> None:
    frame = SinkFrame(pa.table({"topic": ["t"], "partition": [0], "offset": [0]}), None, None)

    def write(part: SinkFrame) -> None:
        assert part.num_rows == frame.num_rows

    gone = weakref.ref(write)
    gc.disable()
    try:
        isolate(write, frame)
        del write
        assert gone() is None
    finally:
        gc.enable()
