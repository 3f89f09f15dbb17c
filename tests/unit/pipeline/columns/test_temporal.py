"""Raw integers of temporal types and Python's dates and times."""

from datetime import UTC, date, datetime, time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.pipeline.columns.temporal import (
    date_of_days,
    datetime_of_millis,
    days_of_date,
    millis_of_datetime,
    millis_of_time,
    time_of_millis,
)


@examples(40)
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_raw_timestamp_comes_back(millis: int) -> None:
    found = datetime_of_millis(millis)

    assert (found if isinstance(found, int) else millis_of_datetime(found)) == millis


@examples(40)
@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_every_raw_date_and_time_comes_back(raw: int) -> None:
    day, moment = date_of_days(raw), time_of_millis(raw)

    assert (day if isinstance(day, int) else days_of_date(day)) == raw
    assert (moment if isinstance(moment, int) else millis_of_time(moment)) == raw


@pytest.mark.parametrize(
    ("millis", "expected"),
    [
        (-62_135_596_800_000, datetime(1, 1, 1, tzinfo=UTC)),
        (-62_135_596_800_001, -62_135_596_800_001),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)),
        (253_402_300_800_000, 253_402_300_800_000),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ],
)
def test_only_what_python_can_hold_becomes_a_datetime(millis: int, expected: object) -> None:
    assert datetime_of_millis(millis) == expected


def test_finer_parts_are_cut_towards_the_past() -> None:
    assert millis_of_datetime(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)) == -1
    assert millis_of_time(time(0, 0, 0, 1_999)) == 1


def test_the_last_day_of_python_is_a_date() -> None:
    assert date_of_days(days_of_date(date.max)) == date.max
    assert date_of_days(days_of_date(date.max) + 1) == days_of_date(date.max) + 1
