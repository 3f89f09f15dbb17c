"""RegexRouter and TimestampRouter on single records, and their settings."""

import pytest

from penstock.api import SinkRecord
from penstock.config.java_pattern import compile_java
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_dates import DatePatternError
from penstock.transforms.topics import (
    NoSuchGroupError,
    RegexRouter,
    ReplacementError,
    TimestampRouter,
    parse_replacement,
)


def routed(transform, topic, timestamp=0, **config):
    transform.configure({name.replace("_", "."): setting for name, setting in config.items()})
    return transform.apply(SinkRecord(topic, 0, 0, "v", timestamp=timestamp)).topic


def errors(transform, **config):
    settings = {name.replace("_", "."): setting for name, setting in config.items()}
    return [message for value in transform.config().validate(settings) for message in value.error_messages]


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "renamed"),
    [
        ("a|ab", "x", "ab", "xb"),
        ("(a)(b)?", "$1-$2", "a", "a-"),
        ("(.*?)(-suffix)?", "$1", "t-suffix", "t-suffix"),
        ("o", "x", "orig", "orig"),
        (r"\Qa.b\E", "x", "a.b", "x"),
        ("(a)b", "$11", "ab", "a1"),
        ("(?<n>a)b", "${n}\\$", "ab", "a$"),
    ],
)
def test_a_topic_that_matches_as_a_whole_is_renamed_at_its_first_match(regex, replacement, topic, renamed):
    assert routed(RegexRouter(), topic, regex=regex, replacement=replacement) == renamed


def test_a_wrong_reference_fails_where_it_is_used_and_at_validation():
    with pytest.raises(NoSuchGroupError, match=r"^No group 2$"):
        routed(RegexRouter(), "a", regex="(a)", replacement="$2")
    (message,) = errors(RegexRouter(), regex="(a)", replacement="$2")
    assert message.startswith("Invalid value $2 for configuration replacement: No group 2.")
    assert routed(RegexRouter(), "b", regex="(a)", replacement="$2") == "b"


@pytest.mark.parametrize("text", ["$", "\\", "$x", "${", "${n", "${1a}", "${other}"])
def test_a_replacement_java_refuses_is_refused(text):
    with pytest.raises(ReplacementError):
        parse_replacement(text, compile_java("(?<n>x)"))


def test_a_wrong_expression_is_refused_with_its_position():
    with pytest.raises(ConfigException, match="Invalid value \\[ for configuration regex: Invalid regex: Unclosed"):
        routed(RegexRouter(), "a", regex="[", replacement="x")


def test_the_topic_is_put_in_before_the_timestamp():
    assert routed(TimestampRouter(), "a${timestamp}", topic_format="${topic}", timestamp_format="yyyy") == "a1970"
    assert routed(TimestampRouter(), "a$1\\") == "a$1\\-19700101"


def test_a_record_without_timestamp_fails():
    with pytest.raises(DataException, match="Timestamp missing on record: "):
        routed(TimestampRouter(), "a", None)


def test_a_wrong_date_pattern_fails_the_records_and_the_validation():
    with pytest.raises(DatePatternError, match="Illegal pattern character 'b'"):
        routed(TimestampRouter(), "a", timestamp_format="b")
    (message,) = errors(TimestampRouter(), timestamp_format="b")
    assert message.startswith("Invalid value b for configuration timestamp.format: Illegal pattern character 'b'")
