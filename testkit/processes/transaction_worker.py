"""A process that writes numbers and its position in transactions, and kills itself where a test says.

Main functions: ``write`` (in this process) and ``last_position``. Run as a module with bootstrap servers, transactional
id, topic, topic of positions and the point: it goes on where what was committed ends, commits one transaction and
begins another, in which it ends with SIGKILL at the point: ``begin``, ``records``, ``offsets``, ``commit-sent`` or
``commit-answered``.

Thread: the main thread, and those of the producer.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import confluent_kafka as ck

from penstock.api import RecordMetadata
from penstock.kafka.network.transport import Link
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.kafka.producer.transaction import Coordinator, Question, TransactionEnd
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from testkit.doubles.source_doubles import produce_batch

#: Numbers in a transaction.
ROWS: Final = 20
POINTS: Final = ("begin", "records", "offsets", "commit-sent", "commit-answered")
_TIMEOUT_S: Final = 60.0


class Ignored:
    """Receipts that nobody reads."""

    def delivered(
        self, first: int, end: int, failures: Sequence[FailedDelivery], metadata: Mapping[int, RecordMetadata] | None
    ) -> None:
        """Nothing is done."""


def producer(bootstrap: str, transactional_id: str, **own: str) -> TransactionalProducer:
    """A producer that has its id."""
    worker = {"bootstrap.servers": bootstrap, **{f"producer.{key.replace('_', '.')}": own[key] for key in own}}
    client = producer_settings(worker, {}, client_id=transactional_id, transactional_id=transactional_id)
    made = TransactionalProducer(ColumnSettings.of(client), name=transactional_id)
    try:
        made.init_transactions(_TIMEOUT_S)
    except BaseException:
        made.close(0)
        raise
    return made


def read_committed(bootstrap: str, topic: str, quiet_s: float = 1.0) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values that are committed, of partition 0, up to what is there now and for a moment longer."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = ck.Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 50})
    found: list[tuple[bytes | None, bytes | None]] = []
    try:
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        quiet = time.monotonic() + max(3.0, quiet_s)
        while time.monotonic() < quiet:
            messages = [one for one in consumer.consume(10_000, 0.1) if one.error() is None]
            found += [(one.key(), one.value()) for one in messages]
            if messages:
                quiet = time.monotonic() + quiet_s
    finally:
        consumer.close()
    return found


def last_position(bootstrap: str, topic: str, transactional_id: str) -> int:
    """Returns the position at which a producer with this id has to go on."""
    own = [value for key, value in read_committed(bootstrap, topic) if key == transactional_id.encode()]
    return int(own[-1] or b"0") if own else 0


def write(
    made: TransactionalProducer, transactional_id: str, topics: tuple[str, str], first: int, point: str = ""
) -> None:
    """One transaction: some numbers and the position behind them."""
    made.send(produce_batch([str(first)], [topics[0]]), Ignored())
    _die_at(point, "begin")
    made.send(produce_batch([str(number) for number in range(first + 1, first + ROWS)], [topics[0]] * 19), Ignored())
    made.wait_delivered(_TIMEOUT_S)
    _die_at(point, "records")
    made.send_offsets_entries(topics[1], [(transactional_id.encode(), str(first + ROWS).encode())])
    made.wait_delivered(_TIMEOUT_S)
    _die_at(point, "offsets")
    made.commit(_TIMEOUT_S)
    _die_at(point, "commit-answered")


def _die_at(point: str, here: str) -> None:
    if point == here:
        os.kill(os.getpid(), signal.SIGKILL)


class _Dying(Coordinator):
    """Asks as any, and ends the process once the commit is on its way."""

    def _ask(self, link: Link, question: Question) -> None:
        super()._ask(link, question)
        if isinstance(question, TransactionEnd):
            os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    """Writes, and does not come back."""
    bootstrap, transactional_id, topic, positions, point = arguments
    made = producer(bootstrap, transactional_id)
    first = last_position(bootstrap, positions, transactional_id)
    write(made, transactional_id, (topic, positions), first)
    if point == "commit-sent":
        made._sender._coordinator.__class__ = _Dying
    write(made, transactional_id, (topic, positions), first + ROWS, point)
    made.close(0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
