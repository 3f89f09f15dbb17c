"""Sql's settings: what can be said of them without Spark, and what waits for its session."""

import time

import pytest

from penstock.errors import ConfigException, SparkUnavailableException
from penstock.pipeline.spark import session
from penstock.transforms.sql.transform import Sql


class ComingRuntime:
    """A session that is on its way and does not arrive."""

    def __init__(self, boot_began=None):
        self.boot_began = boot_began
        self.waited = []

    def session(self, timeout_s):
        self.waited.append(timeout_s)
        raise SparkUnavailableException("the Spark session is not up")


def faults(**settings):
    return {one.name: one.error_messages for one in Sql().config().validate(settings)}


def test_without_any_expression_the_validation_fails():
    message = "Invalid value null for configuration select: Sql needs an expression: set select, where, or both"
    assert faults() == {"select": [message], "where": []}
    with pytest.raises(ConfigException, match="Sql needs an expression"):
        Sql().configure({})


@pytest.mark.parametrize("settings", [{"select": "a"}, {"where": "a = 1"}])
def test_one_expression_is_enough(settings):
    assert faults(**settings) == {"select": [], "where": []}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"select": "a,,b"}, "There is an expression missing"),
        ({"select": "explode(a) as a, inline(b)"}, "explode and inline both make several records of one"),
        (
            {"where": "explode(a) = 1"},
            "explode makes several records of one: Spark allows that in select",
        ),
    ],
)
def test_what_needs_no_spark_is_refused_without_a_session(settings, words):
    (messages,) = [found for found in faults(**settings).values() if found]
    assert words in messages[0]


def test_a_check_waits_for_a_session_that_is_on_its_way(monkeypatch):
    runtime = ComingRuntime()
    monkeypatch.setattr(session, "_started", runtime)
    assert faults(select="upper(not_checked_yet") == {"select": [], "where": []}
    assert runtime.waited == [60.0]


def test_a_check_waits_no_longer_than_the_start_should_take(monkeypatch):
    runtime = ComingRuntime(boot_began=time.monotonic() - 61)
    monkeypatch.setattr(session, "_started", runtime)
    faults(select="upper(not_checked_yet", where="nor this(")
    assert runtime.waited == [0.0, 0.0]
