"""Moments printed and read as columns: the quick ways say the same as the arithmetic of one value."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from penstock.pipeline.java_dates import DateParser, compile_pattern, print_column
from penstock.pipeline.java_dates.printing import print_millis
from penstock.pipeline.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]

PATTERNS = [
    "yyyy-MM-dd",
    "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "ddMMyyyy",
    "SSS ss mm HH dd MM yyyy",
    "HH:mm",
    "yyyy z X",
    "EEE, dd MMM yy",
    "EEEE d MMMM h:m:s a K k u",
    "MM/yyyy",
    "HH:mm:ss.SSS",
]
MOMENTS = [
    0,
    -1,
    1_709_210_096_789,  # 29 February 2024
    951_827_696_000,  # 29 February 2000
    -12_219_292_800_001,  # the last of the Julian calendar
    -12_219_292_800_000,
    253_402_300_799_999,
    253_402_300_800_000,
    -62_135_769_600_000,
    86_399_999,
    None,
]
TEXTS = [
    *("2024-02-29", "2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-10", "0001-01-01", "1582-10-10"),
    *(
        "1582-10-15",
        "9999-12-31",
        "2024-2-9",
        "2024-02-29x",
        " 2024-1-1",
        "+024-01-01",
        "٢٠٢٤-٠١-٠١",
        "",
        "2024-01-01 ",
    ),
    *(
        "2024-01-01 23:59:59",
        "2024-01-01 24:00:00",
        "2024-01-01 00:60:00",
        "2024-01-01 00:00:61",
        "2024-01-01 +1:00:00",
    ),
    *("02/2024", "13/2024", "23:59", "25:61", "01:02:03.004", "2024-01-01 99:00:00"),
    *("2024-01-01T01:02:03.004Z", "2024-01-01T01:02:03.4Z", "01012024", "31042024", "004 03 02 01 29 02 2024"),
]


def test_moments_are_printed_as_one_by_one(spark_runtime: SparkRuntime) -> None:
    frame = spark_runtime.session(180).createDataFrame([(moment,) for moment in MOMENTS], "m bigint")

    rows = frame.select(*[print_column(compile_pattern(one), F.col("m")) for one in PATTERNS]).collect()

    assert [list(row) for row in rows] == [
        [None if moment is None else print_millis(compile_pattern(one), moment) for one in PATTERNS]
        for moment in MOMENTS
    ]


def test_texts_are_read_as_one_by_one(spark_runtime: SparkRuntime) -> None:
    parsers = [DateParser(one) for one in [*PATTERNS[:6], *PATTERNS[-2:]]]
    frame = spark_runtime.session(180).createDataFrame([(text,) for text in [*TEXTS, None]], "t string")

    rows = frame.select(*[parser.column(F.col("t")) for parser in parsers]).collect()

    found = {text: list(row) for text, row in zip([*TEXTS, None], rows, strict=True)}
    assert found == {text: [text if text is None else one.parse(text) for one in parsers] for text in [*TEXTS, None]}
