"""Which brokers a producer asks, and how it finds them."""

from __future__ import annotations

import socket
import time

import pytest
from testkit.brokers.scripted_broker import ScriptedBroker

from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.network.transport import Link
from penstock.kafka.protocol import PRODUCE, BrokerEndpoint
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

BOOTSTRAP, KNOWN = BrokerEndpoint("127.0.0.1", 1), BrokerEndpoint("127.0.0.1", 2)


def nothing() -> None:
    pass


def connections(**own: str) -> ProducerConnections:
    worker = {"bootstrap.servers": str(BOOTSTRAP), "producer.reconnect.backoff.ms": "0"}
    worker |= {f"producer.{name.replace('_', '.')}": text for name, text in own.items()}
    settings = ColumnSettings.of(producer_settings(worker, {}, client_id="c"))
    return ProducerConnections(settings, "c-0", (PRODUCE,), time.monotonic, nothing)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[BrokerEndpoint]:
    """The addresses that were tried."""
    found: set[BrokerEndpoint] = set()
    to = ProducerConnections.to

    def noting(self: ProducerConnections, address: BrokerEndpoint, now: float) -> Link | None:
        found.add(address)
        return to(self, address, now) and None

    monkeypatch.setattr(ProducerConnections, "to", noting)
    return found


@pytest.mark.parametrize(
    ("strategy", "expected"), [("rebootstrap", {BOOTSTRAP, KNOWN}), ("none", {KNOWN})], ids=["rebootstrap", "none"]
)
def test_where_no_known_broker_can_be_reached_the_bootstrap_servers_are_asked_again_unless_that_is_not_wanted(
    strategy: str, expected: set[BrokerEndpoint], asked: set[BrokerEndpoint]
) -> None:
    made = connections(metadata_recovery_strategy=strategy)
    made.any(0.0, {1: KNOWN})
    made.close()
    assert asked == expected


def test_a_broker_that_does_not_answer_keeps_nobody_from_asking_another(asked: set[BrokerEndpoint]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away, made = BrokerEndpoint(*silent.getsockname()), connections()
        made.to(away, 0.0)
        made.any(0.0, {1: away, 2: KNOWN})
        assert asked == {away}
        made.any(0.0, {1: away, 2: KNOWN}, away)
        made.close()
    assert asked == {away, KNOWN, BOOTSTRAP}


def test_without_any_known_broker_the_bootstrap_servers_are_asked_whatever_the_strategy(
    asked: set[BrokerEndpoint],
) -> None:
    made = connections(metadata_recovery_strategy="none")
    made.any(0.0, {})
    made.close()
    assert asked == {BOOTSTRAP}


def test_bootstrap_servers_are_asked_by_their_canonical_names_where_that_is_wanted(
    asked: set[BrokerEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getnameinfo", lambda place, flags: ("canonical.invalid", "1"))
    made = connections(client_dns_lookup="resolve_canonical_bootstrap_servers_only")
    made.any(0.0, {})
    made.close()
    assert asked == {BrokerEndpoint("canonical.invalid", 1)}


def test_buffers_of_the_system_are_as_large_as_they_are_set() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        made = connections(bootstrap_servers=broker.bootstrap, send_buffer_bytes="20000", receive_buffer_bytes="30000")
        link = made.to(BrokerEndpoint("127.0.0.1", broker.port), 0.0)
        assert link is not None
        # Linux keeps twice as much, for its own accounts.
        sizes = [link.socket.getsockopt(socket.SOL_SOCKET, kind) for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
        made.close()
    assert sizes == [40000, 60000]
