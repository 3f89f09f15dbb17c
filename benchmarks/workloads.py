"""What is measured: the connectors of each piece of work, its input, and how its progress is seen.

Main types: `Workload` (one row of the table), `Environment` (broker, files and settings that all runs share).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.smt.cases import Data, messages

LINE_BYTES = 95
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
#: Five transforms on a line of text, and five on an object.
FIVE_ON_TEXT = {
    "transforms": "a,b,c,d,e",
    "transforms.a.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.a.field": "line",
    "transforms.b.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.b.static.field": "data_source",
    "transforms.b.static.value": "test-file-source",
    "transforms.c.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.c.topic.field": "topic",
    "transforms.d.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.d.renames": "line:text",
    "transforms.e.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.e.fields": "topic",
    "transforms.e.replacement": "***",
}
FIVE_ON_OBJECTS = {
    "transforms": "a,b,c,d,e",
    "transforms.a.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.a.static.field": "source",
    "transforms.a.static.value": "bench",
    "transforms.b.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.b.spec": "amount:string",
    "transforms.c.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.c.fields": "name",
    "transforms.c.replacement": "***",
    "transforms.d.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.d.exclude": "code",
    "transforms.d.renames": "city:town",
    "transforms.e.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
    "transforms.e.field": "at",
    "transforms.e.target.type": "string",
    "transforms.e.format": "yyyy-MM-dd HH:mm:ss",
}
CHAIN = {
    "transforms": "MakeMap,InsertSource",
    "transforms.MakeMap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.InsertSource.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.InsertSource.static.field": "data_source",
    "transforms.InsertSource.static.value": "test-file-source",
}
# The same client settings for both workers: none, as in the configuration files that Kafka ships, so that each has its
# own defaults; the defaults of Java's clients, written out; larger batches, which make Java's worker twice as fast.
CLIENTS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "java": {"producer.batch.size": "16384", "producer.linger.ms": "5", "consumer.max.poll.records": "500"},
    "larger": {
        "producer.batch.size": "262144",
        "producer.linger.ms": "5",
        "producer.buffer.memory": "33554432",
        "producer.acks": "all",
        "consumer.max.poll.records": "5000",
        "consumer.fetch.min.bytes": "1",
    },
}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": False, "field": "line"},
        {"type": "string", "optional": True, "field": "data_source"},
    ],
    "optional": False,
}


Message = tuple[bytes | None, bytes]


@dataclass
class Environment:
    """What all runs share.

    Attributes:
        bootstrap_servers: the broker.
        directory: for files.
        records: how many records a run moves.
        clients: which of `CLIENTS` both workers have.
    """

    bootstrap_servers: str
    directory: Path
    records: int
    clients: str
    _filled: dict[str, str] = field(default_factory=dict)

    def lines_file(self) -> Path:
        """The input: `records` different lines of 95 bytes, line feed included."""
        path = self.directory / f"lines-{self.records}.txt"
        if not path.exists():
            with path.open("wb") as out:
                for start in range(0, self.records, 50_000):
                    stop = min(start + 50_000, self.records)
                    out.write(b"".join(_line(i) + b"\n" for i in range(start, stop)))
        return path

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Makes a topic."""
        admin = self._admin()
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)

    def delete_topic(self, name: str) -> None:
        """Frees the disk."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(30)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 4})

    def filled_topic(self, kind: str, messages: Callable[[int], Iterable[Message]], partitions: int) -> str:
        """A topic with the messages of a kind, filled once."""
        if kind not in self._filled:
            name = f"bench-input-{kind}"
            self.create_topic(name, partitions)
            compression = "lz4" if partitions > 1 else "none"
            fill_topic(self.bootstrap_servers, name, messages(self.records), compression)
            self._filled[kind] = name
        return self._filled[kind]


def fill_topic(
    servers: str, topic: str, messages: Iterable[Message], compression: str = "none", in_turn: int | None = None
) -> None:
    """Sends messages to a topic that is there already.

    Args:
        servers: The broker.
        topic: The topic.
        messages: Keys and values.
        compression: As the producer's `compression.type`.
        in_turn: The number of partitions that the messages go to by turns; None: the client chooses.

    Raises:
        RuntimeError: The broker did not take them all.
    """
    producer = ck.Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "compression.type": compression,
            "queue.buffering.max.kbytes": 262144,
        }
    )
    for number, (key, value) in enumerate(messages):
        # -1: the client chooses.
        partition = -1 if in_turn is None else number % in_turn
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"the broker did not take all messages of {topic}")


_FILLER = b"the quick brown fox jumps over the lazy dog, " * 2


def _line(number: int) -> bytes:
    return (b"%012d " % number + _FILLER)[: LINE_BYTES - 1]


@dataclass(frozen=True)
class Workload:
    """One piece of work.

    Attributes:
        name: what the table says.
        floor, aim: the ratios to reach.
        worker: converter settings of the worker.
        connectors: the connectors of a run, from the environment and the target (topic or file).
        target: "topic" or "file".
        partitions: of the target topic or the input topic.
        only_here: settings of each connector for Penstock alone: classes that Java does not have.
    """

    name: str
    floor: float
    aim: float
    worker: Mapping[str, str]
    connectors: Callable[[Environment, str], list[dict[str, str]]]
    target: str
    partitions: int = 1
    only_here: Mapping[str, str] = field(default_factory=dict)


def json_settings(schemas: bool) -> dict[str, str]:
    """JSON for keys and values."""
    text = str(schemas).lower()
    return {
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "key.converter.schemas.enable": text,
        "value.converter.schemas.enable": text,
    }


STRING_SETTINGS = {"key.converter": STRING_CONVERTER, "value.converter": STRING_CONVERTER}


def _file_source(environment: Environment, topic: str, transforms: Mapping[str, str] = CHAIN) -> list[dict[str, str]]:
    return [
        {
            "name": "bench-source",
            "connector.class": FILE_SOURCE,
            "tasks.max": "1",
            "file": str(environment.lines_file()),
            "topic": topic,
            **transforms,
        }
    ]


def _twenty_sources(environment: Environment, topic: str) -> list[dict[str, str]]:
    """Twenty connectors that read a twentieth of the lines each."""
    found = []
    share = environment.records // 20
    for index in range(20):
        path = environment.directory / f"lines-{environment.records}-{index}.txt"
        if not path.exists():
            path.write_bytes(b"".join(_line(i) + b"\n" for i in range(index * share, (index + 1) * share)))
        found += [{**_file_source(environment, topic)[0], "name": f"bench-source-{index}", "file": str(path)}]
    return found


def _file_sink(
    kind: str,
    messages: Callable[[int], Iterable[Message]],
    tasks: int = 1,
    partitions: int = 1,
    transforms: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Environment, str], list[dict[str, str]]]:
    def connectors(environment: Environment, path: str) -> list[dict[str, str]]:
        topic = environment.filled_topic(kind, messages, partitions)
        # A name of its own for each run: the consumer group remembers where the last run ended.
        name = Path(path).stem
        return [
            {
                "name": name,
                "connector.class": FILE_SINK,
                "tasks.max": str(tasks),
                "file": path,
                "topics": topic,
                **transforms,
            }
        ]

    return connectors


def _plain_messages(count: int) -> Iterable[Message]:
    for i in range(count):
        yield None, b'{"line":"%s","data_source":"test-file-source"}' % _line(i)


def _envelope_messages(count: int) -> Iterable[Message]:
    schema = json.dumps(SCHEMA, separators=(",", ":")).encode()
    for i in range(count):
        payload = b'{"line":"%s","data_source":"test-file-source"}' % _line(i)
        yield None, b'{"schema":%s,"payload":%s}' % (schema, payload)


def _order_messages(count: int) -> Iterable[Message]:
    return ((None, message) for message in messages(Data.FLAT, typed=False, count=count))


def _string_messages(count: int) -> Iterable[Message]:
    for i in range(count):
        yield None, _line(i)


def _kilobyte_messages(count: int) -> Iterable[Message]:
    body = b",".join(b'"field%d":"%s"' % (n, b"abcdefghij" * 8) for n in range(10))
    for i in range(count):
        yield b'"key-%d"' % (i % 10_000), b'{"id":%d,%s}' % (i, body)


MAIN_SET = [
    Workload(
        "file -> HoistField+InsertField -> JSON -> topic, columnar",
        2.0,
        4.0,
        json_settings(False),
        _file_source,
        "topic",
    ),
    Workload("the same, JSON with schemas", 2.0, 4.0, json_settings(True), _file_source, "topic"),
    Workload(
        "the same (JSON), plain Python record task",
        1.0,
        2.0,
        json_settings(False),
        _file_source,
        "topic",
        only_here={"connector.class": "benchmarks.record_source.RecordFileSource"},
    ),
    Workload("topic -> JSON -> file", 0.7, 2.0, json_settings(False), _file_sink("json", _plain_messages), "file"),
    Workload(
        "topic -> JSON with schemas -> file",
        1.0,
        2.0,
        json_settings(True),
        _file_sink("schemas", _envelope_messages),
        "file",
    ),
    Workload("topic -> String -> file", 0.6, 1.5, STRING_SETTINGS, _file_sink("string", _string_messages), "file"),
]
SECOND_SET = [
    Workload(
        "1 KB JSON with keys, lz4, 4 tasks on 8 partitions -> file",
        0.0,
        0.0,
        json_settings(False),
        _file_sink("kilobyte", _kilobyte_messages, tasks=4, partitions=8),
        "file",
        partitions=8,
    ),
    Workload(
        "20 file sources at once -> topic", 0.0, 0.0, json_settings(False), _twenty_sources, "topic", partitions=8
    ),
]
SMT_SET = [
    Workload(
        "file -> chain of five -> JSON -> topic",
        2.0,
        4.0,
        json_settings(False),
        partial(_file_source, transforms=FIVE_ON_TEXT),
        "topic",
    ),
    Workload(
        "file -> HoistField, a transform in Python (not for Java), InsertField -> JSON -> topic",
        0.0,
        0.0,
        json_settings(False),
        _file_source,
        "topic",
        only_here={
            "transforms": "MakeMap,Upper,InsertSource",
            "transforms.Upper.type": "benchmarks.smt.upper_case.UpperCase",
            "transforms.Upper.field": "line",
        },
    ),
    Workload(
        "file -> HoistField, a stateless transform in Python (not for Java), InsertField -> JSON -> topic",
        0.0,
        0.0,
        json_settings(False),
        _file_source,
        "topic",
        only_here={
            "transforms": "MakeMap,Upper,InsertSource",
            "transforms.Upper.type": "benchmarks.smt.upper_case.StatelessUpperCase",
            "transforms.Upper.field": "line",
        },
    ),
    Workload(
        "topic -> JSON -> chain of five -> file",
        2.0,
        4.0,
        json_settings(False),
        _file_sink("orders", _order_messages, transforms=FIVE_ON_OBJECTS),
        "file",
    ),
]
ALL_SETS = {"main": MAIN_SET, "second": SECOND_SET, "smt": SMT_SET, "all": MAIN_SET + SECOND_SET + SMT_SET}
