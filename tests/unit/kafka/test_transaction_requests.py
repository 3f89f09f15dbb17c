"""The bytes of transactions and logins, as the protocol guide lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from penstock.kafka import protocol as wire
from penstock.kafka.protocol import BrokerEndpoint, MalformedResponse

COORDINATOR = bytes.fromhex("00000007000000000000ffff0000000300016100002384")
NO_COORDINATOR = bytes.fromhex("0000000700000000000f00026e6fffffffff0000ffffffff")
#: Flexible: tagged fields behind the header and at the end; one of two bytes that nobody here knows.
IDENTITY = bytes.fromhex("000000070000000000000000000000000003e80002010502abcd")
ADDED = bytes.fromhex(
    "00000007" "00000000" "00000001" "0001" "74" "00000002" "00000000" "0000" "00000003" "0033"
)  # fmt: skip
ENDED = bytes.fromhex("0000000700000000005a")
MECHANISMS = bytes.fromhex("000000070021000000020005504c41494e0006475353415049")
SAID = bytes.fromhex("000000070000ffff00000003763d410000000000000bb8")
ANSWERS: Sequence[tuple[Callable[[memoryview], object], bytes, object]] = (
    (
        wire.find_coordinator_response,
        COORDINATOR,
        wire.FoundCoordinator(0, None, BrokerEndpoint("a", 9092)),
    ),
    (
        wire.find_coordinator_response,
        NO_COORDINATOR,
        wire.FoundCoordinator(15, "no", BrokerEndpoint("", -1)),
    ),
    (partial(wire.response, wire.INIT_TRANSACTIONS), IDENTITY, [0, 0, 1000, 2]),
    (partial(wire.response, wire.ADD_PARTITIONS), ADDED, [0, [["t", [[0, 0], [3, 51]]]]]),
    (partial(wire.response, wire.END_TRANSACTION), ENDED, [0, 90]),
    (partial(wire.response, wire.SASL_HANDSHAKE), MECHANISMS, [33, ["PLAIN", "GSSAPI"]]),
    (partial(wire.response, wire.SASL_AUTHENTICATE), SAID, [0, None, b"v=A", 3000]),
)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            wire.find_coordinator_request("tx"),
            "00000010" "000a" "0002" "00000007" "0001" "63" "0002" "7478" "01",
        ),
        (
            wire.request(wire.INIT_TRANSACTIONS, "tx", 60_000, 1000, 2),
            "0000001e" "0016" "0003" "00000007" "0001" "63" "00" "03" "7478" "0000ea60" "00000000000003e8" "0002" "00",
        ),
        (
            wire.request(wire.INIT_TRANSACTIONS, "x" * 200, 1, -1, -1),
            "000000e5" "0016" "0003" "00000007" "0001" "63" "00" "c901" + "78" * 200 + "00000001" + "ff" * 10 + "00",
        ),
        (
            wire.request(wire.ADD_PARTITIONS, "tx", 1000, 2, wire.by_topic([("t", 0), ("u", 1), ("t", 3)])),
            "00000037" "0018" "0002" "00000007" "0001" "63" "0002" "7478" "00000000000003e8" "0002"
            "00000002" "0001" "74" "00000002" "00000000" "00000003" "0001" "75" "00000001" "00000001",
        ),
        (
            wire.request(wire.END_TRANSACTION, "tx", 1000, 2, True),
            "0000001a" "001a" "0002" "00000007" "0001" "63" "0002" "7478" "00000000000003e8" "0002" "01",
        ),
        (
            wire.request(wire.SASL_HANDSHAKE, "PLAIN"),
            "00000012" "0011" "0001" "00000007" "0001" "63" "0005" "504c41494e",
        ),
        (
            wire.request(wire.SASL_AUTHENTICATE, b"\0a\0b"),
            "00000013" "0024" "0001" "00000007" "0001" "63" "00000004" "00610062",
        ),
    ],
)  # fmt: skip
def test_requests_are_what_the_guide_says(made: wire.BrokerRequest, expected: str) -> None:
    assert b"".join(wire.framed(made, 7, "c")).hex() == expected


@pytest.mark.parametrize(("read", "payload", "expected"), ANSWERS)
def test_answers_are_read(read: Callable[[memoryview], object], payload: bytes, expected: object) -> None:
    assert read(memoryview(payload)) == expected


@pytest.mark.parametrize(("read", "payload", "_"), ANSWERS)
def test_answers_that_end_too_soon_or_too_late_are_malformed(
    read: Callable[[memoryview], object], payload: bytes, _: object
) -> None:
    for end in range(len(payload)):
        with pytest.raises(MalformedResponse):
            read(memoryview(payload)[:end])
    with pytest.raises(MalformedResponse, match="more bytes than its fields have"):
        read(memoryview(payload + b"\0"))


@pytest.mark.parametrize(("read", "payload", "_"), ANSWERS)
def test_no_byte_of_an_answer_makes_it_fail_in_another_way_than_as_malformed(
    read: Callable[[memoryview], object], payload: bytes, _: object
) -> None:
    for at in range(len(payload)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            try:
                read(memoryview(payload[:at] + bytes([byte]) + payload[at + 1 :]))
            except MalformedResponse:
                continue
