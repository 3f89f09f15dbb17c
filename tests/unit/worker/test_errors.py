"""What happens to records that fail: pure decisions, retries, reporters, counters."""

import logging
import threading
from collections.abc import Mapping

import pytest
from testkit.doubles.sink_doubles import ListReporter, failure

from penstock.errors import (
    ConnectException,
    DataException,
    ServiceDeniedException,
    ServiceUnavailableException,
    ToleranceExceededException,
)
from penstock.pipeline.batch.batches import RecordError
from penstock.worker.errors import (
    TASK_PUT,
    ConsumedMessage,
    ErrorCounts,
    ErrorHandler,
    ErrorPolicy,
    FailedRecord,
    LogReporter,
    ToleranceVerdict,
    exception_of,
    retry_delay_ms,
    verdict,
)


class Clock:
    """Time that passes only while somebody waits for a retry."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.waits: list[int] = []
        self.stopped = False

    def __call__(self) -> int:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(round((timeout or 0) * 1000))
        self.now += self.waits[-1]
        return self.stopped

    def is_set(self) -> bool:
        return self.stopped


def handler(policy: ErrorPolicy, *reporters: ListReporter, clock: Clock | None = None) -> ErrorHandler:
    time = clock or Clock()
    stop = threading.Event()
    stop.wait = time.wait  # type: ignore[method-assign]
    stop.is_set = time.is_set  # type: ignore[method-assign]
    return ErrorHandler(policy, reporters, counts=ErrorCounts(), clock=time, random=lambda: 0.25, cancelled=stop)


def message(row: int) -> ConsumedMessage:
    return ConsumedMessage("t", 0, row)


def test_delays_double_from_300_ms_then_are_random_below_the_maximum() -> None:
    delays = [
        retry_delay_ms(n, now_ms=0, deadline_ms=None, max_delay_ms=2000, random=lambda: 0.25) for n in range(1, 7)
    ]
    assert delays == [300, 600, 1200, 500, 500, 500]


def test_a_delay_never_passes_the_deadline() -> None:
    assert retry_delay_ms(2, now_ms=900, deadline_ms=1000, max_delay_ms=60_000, random=lambda: 0.5) == 100


@pytest.mark.parametrize(
    ("stage", "retriable", "tolerance_all", "wanted"),
    [
        ("TRANSFORMATION", False, True, ToleranceVerdict.SKIP),
        ("KEY_CONVERTER", False, False, ToleranceVerdict.EXCEEDED),
        ("TASK_POLL", False, True, ToleranceVerdict.UNHANDLED),
        ("TASK_POLL", True, True, ToleranceVerdict.SKIP),
        ("TASK_POLL", True, False, ToleranceVerdict.EXCEEDED),
    ],
)
def test_the_verdict_depends_on_stage_and_tolerance(
    stage: str, retriable: bool, tolerance_all: bool, wanted: ToleranceVerdict
) -> None:
    error = failure(0, retriable=retriable, stage=stage)
    assert verdict(ErrorPolicy(tolerance_all=tolerance_all), error) is wanted


@pytest.mark.parametrize("fault", [ServiceUnavailableException("down"), ServiceDeniedException("401")])
def test_no_record_is_skipped_for_a_service_that_does_not_answer(fault: Exception) -> None:
    error = RecordError(0, "VALUE_CONVERTER", "AvroConverter", "E", "m", exception=fault)
    assert verdict(ErrorPolicy(tolerance_all=True), error) is ToleranceVerdict.EXCEEDED


def test_without_tolerance_the_first_failed_record_ends_the_task_and_is_reported() -> None:
    reporter = ListReporter()
    errors = handler(ErrorPolicy(), reporter)
    fatal = errors.handle_batch({7: failure(7), 3: failure(3)}, message)
    assert fatal is not None
    where = "(stage VALUE_CONVERTER, topic t, partition 0, offset 3)"
    assert (fatal.seq, str(fatal.exception)) == (3, f"Tolerance exceeded in error handler {where}")
    assert isinstance(fatal.exception, ToleranceExceededException)
    assert isinstance(fatal.exception.__cause__, DataException)
    assert [reported.offset for reported in reporter.messages] == [3]
    assert (errors.counts.total_record_errors, errors.counts.total_records_skipped) == (1, 0)


def test_with_tolerance_all_failed_records_are_reported_in_order_and_skipped() -> None:
    reporter = ListReporter()
    errors = handler(ErrorPolicy(tolerance_all=True), reporter)
    assert errors.handle_batch({7: failure(7), 3: failure(3)}, message) is None
    assert [reported.offset for reported in reporter.messages] == [3, 7]
    assert (errors.counts.total_record_failures, errors.counts.total_records_skipped) == (2, 2)


def test_an_error_outside_of_the_tolerable_stages_is_unhandled() -> None:
    fatal = handler(ErrorPolicy(tolerance_all=True)).handle_failure(failure(0, stage="TASK_POLL"), None)
    assert str(fatal) == "Unhandled exception in error handler (stage TASK_POLL, an unknown record)"


def test_errors_found_outside_of_the_pipeline_are_tolerated_or_raised_after_their_report() -> None:
    reporter = ListReporter()
    error = failure(0, stage=TASK_PUT)
    assert handler(ErrorPolicy(tolerance_all=True), reporter).execute_failed(error, message(1)) == []
    with pytest.raises(ToleranceExceededException, match="Tolerance exceeded"):
        handler(ErrorPolicy(), reporter).execute_failed(error, message(2))
    assert [reported.offset for reported in reporter.messages] == [1, 2]


def test_a_reporter_that_fails_does_not_keep_the_others_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ListReporter):
        def report(self, failed: FailedRecord) -> None:
            raise OSError("disk")

    good = ListReporter()
    handler(ErrorPolicy(tolerance_all=True), Broken(), good).handle_failure(failure(0), message(0))
    assert len(good.failed) == 1
    assert "could not be made by Broken" in caplog.text


def test_retriable_records_are_tried_again_until_they_pass() -> None:
    clock = Clock()
    errors = handler(ErrorPolicy(retry_timeout_ms=-1, retry_delay_max_ms=60_000), clock=clock)
    runs: list[list[int]] = []

    def rerun(rows: list[int]) -> Mapping[int, RecordError]:
        runs.append(rows)
        return {} if len(runs) == 2 else {rows[-1]: failure(rows[-1], retriable=True)}

    left, attempts = errors.retry({1: failure(1, retriable=True), 4: failure(4, retriable=True), 9: failure(9)}, rerun)
    assert (sorted(left), runs, attempts) == ([9], [[1, 4], [4]], {1: 2, 4: 3})
    assert clock.waits == [300, 600]
    assert errors.counts.total_retries == 3


def test_without_tolerance_nothing_behind_the_first_final_error_is_tried_again() -> None:
    runs: list[list[int]] = []

    def rerun(rows: list[int]) -> Mapping[int, RecordError]:
        runs.append(rows)
        return {}

    errors = {1: failure(1, retriable=True), 2: failure(2), 3: failure(3, retriable=True)}
    left, _ = handler(ErrorPolicy(retry_timeout_ms=-1)).retry(errors, rerun)
    assert (runs, sorted(left)) == ([[1]], [2, 3])


@pytest.mark.parametrize(("timeout_ms", "waits"), [(0, []), (1000, [300, 600, 100])])
def test_trying_again_ends_with_the_retry_timeout(timeout_ms: int, waits: list[int]) -> None:
    clock = Clock()
    errors = handler(ErrorPolicy(retry_timeout_ms=timeout_ms), clock=clock)
    left, _ = errors.retry({0: failure(0, retriable=True)}, lambda rows: {0: failure(0, retriable=True)})
    assert (list(left), clock.waits) == ([0], waits)


def test_a_cancelled_task_waits_for_no_retry_and_reports_nothing() -> None:
    clock = Clock()
    clock.stopped = True
    reporter = ListReporter()
    errors = handler(ErrorPolicy(retry_timeout_ms=-1, tolerance_all=True), reporter, clock=clock)
    left, _ = errors.retry({0: failure(0, retriable=True)}, lambda rows: {})
    assert (list(left), errors.ending, clock.waits) == ([0], True, [])
    errors.abandon()
    errors.handle_batch(left, message)
    assert reporter.failed == []


@pytest.mark.parametrize("include", [False, True])
def test_the_log_line_of_a_sink_names_the_place_but_neither_key_nor_value(
    caplog: pytest.LogCaptureFixture, include: bool
) -> None:
    counts = ErrorCounts()
    origin = ConsumedMessage("t", 2, 77, 1234, 0, b"secret key", b"secret value")
    with caplog.at_level(logging.ERROR):
        LogReporter("sink-0", counts, include_messages=include).report(FailedRecord(failure(0), origin))
    assert "Error encountered in task sink-0. Executing stage 'VALUE_CONVERTER'" in caplog.text
    assert ("partition=2, offset=77, timestamp=1234, timestampType=CreateTime" in caplog.text) is include
    assert "org.apache.kafka.connect.errors.DataException: no JSON" in caplog.text
    assert "secret" not in caplog.text
    assert counts.total_errors_logged == 1


def test_an_error_known_by_name_only_becomes_an_exception_of_that_class() -> None:
    assert isinstance(exception_of(failure(0)), DataException)
    strange = exception_of(RecordError(0, "TRANSFORMATION", "X", "java.lang.Oops", "text"))
    assert isinstance(strange, ConnectException)
    assert str(strange) == "java.lang.Oops: text"
