"""Which topics a sink reads."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigException
from penstock.kafka.consumer.offsets import Subscription


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        (r"orders-(?<year>[0-9]{4})", "orders-2024", "orders-2024-old"),
        (r"\Qa.b\E-.*", "a.b-1", "axb-1"),
        (r"\p{Lower}+", "orders", "Orders"),
        ("[a-z&&[^x]]+", "orders", "oxen"),
        (".*", "anything", "__consumer_offsets"),
    ],
)
def test_a_java_pattern_takes_topics_as_in_java(pattern: str, taken: str, left: str) -> None:
    subscription = Subscription.matching(pattern)
    assert subscription.covers(taken)
    assert not subscription.covers(left)


def test_a_wrong_pattern_is_refused_with_its_setting() -> None:
    with pytest.raises(ConfigException, match=r"topics\.regex"):
        Subscription.matching("[a-")
