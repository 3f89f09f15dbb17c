"""Moments printed and read as columns: the quick ways say the same as the arithmetic of one value."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from penstock.pipeline.columns.date_parsing import DateParser
from penstock.pipeline.columns.java_dates import compile_pattern, print_column, print_millis
from penstock.pipeline.plan.step import NameColumn, unnamed
from penstock.pipeline.spark.session import SparkRuntime

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
PRINTED = [*PATTERNS, "y", "yyy-M-d", "yyyyy", "yyyyyyyyy MM", "yy", "yy E u", "z", "G y D w"]
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
    -62_104_147_200_001,  # the year 2 BC, in which Java begins a leap year
    -62_135_769_600_001,
    -62_162_208_000_000,  # 29 February of 5 BC or near it
    *(number * 31_556_952_000_000 + number * 86_399_123 for number in range(-3_000, 10_000, 487)),
    *(number * 86_400_000 + 12_345_678 for number in range(-719_900, -719_000, 61)),
    2**63 - 1,
    -(2**63),
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


@pytest.mark.parametrize("keep", [None, unnamed], ids=["in_a_lambda", "named"])
def test_moments_are_printed_as_one_by_one(spark_runtime: SparkRuntime, keep: NameColumn | None) -> None:
    frame = spark_runtime.session(180).createDataFrame([(moment,) for moment in MOMENTS], "m bigint")

    rows = frame.select(*[print_column(compile_pattern(one), F.col("m"), keep) for one in PRINTED]).collect()

    assert [list(row) for row in rows] == [
        [None if moment is None else print_millis(compile_pattern(one), moment) for one in PRINTED]
        for moment in MOMENTS
    ]


def test_texts_are_read_as_one_by_one(spark_runtime: SparkRuntime) -> None:
    parsers = [DateParser(one) for one in [*PATTERNS[:6], *PATTERNS[-2:]]]
    frame = spark_runtime.session(180).createDataFrame([(text,) for text in [*TEXTS, None]], "t string")

    rows = frame.select(*[parser.column(F.col("t")) for parser in parsers]).collect()

    found = {text: list(row) for text, row in zip([*TEXTS, None], rows, strict=True)}
    assert found == {text: [text if text is None else one.parse(text) for one in parsers] for text in [*TEXTS, None]}
