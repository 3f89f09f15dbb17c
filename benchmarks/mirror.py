"""The part of `bin/bench connectors` about mirrors: a topic into its mirror, beside MirrorMaker 2 in Java Connect.

Both read the same topic of the same broker, with the same configuration, and write into a topic of eight partitions
that is counted at the end. CPU seconds are those of all processes of a worker.

Main function: `mirrored`. Thread: the main thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from benchmarks.processes import cpu_seconds
from benchmarks.runs import Contestant, follow, numbers, start_worker, topic_counter
from benchmarks.workloads import Environment, fill_topic
from penstock.broker import KAFKA_VERSION, EmbeddedBroker

#: What is to be reached: records for each CPU second, over MirrorMaker 2's.
OVER_MIRRORMAKER: Final = 2.0
MIRRORMAKER: Final = f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}"
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_PARTITIONS: Final = 8
_START_S: Final = 180.0


def mirrored(directory: Path, records: int, timeout_s: float, *, java: bool = True) -> list[str]:
    """Runs both on records of 100 bytes and of 1 KB, and prints what they used; what was missed.

    Args:
        directory: For files.
        records: How many of 100 bytes; of 1 KB a quarter of them.
        timeout_s: How long a run may take.
        java: False: without MirrorMaker 2.
    """
    print("topic into its mirror", flush=True)
    with EmbeddedBroker(directory / "mirrored", heap="1g") as broker:
        environment = Environment(broker.bootstrap_servers, directory, records, "default")
        return _compared(environment, broker, timeout_s, java=java)


def _compared(environment: Environment, broker: EmbeddedBroker, timeout_s: float, *, java: bool) -> list[str]:
    missed = []
    for size, count in ((100, environment.records), (1000, environment.records // 4)):
        topic = _filled(environment, size, count)
        here = _run(environment, broker, Contestant("penstock"), topic, count, timeout_s)
        if java:
            there = _run(environment, broker, Contestant("java"), topic, count, timeout_s)
            print(
                f"  CPU of MirrorMaker 2 over ours, {size} B: {there / here:.2f} (aim {OVER_MIRRORMAKER})", flush=True
            )
            if there / here < OVER_MIRRORMAKER:
                missed.append(f"CPU of MirrorMaker 2 with {size} B")
        environment.delete_topic(topic)
    return missed


def _filled(environment: Environment, size: int, count: int) -> str:
    topic = f"bench-mirror-{next(numbers)}"
    environment.create_topic(topic, _PARTITIONS)
    text = os.urandom(size)[8:]
    messages = ((b"%08d" % number, number.to_bytes(8, "big") + text) for number in range(count))
    fill_topic(environment.bootstrap_servers, topic, messages, in_turn=_PARTITIONS)
    return topic


def _run(
    environment: Environment,
    broker: EmbeddedBroker,
    contestant: Contestant,
    topic: str,
    count: int,
    timeout_s: float,
) -> float:
    """CPU seconds of a worker's processes for each record."""
    name = "MirrorMaker 2 in Java Connect" if contestant.kind == "java" else "MirrorSource"
    alias = f"bench{next(numbers)}"
    remote = f"{alias}.{topic}"
    connector = {
        "name": alias,
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "source.cluster.alias": alias,
        "target.cluster.alias": "target",
        "source.cluster.bootstrap.servers": environment.bootstrap_servers,
        "target.cluster.bootstrap.servers": environment.bootstrap_servers,
        "topics": topic,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "key.converter": _BYTES,
        "value.converter": _BYTES,
    }
    environment.create_topic(remote, _PARTITIONS)
    plugins = (MIRRORMAKER,) if contestant.kind == "java" else ()
    converters = {"key.converter": _BYTES, "value.converter": _BYTES}
    worker = start_worker(contestant, environment, converters, java_plugins=plugins)
    try:
        worker.await_rest(_START_S)
        worker.await_health(_START_S)
        before = cpu_seconds(broker.pid or 0)
        started = worker.usage.cpu_seconds
        worker.post("/connectors", {"name": alias, "config": connector})
        samples, _ = follow(worker, topic_counter(environment, remote), count, timeout_s)
        worker.usage.stop()
        arrived = topic_counter(environment, remote)()
        if arrived != count:
            raise RuntimeError(f"{name}: {arrived} records arrived of {count}; see {worker.log}")
        first = next(moment for moment, seen in samples if seen > 0)
        from_ = max((moment for moment, seen in samples if seen == 0), default=first)
        used = (worker.usage.cpu_seconds - started) / count
        rate = count / max(0.001, samples[-1][0] - from_)
        served = (cpu_seconds(broker.pid or 0) - before) / count
        print(
            f"  {name:32} {rate:10,.0f} records/s  CPU a record: {used * 1e6:6.2f} us, broker {served * 1e6:5.2f} us  "
            f"peak {worker.usage.peak_bytes / 2**20:6,.0f} MiB",
            flush=True,
        )
        return used
    finally:
        worker.stop()
        environment.delete_topic(remote)
