"""What is found for topics beside the plan, and where a plan has to end for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from testkit.doubles.chains import configured

from penstock.api import Predicate, Transformation
from penstock.errors import PatternTimeoutException
from penstock.pipeline.batch.batches import TransformStage
from penstock.pipeline.batch.segments import ColumnarSegment, cut_transforms
from penstock.pipeline.plan.step import ConditionalRoute, TopicLookup, looked_up
from penstock.transforms.extraction import HoistFieldValue
from penstock.transforms.predicates import RecordIsTombstone, TopicNameMatches
from penstock.transforms.topics import RegexRouter, Route, TimestampRouter

SHORTER = Route("db-(.*)", "$1")
#: No record of a topic of many letters a gets past it.
HOSTILE = "(?=a)(a|aa)+b"
LONG = "a" * 60


def matches(pattern: str) -> TopicNameMatches:
    return configured(TopicNameMatches(), {"pattern": pattern})


def found(lookup: TopicLookup, *topics: str | None) -> tuple[list[Any], list[Any]]:
    columns = looked_up([lookup], pa.array(topics, pa.string()))
    return columns[lookup.name].to_pylist(), columns[f"{lookup.name}_error"].to_pylist()


def test_each_record_has_the_answer_for_its_topic() -> None:
    values, errors = found(TopicLookup((), SHORTER), "db-a", "b", None, "db-a", "db-")

    assert values == ["a", "b", None, "a", ""]
    assert errors == [None] * 5


def test_a_predicate_is_asked_for_the_topic_as_routes_have_made_it_and_holds_for_no_missing_one() -> None:
    values, _ = found(TopicLookup((SHORTER,), matches("a.*")), "db-a1", "a1", "b", None)

    assert values == [True, True, False, False]


@pytest.mark.parametrize("asked", [Route(HOSTILE, "x"), matches(HOSTILE)], ids=["route", "predicate"])
def test_a_topic_for_which_a_pattern_takes_too_long_has_an_error_and_others_have_none(
    asked: Route | TopicNameMatches,
) -> None:
    values, errors = found(TopicLookup((), asked), "ab", LONG, "c", LONG)

    assert values[0] in ("x", True)
    assert [error is None for error in errors] == [True, False, True, False]
    assert errors[1] == errors[3]
    assert asked.raises[errors[1]["kind"]] is PatternTimeoutException
    assert HOSTILE in errors[1]["message"]


def test_what_fails_in_front_of_it_is_not_asked_and_has_no_second_error() -> None:
    values, errors = found(TopicLookup((Route(HOSTILE, "x"),), matches(".*")), LONG, "b")

    assert values == [False, True]
    assert errors == [None, None]


def test_the_kinds_of_errors_are_told_apart() -> None:
    lookup = TopicLookup((), ConditionalRoute(Route("(a)", "$2"), matches("a|b")))

    _, errors = found(lookup, "a", "b", "c")

    assert [error and lookup.asked.raises[error["kind"]].__name__ for error in errors] == [
        "NoSuchGroupError",
        None,
        None,
    ]


@pytest.mark.parametrize("negate", [False, True])
def test_a_conditional_route_leaves_other_topics_alone(negate: bool) -> None:
    values, _ = found(TopicLookup((), ConditionalRoute(SHORTER, matches(".*-a"), negate)), "db-a", "db-b")

    assert values == (["db-a", "b"] if negate else ["a", "db-b"])


def test_equal_lookups_have_one_name() -> None:
    assert TopicLookup((SHORTER,), matches("x")).name == TopicLookup((Route("db-(.*)", "$1"),), matches("x")).name
    assert TopicLookup((), matches("x")).name != TopicLookup((SHORTER,), matches("x")).name


def test_chunks_of_topics_are_one_column() -> None:
    lookup = TopicLookup((), SHORTER)

    columns = looked_up([lookup], pa.chunked_array([["db-a"], ["x", "db-b"]]))

    assert columns[lookup.name].to_pylist() == ["a", "x", "b"]


def stage(transform: Transformation, settings: dict[str, str], predicate: Predicate | None = None) -> TransformStage:
    return TransformStage("t", configured(transform, settings), predicate)


def router(predicate: Predicate | None = None) -> TransformStage:
    return stage(RegexRouter(), {"regex": "(.*)", "replacement": "$1"}, predicate)


def hoist(predicate: Predicate | None = None) -> TransformStage:
    return stage(HoistFieldValue(), {"field": "f"}, predicate)


BY_TIME = stage(TimestampRouter(), {})


@pytest.mark.parametrize(
    ("chain", "plans"),
    [
        ([router(), hoist(), router(matches("a")), hoist(matches("a"))], [4]),
        ([router(), BY_TIME, hoist()], [3]),
        ([BY_TIME, router()], [1, 1]),
        ([BY_TIME, hoist(), hoist(matches("a")), hoist()], [2, 2]),
        ([router(RecordIsTombstone()), hoist(), router()], [2, 1]),
        ([router(RecordIsTombstone()), hoist(RecordIsTombstone())], [2]),
    ],
    ids=["by the topic alone", "not asked again", "by time", "by time, a predicate", "by the value", "no topic"],
)
def test_a_plan_ends_where_topics_are_asked_for_that_it_has_made_itself(
    chain: list[TransformStage], plans: list[int]
) -> None:
    segments = cut_transforms(chain)

    assert [len(segment.steps) for segment in segments if isinstance(segment, ColumnarSegment)] == plans
