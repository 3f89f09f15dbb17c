"""A real single-node Kafka for quickstart, tests and benchmarks.

Main types: `EmbeddedBroker` (one KRaft broker in a JVM of its own), `resolve_jars` (jars of Maven coordinates in a
cache directory, fetched by the Ivy inside PySpark), `free_ports`. The package stands below `kafka` and uses no Kafka
client: readiness is asked with a Metadata request written by hand.

Thread: an `EmbeddedBroker` belongs to the thread that started it; the functions are safe from any thread.
"""

from penstock.broker.jars import (
    BROKER_COORDINATES,
    CONNECT_COORDINATES,
    KAFKA_VERSION,
    cache_directory,
    resolve_jars,
)
from penstock.broker.ports import free_port, free_ports
from penstock.broker.process import BrokerException, EmbeddedBroker

__all__ = [
    "BROKER_COORDINATES",
    "CONNECT_COORDINATES",
    "KAFKA_VERSION",
    "BrokerException",
    "EmbeddedBroker",
    "cache_directory",
    "free_port",
    "free_ports",
    "resolve_jars",
]
