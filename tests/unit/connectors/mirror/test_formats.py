"""Records of the mirror's own topics, byte for byte as the classes of connect-mirror-client 4.3 write them."""

from __future__ import annotations

import pytest

from penstock.api import TopicPartition
from penstock.connectors.mirror.formats import Checkpoint, Heartbeat, OffsetSync

PLACE = TopicPartition("ä", 3)


@pytest.mark.parametrize(
    ("one", "key", "value"),
    [
        (OffsetSync(PLACE, 5, 7), "0002c3a400000003", "00000000000000050000000000000007"),
        (
            Checkpoint("g", PLACE, 5, 7, "m"),
            "0001670002c3a400000003",
            "00000000000000000005000000000000000700016d",
        ),
        (Heartbeat("east", "west", 1234), "000465617374000477657374", "000000000000000004d2"),
    ],
)
def test_bytes_are_those_of_java(one: OffsetSync, key: str, value: str) -> None:
    assert (one.key.hex(), one.value.hex()) == (key, value)
    assert type(one).of(one.key, one.value) == one
