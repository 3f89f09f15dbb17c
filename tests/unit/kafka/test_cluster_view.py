"""When a producer asks for the cluster's metadata, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.kafka.cluster_view import ClusterView
from penstock.kafka.protocol import BrokerEndpoint, ClusterMetadata, TopicMetadata

BROKERS = {1: BrokerEndpoint("one", 9092), 2: BrokerEndpoint("two", 9092)}
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_ALLOWED = 3, 5, 29


def view() -> ClusterView:
    return ClusterView(max_age_s=300.0, backoff_s=0.1, propagation_s=30.0)


def told(error_code: int = 0, leaders: Mapping[int, int] | None = None, topic: str = "t") -> ClusterMetadata:
    return ClusterMetadata(BROKERS, {topic: TopicMetadata(error_code, leaders or {})})


def test_nothing_is_asked_until_a_topic_is_wanted() -> None:
    found = view()
    assert found.question_at() == float("inf")
    found.want("t", 5.0)
    assert found.question_at() == 5.0
    assert found.question(5.0) == ["t"]
    assert found.question_at() == 305.0


def test_an_answer_tells_partitions_and_leaders() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(leaders={0: 1, 1: 2}), 1.0)
    assert found.partitions("t") == 2
    assert (found.leader("t", 1), found.leader("t", 2), found.leader("u", 0)) == (2, None, None)
    assert found.brokers == BROKERS


def test_a_partition_without_a_leader_makes_it_ask_again_soon() -> None:
    found = view()
    found.want("t", 0.0)
    found.question(0.0)
    found.learn(told(leaders={0: 1, 1: -1}), 1.0)
    assert found.partitions("t") == 2
    assert found.leader("t", 1) is None
    assert found.question_at() == 1.1


def test_a_topic_may_be_unknown_for_a_while() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(UNKNOWN_TOPIC), 10.0)
    found.learn(told(UNKNOWN_TOPIC), 39.9)
    assert found.fault("t") is None
    found.learn(told(UNKNOWN_TOPIC), 40.0)
    fault = found.fault("t")
    assert fault is not None
    assert fault.unknown
    found.want("t", 50.0)
    assert found.fault("t") is None, "who wants it again has a new chance"
    found.learn(told(leaders={0: 1}), 51.0)
    assert found.partitions("t") == 1


def test_a_topic_that_vanishes_is_known_until_it_has_been_unknown_for_a_while() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(leaders={0: 1}), 1.0)
    found.learn(told(LEADER_NOT_AVAILABLE), 2.0)
    assert found.partitions("t") == 1
    found.learn(told(UNKNOWN_TOPIC), 33.0)
    assert found.partitions("t") is None
    assert found.fault("t") is not None


def test_a_partition_that_its_topic_has_lost_is_gone_after_a_while() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(leaders={0: 1, 1: 1, 2: 1}), 1.0)
    found.learn(told(leaders={0: 1}), 10.0)
    assert (found.is_gone("t", 2, 39.9), found.is_gone("t", 2, 40.0)) == (False, True)
    assert not found.is_gone("t", 0, 40.0)
    found.learn(told(leaders={0: 1, 1: 1, 2: 1}), 41.0)
    assert not found.is_gone("t", 2, 80.0)
    assert not found.is_gone("u", 0, 80.0), "nothing is known of it"


def test_what_will_not_change_is_said_at_once() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(NOT_ALLOWED), 1.0)
    fault = found.fault("t")
    assert fault is not None
    assert not fault.unknown
    assert fault.kind.java_name == "TopicAuthorizationException"


def test_doubts_are_not_asked_about_more_often_than_the_backoff_allows() -> None:
    found = view()
    found.want("t", 0.0)
    found.question(0.0)
    found.doubt(0.02)
    assert found.question_at() == 0.1
    found.question(0.1)
    found.doubt(7.0)
    assert found.question_at() == 7.0
    found.question(7.0)
    found.failed(7.5)
    assert found.question_at() == 7.6
