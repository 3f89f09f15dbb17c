"""The Java settings that mean what settings of librdkafka's producer mean: our own producer takes Java's alone.

Main function: `java_name_of`. Pure; any thread.

Source: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from penstock.kafka.client_table import ClientKind, setting_names

_NAMES: Final = {
    "batch.num.messages": "batch.size",
    "broker.address.ttl": "metadata.max.age.ms",
    "compression.codec": "compression.type",
    "compression.level": "compression.zstd.level",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "partitioner": "partitioner.class",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.kerberos.keytab": "sasl.jaas.config",
    "sasl.kerberos.principal": "sasl.jaas.config",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "socket.max.fails": "reconnect.backoff.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "sticky.partitioning.linger.ms": "batch.size",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}


def java_name_of(kind: ClientKind, name: str) -> str | None:
    """The Java setting that was probably meant; None where none is near.

    >>> java_name_of(ClientKind.PRODUCER, "message.max.bytes"), java_name_of(ClientKind.PRODUCER, "compresion.type")
    ('max.request.size', 'compression.type')
    >>> java_name_of(ClientKind.PRODUCER, "statistics.interval.ms")
    """
    if kind is ClientKind.PRODUCER and name in _NAMES:
        return _NAMES[name]
    return next(iter(get_close_matches(name, sorted(setting_names(kind)), n=1, cutoff=0.8)), None)
