"""Which settings a `ColumnProducer` works with, and whether all that a user has set is among them.

Main type: `ColumnSettings`.

Thread: none; values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.kafka.cluster_view import PROPAGATION_S
from penstock.kafka.record_batches import Compression
from penstock.kafka.wire import Address

#: Settings of the client library that nothing here depends on.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "batch.num.messages",
        "connections.max.idle.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "queue.buffering.max.messages",
        "socket.timeout.ms",
    }
)
_USED: Final = frozenset(
    {
        "acks",
        "batch.size",
        "bootstrap.servers",
        "client.id",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "message.max.bytes",
        "metadata.max.age.ms",
        "partitioner",
        "queue.buffering.max.kbytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.interval.ms",
    }
)
_MOST_UNDER_WAY: Final = 5
#: Java's default: partitions take turns as often as there, though the record batches may be larger.
_JAVA_BATCH_SIZE: Final = 16_384


@dataclass(frozen=True)
class ColumnSettings:
    """What a `ColumnProducer` is made with. Times are in seconds, sizes in bytes.

    Attributes:
        bootstrap: Brokers that are asked first.
        client_id: The name that brokers see.
        batch_size: The most bytes of a record batch, unless one record has more.
        stick: How many bytes without keys go to one partition before another one's turn.
        request_size: The most bytes of a record's key and value, and of a request that has several record batches.
        buffer: The most bytes that are under way.
        compression: Of record batches.
        ignore_keys: Whether records with a key are spread, too.
        requests: How many requests may be under way to one broker.
        request_timeout: How long an answer may take.
        delivery_timeout: How long a record may take in all.
        connect_timeout: How long connecting may take.
        reconnect_backoff, reconnect_backoff_max: Between two tries to connect; doubled each time up to the second.
        retry_backoff, retry_backoff_max: The same before something is sent again.
        metadata_max_age: How old what is known of the cluster may be.
        propagation: How long a topic may be unknown to a broker.
    """

    bootstrap: tuple[Address, ...]
    client_id: str
    batch_size: int
    stick: int
    request_size: int
    buffer: int
    compression: Compression
    ignore_keys: bool
    requests: int
    request_timeout: float
    delivery_timeout: float
    connect_timeout: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    retry_backoff: float
    retry_backoff_max: float
    metadata_max_age: float
    propagation: float

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ColumnSettings | None:
        """The settings of a client, by the client library's names.

        Returns:
            None where one of them asks for what only the client library can do: encryption, authentication,
            transactions, other acknowledgements than all, another partitioner, or anything this producer does not know.
        """
        if not given.keys() <= _USED | _WITHOUT_EFFECT or not _asks_for_nothing_else(given):
            return None
        bootstrap = _addresses(str(given.get("bootstrap.servers", "")))
        if bootstrap is None:
            return None

        def number(name: str, default: int) -> int:
            return int(str(given.get(name, default)))

        def seconds(name: str, default: int) -> float:
            return number(name, default) / 1000

        age = "metadata.max.age.ms" if "metadata.max.age.ms" in given else "topic.metadata.refresh.interval.ms"
        level = given.get("compression.level")
        return cls(
            bootstrap=bootstrap,
            client_id=str(given.get("client.id", "penstock")),
            batch_size=number("batch.size", 1_000_000),
            stick=number("batch.size", _JAVA_BATCH_SIZE),
            request_size=number("message.max.bytes", 1_000_000),
            buffer=number("queue.buffering.max.kbytes", 32 * 1024) * 1024,
            compression=Compression.named(
                str(given.get("compression.type", "none")), None if level is None else int(str(level))
            ),
            ignore_keys=given.get("partitioner") == "random",
            requests=min(_MOST_UNDER_WAY, number("max.in.flight.requests.per.connection", _MOST_UNDER_WAY)),
            request_timeout=seconds("request.timeout.ms", 30_000),
            delivery_timeout=seconds("delivery.timeout.ms", 300_000),
            connect_timeout=seconds("socket.connection.setup.timeout.ms", 30_000),
            reconnect_backoff=seconds("reconnect.backoff.ms", 100),
            reconnect_backoff_max=seconds("reconnect.backoff.max.ms", 10_000),
            retry_backoff=seconds("retry.backoff.ms", 100),
            retry_backoff_max=seconds("retry.backoff.max.ms", 1000),
            metadata_max_age=max(1.0, seconds(age, 300_000)),
            propagation=seconds("topic.metadata.propagation.max.ms", round(PROPAGATION_S * 1000)),
        )


def _asks_for_nothing_else(given: Mapping[str, object]) -> bool:
    return (
        str(given.get("security.protocol", "plaintext")).lower() == "plaintext"
        and str(given.get("acks", "all")) in ("all", "-1")
        and given.get("enable.idempotence", True) in (True, "true")
        and given.get("partitioner", "murmur2_random") in ("murmur2_random", "random")
    )


def _addresses(text: str) -> tuple[Address, ...] | None:
    """The addresses in a list of them; None when one is not as Kafka writes it."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or "/" in host or not port.isdigit() or not host:
            return None
        found.append(Address(host.strip("[]"), int(port)))
    return tuple(found) or None
