"""Directories of records."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.connectors.files.writing import frame, schemaless

from penstock.connectors.files.sink.partitioners import (
    DirectoryPartitioner,
    PathFormat,
    Times,
    TimestampExtractor,
    directory_name,
)
from penstock.errors import ConfigException, DataException


def directories(partitioner: DirectoryPartitioner, given: Any) -> list[str]:
    codes, names = partitioner.directories(given, partitioner.timestamps(given, 0))
    return [names[code] for code in codes]


def structs(**columns: Any) -> Any:
    value = pa.StructArray.from_arrays([pa.array(one) for one in columns.values()], list(columns))
    return frame(value, None)


def by_time(pattern: str, zone: str = "UTC", duration_ms: int = 3_600_000, **more: Any) -> DirectoryPartitioner:
    return DirectoryPartitioner(times=Times(PathFormat(pattern), ZoneInfo(zone), duration_ms), **more)


def test_without_settings_a_directory_is_a_partition_as_read_below_the_topic_as_routed() -> None:
    assert directories(DirectoryPartitioner(), frame([None], None, kind=pa.string(), topic="r", partition=7)) == [
        "r/partition=7"
    ]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["a", "b", "a", None], ["a", "b", "a", "__HIVE_DEFAULT_PARTITION__"]),
        ([1, 2, 1, None], ["1", "2", "1", "__HIVE_DEFAULT_PARTITION__"]),
        ([True, False], ["true", "false"]),
        ([1.5, -2.0], ["1.5", "-2.0"]),
        ([Decimal("1.10")], ["1.10"]),
        ([datetime.date(2026, 1, 2)], ["2026-01-02"]),
        ([b"\x00\xff"], ["00ff"]),
        (["/", "..", "a=b", "%2F", "ä", ""], ["%2F", "%2E%2E", "a%3Db", "%252F", "ä", "__HIVE_DEFAULT_PARTITION__"]),
        ([None, None], ["__HIVE_DEFAULT_PARTITION__"] * 2),
    ],
)
def test_values_of_fields_of_every_type_name_directories(values: list[Any], names: list[str]) -> None:
    assert directories(DirectoryPartitioner(("f",)), structs(f=values)) == [f"t/f={name}" for name in names]


def test_fields_may_be_nested_and_several_and_without_a_schema() -> None:
    value = schemaless([{"a": {"b": 1}, "c": "x"}, {"c": "y"}])
    found = directories(DirectoryPartitioner(("a.b", "c"), with_names=False), frame(value, None))
    assert found == ["t/1/x", "t/__HIVE_DEFAULT_PARTITION__/y"]


def test_fields_that_name_no_directory_are_an_error_that_names_them() -> None:
    with pytest.raises(DataException, match=r'The field "f" of partition\.field\.name is list'):
        directories(DirectoryPartitioner(("f",)), structs(f=[[1]]))
    with pytest.raises(DataException, match='There is no field "g"'):
        directories(DirectoryPartitioner(("g",)), structs(f=[1]))


def test_long_names_stay_apart_and_are_cut_between_characters() -> None:
    names = {directory_name("ä" * 500), directory_name("ä" * 501)}
    assert len(names) == 2
    assert all(len(name.encode()) < 230 for name in names)


def test_times_are_those_of_the_zone_also_where_clocks_change() -> None:
    # In Berlin the clock went from 2 to 3 on 29 March 2026, at 1:00 in UTC.
    start = int(datetime.datetime(2026, 3, 29, 0, 30, tzinfo=datetime.UTC).timestamp() * 1000)
    given = frame([""] * 3, None, kind=pa.string(), times=[start, start + 3_600_000, start + 86_400_000])
    assert directories(by_time("MM-dd_HH", "Europe/Berlin"), given) == ["t/03-29_01", "t/03-29_03", "t/03-30_02"]
    daily = by_time("'year'=YYYY/'month'=MM/'day'=dd", "Europe/Berlin", 86_400_000)
    assert directories(daily, given)[2] == "t/year=2026/month=03/day=30"
    kathmandu = by_time("HHmm", "Asia/Kathmandu", 86_400_000)
    assert directories(kathmandu, given) == ["t/0000"] * 3


def test_a_duration_of_some_minutes_names_its_beginning() -> None:
    given = frame([""] * 2, None, kind=pa.string(), times=[299_999, 300_000])
    assert directories(by_time("HH:mm", duration_ms=300_000), given) == ["t/00:00", "t/00:05"]
    assert directories(by_time("ss.SSS", duration_ms=500), given) == ["t/59.500", "t/00.000"]


@pytest.mark.parametrize(
    "values",
    [
        [86_400_000],
        [86_400_000.7],
        [Decimal("86400000")],
        [datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)],
        [datetime.date(1970, 1, 2)],
        ["1970-01-02T00:00:00Z"],
        ["1970-01-02T01:00:00+01:00"],
        ["1970-01-02"],
    ],
)
def test_the_time_of_a_field_may_have_every_type_of_times(values: list[Any]) -> None:
    partitioner = by_time("yyyy-MM-dd", extractor=TimestampExtractor.RECORD_FIELD, timestamp_field="at")
    assert directories(partitioner, structs(at=values)) == ["t/1970-01-02"]


@pytest.mark.parametrize(
    ("values", "text"), [(["soon"], "'soon', which is no time"), ([None], "null, or missing"), ([[1]], "has to be a")]
)
def test_a_field_that_is_no_time_is_an_error_that_says_so(values: list[Any], text: str) -> None:
    partitioner = by_time("yyyy", extractor=TimestampExtractor.RECORD_FIELD, timestamp_field="at")
    with pytest.raises(DataException, match=text):
        directories(partitioner, structs(at=values))


def test_a_time_that_no_calendar_has_is_an_error() -> None:
    with pytest.raises(DataException, match="is no date"):
        directories(by_time("yyyy"), frame([""], None, kind=pa.string(), times=[1 << 62]))


def test_fields_and_time_together() -> None:
    both = by_time("yyyy", fields=("f",))
    assert directories(both, structs(f=["a"])) == ["t/f=a/1970"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", "year=2026/month=03/day=05/hour=07"),
        ("yy.M.d H:m:s.SSS", "26.3.5 7:8:9.123"),
        ("EEEE EEE MMMM MMM DDD", "Thursday Thu March Mar 064"),
        ("hh a kk KK ww xxxx e", "07 AM 07 07 10 2026 4"),
        ("'it''s' Z ZZ ZZZ", "it's +0000 +00:00 UTC"),
    ],
)
def test_patterns_are_those_of_java(pattern: str, text: str) -> None:
    at = datetime.datetime(2026, 3, 5, 7, 8, 9, 123_456, tzinfo=ZoneInfo("UTC"))
    assert PathFormat(pattern).text(at) == text


def test_names_of_months_are_those_of_the_locale() -> None:
    at = datetime.datetime(2026, 3, 5, tzinfo=datetime.UTC)
    assert PathFormat("MMMM", "de-DE").text(at) == "März"


@pytest.mark.parametrize(
    ("pattern", "text"), [("yyyy-b", "the letter b"), ("'year", "without a partner"), ("year=yyyy", "the letter r")]
)
def test_patterns_that_mean_nothing_are_refused(pattern: str, text: str) -> None:
    with pytest.raises(ConfigException, match=text):
        PathFormat(pattern)


def test_names_in_a_language_that_is_not_there_are_refused_and_numbers_are_not() -> None:
    with pytest.raises(ConfigException, match="names of the locale xx"):
        PathFormat("MMM", "xx")
    PathFormat("MM", "xx")


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_long_values_of_many_fields_leave_room_in_the_key_of_an_object(count: int) -> None:
    names = [f"f{number}" for number in range(count)]
    values = [{name: f"{row}/" + "ä" * 1000 + str(row) for name in names} for row in range(3)]
    rows = frame(values, None, kind=pa.struct([(name, pa.string()) for name in names]))
    codes, directories = DirectoryPartitioner(tuple(names)).directories(rows, np.zeros(3, np.int64))
    assert len(set(codes.tolist())) == len(set(directories)) == 3
    # The name of a file has 30 bytes and a topic, of which the longest have 249.
    assert max(len(one.encode()) for one in directories) < 600
    assert all(one.count("/") == count for one in directories)
