"""Runs of bulk work: what is decided without Kafka and Spark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import ConnectException
from penstock.kafka.topic_log.clients import LogRecord
from penstock.worker.bulk.runs import (
    AttemptCounter,
    Marker,
    Markers,
    NotRepeatableException,
    RunKey,
    RunPlan,
    Skipping,
    Totals,
    continues,
    digest,
    same_partitions,
)

RUN = RunKey("connect-cluster", "orders", "first")
PLAN = RunPlan(8, 2, '{"shop": "a"}', "null", '{"next": 100}', "topic-1", "a")


def record(key: bytes | None, value: bytes | None) -> LogRecord:
    return LogRecord(0, 0, key, value)


def test_markers_are_what_was_written_last_and_tombstones_forget_them() -> None:
    markers = Markers()
    first, last = Marker(rows=10, sent=9, failed=1, examples=("a",)), Marker(rows=20, sent=19, digest=5, done=True)
    markers.take([record(RUN.marker(None), PLAN.to_bytes()), record(RUN.marker(3), first.to_bytes())])
    assert markers.plan(RUN) == PLAN
    assert markers.of(RUN) == {3: first}
    markers.take([record(RUN.marker(3), last.to_bytes()), record(RUN.marker(4), first.to_bytes())])
    assert markers.of(RUN) == {3: last, 4: first}
    assert Totals.of(markers.of(RUN)) == Totals(partitions=1, rows=30, sent=28, nbytes=0, failed=1)
    other = replace(RUN, run="second")
    assert (markers.of(other), markers.plan(other)) == ({}, None)

    gone = markers.entries_of(RUN)
    assert gone[-1] == (RUN.marker(None), None), "what is left after a crash is still known by its plan"
    markers.take([record(key, value) for key, value in gone])
    assert (markers.of(RUN), markers.plan(RUN), markers.entries_of(RUN)) == ({}, None, [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"text", b"{}"),
        (b'["group","orders"]', b"{}"),
        (RUN.marker(1), b"no JSON"),
        (RUN.marker(1), b'{"rows": 1, "colour": "red"}'),
        (RUN.marker(1), b"[]"),
        (RUN.marker(None), b'{"partitions": 1}'),
        (b'["g","c","r","one"]', b'{"rows":1}'),
    ],
)
def test_records_that_say_nothing_are_passed_over(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    markers = Markers()
    markers.take([record(key, value), record(RUN.marker(2), Marker(rows=1).to_bytes())])
    assert markers.of(RUN) == {2: Marker(rows=1)}
    assert markers.plan(RUN) is None
    assert "is not a marker and is ignored" in caplog.text


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (PLAN, True),
        (replace(PLAN, partitions=3, cores=7), True),
        (replace(PLAN, topic_id=""), True),
        (replace(PLAN, topic_id="topic-0"), False),
        (replace(PLAN, topic="b"), False),
        (replace(PLAN, topic="b", topic_id=""), False),
        (replace(PLAN, topic=""), True),
        (replace(PLAN, start='{"next": 0}', end='{"next": 50}'), False),
    ],
)
def test_a_run_goes_on_behind_markers_of_the_same_work_only(stored: RunPlan, expected: bool) -> None:
    assert continues(RUN, stored, PLAN) is expected


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (replace(PLAN, end='{"next": 101}'), "stands for one piece of work"),
        (replace(PLAN, source_partition='{"shop": "b"}'), "no two runs of a connector have one name"),
    ],
)
def test_a_name_that_stands_for_two_pieces_of_work_is_refused(stored: RunPlan, told: str) -> None:
    with pytest.raises(ConnectException, match=told):
        continues(RUN, stored, PLAN)


@pytest.mark.parametrize(
    ("partitions", "left"),
    [
        (None, ["other group", "other connector"]),
        ({'{"shop": "a"}'}, ["second", "other group", "other connector"]),
        ({'{"shop": "c"}'}, ["first", "second", "other group", "other connector"]),
    ],
)
def test_a_reset_removes_the_runs_of_its_source_partitions(partitions: set[str] | None, left: list[str]) -> None:
    runs = {
        "first": RUN,
        "second": replace(RUN, run="second"),
        "other group": replace(RUN, group="g"),
        "other connector": replace(RUN, connector="c"),
    }
    markers = Markers()
    for name, run in runs.items():
        plan = replace(PLAN, source_partition='{"shop": "b"}') if name == "second" else PLAN
        markers.take([record(run.marker(None), plan.to_bytes()), record(run.marker(0), Marker(rows=1).to_bytes())])
    lost = replace(RUN, run="its plan was lost")
    markers.take([record(lost.marker(3), Marker(rows=1).to_bytes())])
    markers.take([record(*entry) for entry in markers.entries_of_connector(RUN.group, RUN.connector, partitions)])
    assert [name for name, run in runs.items() if markers.plan(run) and markers.of(run)] == left
    assert markers.of(lost) == {}


def test_a_query_with_other_spark_partitions_is_refused() -> None:
    same_partitions(RUN, PLAN, 8)
    with pytest.raises(NotRepeatableException, match="begun with 8 Spark partitions, and its query has 9 now"):
        same_partitions(RUN, PLAN, 9)


ROWS = np.arange(100, dtype=np.int64) * 7919


@pytest.mark.parametrize("size", [1, 7, 50, 99, 100])
@pytest.mark.parametrize("done", [0, 1, 49, 50, 100])
def test_what_is_dealt_with_is_left_out_however_rows_come(size: int, done: int) -> None:
    marker = Marker(rows=done, digest=digest(0, ROWS[:done]))
    skipping = Skipping(RUN, 0, marker)
    left = [
        number
        for start in range(0, 100, size)
        for number in ROWS[start : start + size][skipping.take(ROWS[start : start + size]) :]
    ]
    skipping.end()
    assert left == ROWS[done:].tolist()
    assert skipping.digest == digest(0, ROWS)


@pytest.mark.parametrize("change", ["value", "order", "one more before", "fewer"])
def test_a_query_that_gives_other_rows_is_found(change: str) -> None:
    rows = ROWS.copy()
    if change == "value":
        rows[17] += 1
    elif change == "order":
        rows[[3, 4]] = rows[[4, 3]]
    elif change == "one more before":
        rows = np.concatenate([[1], rows])
    else:
        rows = rows[:40]
    skipping = Skipping(RUN, 5, Marker(rows=50, digest=digest(0, ROWS[:50])))
    with pytest.raises(NotRepeatableException, match="Of Spark partition 5 of the run 'first' 50 rows are in Kafka"):
        _all_of(skipping, rows)


def _all_of(skipping: Skipping, rows: np.ndarray) -> None:
    skipping.take(rows)
    skipping.end()


def test_jobs_that_get_no_further_are_counted_and_others_are_not() -> None:
    tries = AttemptCounter()
    assert [tries.again(0) for _ in range(4)] == [True, True, True, False]
    tries = AttemptCounter()
    assert all(tries.again(rows) for rows in range(20)), "each of them got further"
    assert [tries.again(19) for _ in range(3)] == [True, True, False]
    assert not AttemptCounter(most=1).again(100)
