"""Makes the archive of the embedded broker's classes (``penstock.broker.class_archive``).

Main function: `archive_kafka`. It starts a broker of its own and stops it: a JVM writes down its classes when it ends.

Thread: the calling one.
"""

from __future__ import annotations

from pathlib import Path

from penstock.broker.class_archive import kafka_archive, make_archive
from penstock.broker.jars import JarsNotFoundException
from penstock.broker.java import find_java
from penstock.broker.process import BrokerException, EmbeddedBroker

#: Starting Kafka, or writing some 50 MB, on a busy machine.
_TIME_S = 300.0


def archive_kafka() -> Path:
    """Makes the archive where brokers of this Java look for it, or makes it again.

    Raises:
        ArchiveFailedException: The broker does not start, or the file cannot be written.
        JavaNotFoundException: no suitable Java.
    """
    target = kafka_archive(find_java())

    def record(made: Path) -> str:
        broker = EmbeddedBroker(made.parent / "kafka", jvm_options=[f"-XX:ArchiveClassesAtExit={made}"])
        # An older archive, of which a JVM cannot make another one.
        target.unlink(missing_ok=True)
        try:
            broker.start(_TIME_S)
        except (BrokerException, JarsNotFoundException) as error:
            return str(error)
        broker.stop(_TIME_S)
        return broker.log_tail()

    return make_archive(target, record)
