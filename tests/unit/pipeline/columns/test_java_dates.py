"""SimpleDateFormat patterns on single values: what Java 17 printed and read for the same."""

from datetime import UTC, datetime

import pytest

from penstock.pipeline.columns.date_parsing import DateParser
from penstock.pipeline.columns.java_dates import DatePatternError, compile_pattern, print_millis

MOMENT = 1483425001864


def millis(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2017-01-03T06:30:01.864Z"),
        ("yy/M/d H:m:s.S", "17/1/3 6:30:1.864"),
        ("EEE, d MMM yyyy EEEE MMMM", "Tue, 3 Jan 2017 Tuesday January"),
        ("kk KK hh a", "06 06 06 AM"),
        ("w W F E u D", "1 1 1 Tue 2 3"),
        ("G yyyyy YYYY", "AD 02017 2017"),
        ("X XX XXX Z z zzzz", "Z Z Z +0000 UTC Coordinated Universal Time"),
        ("''yyyy'' SSSSSS", "'2017' 000864"),
        ("LLL", "Jan"),
    ],
)
def test_a_moment_prints_as_java_prints_it(pattern, text):
    assert print_millis(compile_pattern(pattern), MOMENT) == text


def test_moments_before_the_gregorian_calendar_are_dates_of_the_julian_one():
    tokens = compile_pattern("G yyyy-MM-dd")
    assert print_millis(tokens, -62135596800000) == "AD 0001-01-03"
    assert print_millis(tokens, -12219292800000) == "AD 1582-10-15"
    assert print_millis(tokens, -12219292800001) == "AD 1582-10-04"
    assert print_millis(tokens, -99999999999999).startswith("BC 1200-02-")


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("yyyy-MM-dd", "2017-13-45", millis(2018, 2, 14)),
        ("yyyy-MM-dd", "2017-1-3", millis(2017, 1, 3)),
        ("yyyy-MM-dd", " 2017-01-03T10", millis(2017, 1, 3)),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-01-03 06:30:01.864123", 1483425865123),
        ("HH:mm", "24:00", 86_400_000),
        ("MMM d, yyyy", "jAnuary 3, 2017", millis(2017, 1, 3)),
        ("hh:mm a", "12:05 pm", (12 * 60 + 5) * 60_000),
        ("yyyyMMddHHmm", "201701030630", millis(2017, 1, 3, 6, 30)),
        ("yyyyMMdd", " 2017103", -55640044800000),
        ("ddMMMyyyy", "3Jan2017", millis(2017, 1, 3)),
        ("yyyy", "12", -61788700800000),
        ("yyyy-DDD", "2017-366", millis(2018, 1, 1)),
        ("yyyy-DDD", "1528-36399", -10802592000000),
        ("yyyy", "19E70", -6019000092841406464),
        ("YYYY-'W'ww-u", "2017-W01-2", millis(2017, 1, 3)),
        ("yyyy MM F E", "2017 01 2 Tue", millis(2017, 1, 10)),
        ("yyyy MM W E", "2017 01 1 Tue", millis(2017, 1, 3)),
        ("G yyyy", "BC 1", -62167392000000),
        ("yyyy-MM-dd HH:mm:ss Z", "2017-01-03 06:30:01 -0700", 1483450201000),
        ("EEE, d MMM yyyy HH:mm:ss z", "Tue, 3 Jan 2017 06:30:01 PST", 1483453801000),
        ("z", "gmt+5:30", -19_800_000),
        ("XXX", "+05:30", -19_800_000),
        ("dd", "\u0663", 172_800_000),
        ("dd", "1E2", 8_553_600_000),
        ("dd", "99999999999", 105040989216000000),
    ],
)
def test_text_is_read_as_leniently_as_by_java(pattern, text, moment):
    assert DateParser(pattern).parse(text) == moment


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "2017/01/03"),
        ("yyyy-MM-dd", ""),
        ("dd", "+5"),
        ("d", "- 5"),
        ("MMMM", "Ja"),
        ("yyyyMM", "201"),
        ("z", "+5"),
        ("z", "GMT+05"),
        ("X", "z"),
        ("MMM yyyy", " Jan 2017"),
    ],
)
def test_text_that_java_refuses_is_refused(pattern, text):
    assert DateParser(pattern).parse(text) is None


def test_two_digits_are_a_year_of_the_hundred_from_the_start_of_the_window_on():
    parser = DateParser("yy-MM-dd", millis(1946, 11, 21), 1946)
    assert parser.parse("46-11-20") == millis(2046, 11, 20)
    assert parser.parse("46-11-21") == millis(1946, 11, 21)
    assert parser.parse("45-01-01") == millis(2045, 1, 1)
    assert parser.parse("047-01-01") == DateParser("yyyy-MM-dd").parse("47-01-01")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("bogus", "Illegal pattern character 'b'"),
        ("yyyy'T", "Unterminated quote"),
        ("XXXX", "invalid ISO 8601 format: length=4"),
    ],
)
def test_a_wrong_pattern_is_refused_in_javas_words(pattern, text):
    with pytest.raises(DatePatternError, match=f"^{text}$"):
        compile_pattern(pattern)
