"""`python -m benchmarks.ceiling`: how fast a producer takes records that are ready, with nothing else to do.

No worker moves records from a source faster than that. The records are those of the first workload as they arrive in
the topic, made before the clock runs; they go the way of the worker's, with the same client settings: batches of
50,000 through its producer, over a plain connection or with `--tls` an encrypted one. There is no source, no Spark and
no transform. What the workloads reach stands beside it in the tables of `bin/bench`.

Thread: the main thread sends; the producer has one of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from testkit.brokers.embedded import SecuredBroker

from benchmarks.figures import median
from benchmarks.processes import cpu_seconds
from benchmarks.workloads import CLIENTS, LINE_BYTES, Environment
from penstock.api import RecordMetadata
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, ProduceBatch

BATCH: Final = 50_000
#: Records before the clock runs, as the benchmark's first fifth.
_CUT: Final = 0.2
_TIMEOUT_S: Final = 120.0
_TLS: Final = Path(__file__).parents[1] / "tests" / "data" / "tls"
_SERVER_KEY: Final = {
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": str(_TLS / "server.p12"),
    "ssl.keystore.password": "storepass",
    "ssl.key.password": "storepass",
}
_TRUST: Final = {
    "producer.security.protocol": "SSL",
    "producer.ssl.truststore.type": "PEM",
    "producer.ssl.truststore.location": str(_TLS / "ca.pem"),
}


@dataclass(frozen=True)
class Ceiling:
    """What one run gave.

    Attributes:
        rate: Records a second.
        client_us, broker_us: CPU time of this process and of the broker for each record, in microseconds.
    """

    rate: float
    client_us: float
    broker_us: float


class _Failures:
    """Receipts that only look for failures."""

    def delivered(
        self, first: int, end: int, failures: Sequence[FailedDelivery], metadata: Mapping[int, RecordMetadata] | None
    ) -> None:
        if failures:
            print(f"{len(failures)} records were refused: {failures[0].error}", file=sys.stderr)


def measure(environment: Environment, broker: int, number: int, client: Mapping[str, str]) -> Ceiling:
    """Sends all records once.

    Args:
        environment: The broker, and how many records.
        broker: Its process.
        number: Of the run, for the topic's name.
        client: Settings of the producer beside the workload's, with their prefix.
    """
    topic = f"ceiling-{number}"
    environment.create_topic(topic)
    settings = producer_settings(
        {"bootstrap.servers": environment.bootstrap_servers, **CLIENTS[environment.clients], **client},
        {},
        client_id="ceiling",
    )
    batch = _ready(topic)
    batches = max(2, environment.records // BATCH)
    cut = max(1, round(batches * _CUT))
    producer = ColumnProducer(ColumnSettings.of(settings), name="ceiling")
    started = spent = used = 0.0
    try:
        for index in range(batches):
            if index == cut:
                producer.wait_delivered(_TIMEOUT_S)
                started, spent, used = time.perf_counter(), time.process_time(), cpu_seconds(broker)
            producer.send(batch, _Failures())
        if not producer.wait_delivered(_TIMEOUT_S):
            raise RuntimeError(f"not all records were stored within {_TIMEOUT_S:.0f} s")
        took = time.perf_counter() - started
        count = (batches - cut) * BATCH
        return Ceiling(
            count / took, (time.process_time() - spent) / count * 1e6, (cpu_seconds(broker) - used) / count * 1e6
        )
    finally:
        producer.close(1.0)
        environment.delete_topic(topic)


def _ready(topic: str) -> ProduceBatch:
    """A batch as the first workload has it behind Spark."""
    values = [
        json.dumps(
            {"line": f"{number:0{LINE_BYTES - 1}}", "data_source": "test-file-source"}, separators=(",", ":")
        ).encode()
        for number in range(BATCH)
    ]
    now = int(time.time() * 1000)
    columns = {"seq": range(BATCH), "value": values, "topic": [topic] * BATCH, "timestamp": [now] * BATCH}
    table = pa.table(
        [
            pa.array(columns[one.name], one.type)
            if one.name in columns
            else pa.array([False] * BATCH, one.type)
            if pa.types.is_boolean(one.type)
            else pa.nulls(BATCH, one.type)
            for one in PRODUCE_SCHEMA
        ],
        schema=PRODUCE_SCHEMA,
    )
    return ProduceBatch(
        table,
        {},
        topic,
        has_headers=False,
        has_dropped=False,
        has_keys=False,
        has_partition=False,
        timestamp=now,
    )


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ceiling", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", choices=list(CLIENTS), default="larger")
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-ceiling-") as directory,
        SecuredBroker(Path(directory) / "kafka", heap="1g", listeners={"SSL": _SERVER_KEY}) as broker,
    ):
        environment = Environment(broker.bootstrap_servers, Path(directory), options.records, options.clients)
        assert broker.pid is not None, "it has started"
        client = {"producer.bootstrap.servers": broker.bootstrap_of("SSL"), **_TRUST} if options.tls else {}
        found = [measure(environment, broker.pid, number, client) for number in range(options.rounds)]
    for one in found:
        print(f"{one.rate:12,.0f} records/s   client {one.client_us:.2f} us, broker {one.broker_us:.2f} us a record")
    print(f"median {median([one.rate for one in found]):,.0f} records/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
