"""A real single-node Kafka for quickstart, tests and benchmarks.

Start from:

- ``EmbeddedBroker`` (``process``): one KRaft broker in its own JVM.
- ``resolve_jars`` (``jars``): jars of Maven coordinates in a cache directory, fetched by the Ivy inside PySpark.
- ``PostgreSql`` (``postgresql``): a PostgreSQL server, for connectors of databases.
- ``find_java``, ``free_port``, ``free_ports`` (``jars``): a JVM, and unused ports.

The other modules are parts of a broker's lifecycle: ``storage`` writes the files of a node, and
``process`` checks that it serves and ends it with its owner. The package is below ``penstock.kafka`` and uses no Kafka
client.

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
from penstock.broker.process import EmbeddedBroker
from penstock.broker.storage import BrokerException

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
