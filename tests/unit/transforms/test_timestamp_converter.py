"""TimestampConverter on single records, and its settings."""

from datetime import UTC, date, datetime, time

import pytest

from penstock.api import SinkRecord
from penstock.data import Date, SchemaBuilder, Struct, Time, Timestamp
from penstock.errors import ConfigException, ConnectException, DataException
from penstock.transforms.definition import NullPointerError
from penstock.transforms.timestamp_converter import TimestampConverterValue

MOMENT = datetime(2017, 1, 3, 6, 30, 1, 864_000, UTC)
MILLIS = 1483425001864
NOW = datetime(2026, 11, 21, tzinfo=UTC).timestamp()


def converter(**config):
    transform = TimestampConverterValue(clock=lambda: NOW)
    transform.configure({name.replace("_", "."): setting for name, setting in config.items()})
    return transform


def convert(value, schema=None, **config):
    return converter(**config).apply(SinkRecord("t", 0, 0, value, value_schema=schema))


@pytest.mark.parametrize("value", [MOMENT, MILLIS, "2017-01-03 06:30:01.864"])
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("string", "2017-01-03 06:30:01.864"),
        ("unix", MILLIS),
        ("Date", date(2017, 1, 3)),
        ("Time", time(6, 30, 1, 864_000)),
        ("Timestamp", MOMENT),
    ],
)
def test_every_representation_without_schema_becomes_every_other(value, target, expected):
    assert convert(value, target_type=target, format="yyyy-MM-dd HH:mm:ss.SSS").value == expected


@pytest.mark.parametrize(
    ("precision", "unix", "millis"),
    [
        ("seconds", 1483425001864123456, 2**63 - 1),
        ("seconds", -1, -1000),
        ("microseconds", -1500, -1),
        ("nanoseconds", 1483425001864123456, 1483425001864),
    ],
)
def test_units_are_cut_towards_zero_and_stop_at_the_limits(precision, unix, millis):
    schema = SchemaBuilder.int64().build()
    made = convert(unix, schema, target_type="Timestamp", unix_precision=precision).value
    assert Timestamp.from_logical(Timestamp.SCHEMA, made) == millis


def test_milliseconds_become_units_towards_zero():
    made = convert(-1, Timestamp.SCHEMA, target_type="unix", unix_precision="seconds")
    assert (made.value, made.value_schema) == (0, SchemaBuilder.int64().build())


def test_dates_and_times_are_of_the_utc_day():
    before = datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)
    assert convert(before, Timestamp.SCHEMA, target_type="Date").value == date(1969, 12, 31)
    assert convert(before, Timestamp.SCHEMA, target_type="Time").value == time(23, 59, 59, 999_000)


def test_a_field_keeps_optional_and_loses_its_default():
    stamp = Timestamp.builder().optional().default_value(5).build()
    schema = SchemaBuilder.struct().name("n").field("f", stamp).field("d", Date.SCHEMA).build()
    struct = Struct.unchecked(schema, [None, date(1970, 1, 1)])
    made = convert(struct, schema, target_type="unix", field="f")
    assert made.value.get("f") == 5
    assert made.value_schema.field("f").schema == SchemaBuilder.int64().optional().build()
    kept = convert(struct, schema, target_type="unix", field="f", replace_null_with_default="false")
    assert kept.value.get("f") is None


def test_a_missing_field_is_null_without_schema_and_nothing_with_one():
    assert convert({"a": 1}, target_type="unix", field="f.g").value == {"a": 1, "f.g": None}
    schema = SchemaBuilder.struct().field("f", Time.SCHEMA).build()
    assert convert(Struct.unchecked(schema, [time()]), schema, target_type="unix", field="x").value_schema == schema


def test_years_of_two_digits_are_those_from_eighty_years_ago_on():
    assert convert("46-11-20", target_type="string", format="yy-MM-dd").value == "46-11-20"
    years = [convert(text, target_type="unix", format="yy").value for text in ("46", "47")]
    assert [datetime.fromtimestamp(one / 1000, UTC).year for one in years] == [2046, 1947]


def test_text_that_does_not_fit_says_the_pattern():
    message = r"Could not parse timestamp: value \(soon\) does not match pattern \(yyyy\)"
    with pytest.raises(DataException, match=message):
        convert("soon", target_type="unix", format="yyyy")
    with pytest.raises(NullPointerError):
        convert("2017", target_type="unix")


def test_what_is_no_timestamp_is_refused_by_schema_and_by_class():
    with pytest.raises(ConnectException, match=r"Schema Schema\{INT32\} does not correspond to a known"):
        convert(1, SchemaBuilder.int32().build(), target_type="unix")
    with pytest.raises(DataException, match=r"TimestampConverter does not support class java.lang.Double objects"):
        convert(1.0, target_type="unix")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"target_type": "string"},
            "TimestampConverter requires format option to be specified when using string timestamps",
        ),
        (
            {"target_type": "unix", "format": "bogus"},
            "Invalid value java.lang.IllegalArgumentException: Illegal pattern character 'b' for configuration "
            "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: bogus",
        ),
        (
            {"target_type": "bogus"},
            "Invalid value bogus for configuration target.type: String must be one of: string, unix, Date, Time, "
            "Timestamp",
        ),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(ConfigException) as caught:
        converter(**config)
    assert str(caught.value) == message


def test_a_wrong_pattern_is_found_at_validation_with_key_value_and_rule():
    found = converter(target_type="unix").config().validate({"target.type": "unix", "format": "bogus"})
    (message,) = [text for value in found for text in value.error_messages]
    assert message.startswith("Invalid value bogus for configuration format: Illegal pattern character 'b'. Patterns")
