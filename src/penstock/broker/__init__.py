"""A real single-node Kafka for quickstart, tests and benchmarks.

Start from:

- ``EmbeddedBroker`` (``process``): one KRaft broker in its own JVM, which ends with its owner.
- ``resolve_jars`` (``jars``): jars of Maven coordinates in a cache directory, fetched by the Ivy inside PySpark.
- ``find_java``, ``free_port``, ``free_ports``, ``make_archive`` (``jars``): a JVM, unused ports, and archives of
  classes.
- ``PostgreSql`` (``postgresql``): a PostgreSQL server, for connectors of databases.

The package is below ``penstock.kafka`` and uses no Kafka client.

Thread: an ``EmbeddedBroker`` belongs to the thread that started it; the functions are safe from any thread.
"""

from penstock.broker.jars import (
    BROKER_COORDINATES,
    CONNECT_COORDINATES,
    KAFKA_VERSION,
    cache_directory,
    free_port,
    free_ports,
    resolve_jars,
)
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
