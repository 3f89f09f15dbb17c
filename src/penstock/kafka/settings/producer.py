"""The settings of a ``ColumnProducer``, and of all connections of the worker's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.kafka.protocol import BrokerEndpoint
from penstock.kafka.settings.client import ClientSettings, translate
from penstock.kafka.settings.security import SaslSettings, TlsSettings
from penstock.kafka.settings.table import ClientKind, setting_names
from penstock.kafka.settings.values import NONE, Compression, RdValue, items

_ACKS: Final = {"all": -1, "0": 0, "1": 1}
#: More requests in flight are not faster, and idempotence does not allow more.
_MOST_UNDER_WAY: Final = 5
#: Java's default: partitions change as often as in Java, although the record batches may be larger.
_JAVA_BATCH_SIZE: Final = 16_384
_BATCH_SIZE: Final = 1_000_000
_ADDRESS: Final = re.compile(r"(?:[^/]*://)?(.*):([0-9]+)")


#: A topic that a broker does not know may just have been created: it is requested again for this long.
PROPAGATION_S: Final = 30.0


@dataclass(frozen=True)
class ColumnSettings:
    """The settings of a `ColumnProducer`. Times are in seconds, sizes in bytes.

    Attributes:
        acks: The replicas that must have the records: -1 for all in sync, 1 for the leader, 0 for none.
        idempotent: True if brokers drop duplicates and keep the order.
        batch_size: The most bytes of a record batch, unless one record has more.
        stick: The number of bytes without keys for one partition before the next one.
        request_size: The most bytes of a record's key and value, and of a request that has several record batches.
        buffer: The most bytes in flight.
        reconnect_backoff, reconnect_backoff_max: The wait between two attempts to connect; doubled each time up to the
            second value.
        idle: The time after which an unused connection is closed; 0 for never.
        send_buffer, receive_buffer: The system's buffers of each connection; 0 for its default.
        canonical_names: True to connect to the bootstrap servers by their canonical names.
        rebootstrap: True to ask the bootstrap servers again when no known broker can be reached.
        tls: The encryption of connections; None without encryption.
        sasl: The login; None without login.
        propagation: The longest time for which a topic may be unknown to a broker.
    """

    bootstrap: tuple[BrokerEndpoint, ...]
    client_id: str
    acks: int
    idempotent: bool
    transactional_id: str | None
    transaction_timeout: float
    batch_size: int
    stick: int
    partitioner: str
    request_size: int
    buffer: int
    compression: Compression
    requests: int
    retries: int
    request_timeout: float
    delivery_timeout: float
    connect_timeout: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    retry_backoff: float
    retry_backoff_max: float
    metadata_max_age: float
    idle: float
    send_buffer: int
    receive_buffer: int
    canonical_names: bool
    rebootstrap: bool
    tls: TlsSettings | None
    sasl: SaslSettings | None
    propagation: float = PROPAGATION_S

    @classmethod
    def of(cls, client: ClientSettings) -> ColumnSettings:
        given = client.checked().own

        def number(name: str, default: int) -> int:
            return int(given.get(name, default))

        def seconds(name: str, default: int) -> float:
            return number(name, default) / 1000

        class_name = str(given.get("partitioner.class", ""))
        keyless = not class_name and given.get("partitioner.ignore.keys") is True
        return cls(
            bootstrap=_addresses(given.get("bootstrap.servers", "")),
            client_id=client.client_id,
            acks=_ACKS[str(given.get("acks", "all"))],
            idempotent=given.get("enable.idempotence", True) is True,
            transactional_id=str(given["transactional.id"]) if given.get("transactional.id") else None,
            transaction_timeout=seconds("transaction.timeout.ms", 60_000),
            batch_size=number("batch.size", _BATCH_SIZE),
            stick=number("batch.size", _JAVA_BATCH_SIZE),
            partitioner="keyless" if keyless else class_name,
            request_size=number("max.request.size", 1 << 20),
            buffer=number("buffer.memory", 32 << 20),
            compression=client.compression or Compression(NONE),
            requests=min(_MOST_UNDER_WAY, number("max.in.flight.requests.per.connection", _MOST_UNDER_WAY)),
            retries=number("retries", 2**31 - 1),
            request_timeout=seconds("request.timeout.ms", 30_000),
            delivery_timeout=seconds("delivery.timeout.ms", 120_000),
            connect_timeout=seconds("socket.connection.setup.timeout.ms", 10_000),
            reconnect_backoff=seconds("reconnect.backoff.ms", 50),
            reconnect_backoff_max=seconds("reconnect.backoff.max.ms", 1000),
            retry_backoff=seconds("retry.backoff.ms", 100),
            retry_backoff_max=seconds("retry.backoff.max.ms", 1000),
            metadata_max_age=max(1.0, seconds("metadata.max.age.ms", 300_000)),
            idle=seconds("connections.max.idle.ms", 540_000),
            send_buffer=number("send.buffer.bytes", 0),
            receive_buffer=number("receive.buffer.bytes", 0),
            canonical_names=given.get("client.dns.lookup") == "resolve_canonical_bootstrap_servers_only",
            rebootstrap=given.get("metadata.recovery.strategy") != "none",
            tls=client.tls,
            sasl=client.sasl,
        )


def own_connections(client: ClientSettings) -> ColumnSettings:
    """The settings of the worker's own connections to the cluster of an admin client."""
    names = setting_names(ClientKind.PRODUCER)
    return ColumnSettings.of(
        translate(ClientKind.PRODUCER, {name: text for name, text in client.java.items() if name in names})
    )


def _addresses(text: RdValue) -> tuple[BrokerEndpoint, ...]:
    found = [found for found in map(_ADDRESS.fullmatch, items(str(text))) if found is not None]
    return tuple(BrokerEndpoint(one[1].strip("[]"), int(one[2])) for one in found)


def backoff(first: float, longest: float, attempts: int) -> float:
    """The wait in seconds after this many attempts; doubled each time."""
    return min(longest, first * 2.0 ** min(attempts, 30))
