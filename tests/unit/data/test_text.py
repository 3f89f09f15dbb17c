"""Dates as Java prints them: the Julian calendar before 15 October 1582, and years that Python has no dates for."""

from datetime import date

import pytest

from penstock.data import Date, Timestamp
from penstock.data.text import to_java_text


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (-12_219_292_800_000, "Fri Oct 15 00:00:00 UTC 1582"),
        (-12_219_292_800_001, "Thu Oct 04 23:59:59 UTC 1582"),
        (-62_135_596_800_000, "Mon Jan 03 00:00:00 UTC 1"),
        (-62_135_769_600_000, "Sat Jan 01 00:00:00 UTC 1"),
        (-62_198_755_200_000, "Fri Jan 03 00:00:00 UTC 2"),
        (253_402_300_800_000, "Sat Jan 01 00:00:00 UTC 10000"),
    ],
)
def test_a_timestamp_is_printed_in_the_calendar_of_its_time(millis: int, text: str) -> None:
    assert to_java_text(millis, Timestamp.SCHEMA) == text


def test_days_and_pythons_own_dates_are_printed_alike() -> None:
    texts = [to_java_text(-719_164, Date.SCHEMA), to_java_text(date(1, 1, 1))]

    assert texts == ["Sat Jan 01 00:00:00 UTC 1", "Mon Jan 03 00:00:00 UTC 1"]
