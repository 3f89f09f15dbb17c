"""Every built-in connector with every built-in converter: what comes out, or which error says why nothing can.

All pairs run at once, in one worker. The pairs come from the table of stock classes, so that a new connector or
converter has to say here what is expected of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest
from testkit.processes.schema_registry import RegistryStandIn
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker
from penstock.converters.registry.converters import (
    AvroConverter,
    JsonSchemaConverter,
    ProtobufConverter,
    RegistryConverter,
)
from penstock.data import STRING_SCHEMA
from penstock.kafka.consumer.sampler import read_values
from penstock.plugins.kinds import PluginDescriptor, PluginKind, simple_name
from penstock.plugins.stock import STOCK

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Expected:
    """What is expected of one converter.

    Attributes:
        config: Its settings.
        written: The message it makes of the text `hello`; a str is the error that it fails with.
        message: A message it can read.
        line: What the file sink writes of that.
        unreadable: A message it cannot read; None = it reads everything.
    """

    config: Mapping[str, str]
    written: bytes | str
    message: bytes
    line: str
    unreadable: bytes | None


def number(kind: str, message: bytes, line: str) -> Expected:
    """What is expected of a converter of numbers, which takes no text."""
    return Expected({}, f"Failed to serialize to {kind} (was class java.lang.String): ", message, line, b"123")


def registered(message: bytes) -> Expected:
    """What is expected of a converter with a schema registry."""
    return Expected({"schema.registry.url": REGISTRY}, message, message, "hello", b"{")


#: Stands for the address of the registry in settings.
REGISTRY: Final = "http://registry"
#: Those with a schema registry, in the order in which schemas for text get the ids 1, 2 and 3 in the registry.
REGISTERED: Final[dict[Callable[[], RegistryConverter], bytes]] = {
    AvroConverter: b"\0\0\0\0\x01" + b"\x0ahello",
    JsonSchemaConverter: b"\0\0\0\0\x02" + b'"hello"',
    ProtobufConverter: b"\0\0\0\0\x03" + b"\x02\x0e" + b"\x0a\x05hello",
}
EXPECTED: Final[dict[str, Expected]] = {
    "JsonConverter": Expected(
        {"schemas.enable": "true"},
        b'{"schema":{"type":"string","optional":false},"payload":"hello"}',
        b'{"schema":{"type":"struct","fields":[{"field":"id","type":"int32"}]},"payload":{"id":7}}',
        "Struct{id=7}",
        b'{"id":7}',
    ),
    "JsonConverter without schemas": Expected(
        {"schemas.enable": "false"}, b'"hello"', b'{"id":7}', "{id=7}", b'{"id":'
    ),
    "StringConverter": Expected({}, b"hello", b"seven", "seven", None),
    "ByteArrayConverter": Expected(
        {}, "Invalid schema type for ByteArrayConverter: STRING", b"\x00\x07", "[B@dfbd875c", None
    ),
    "BooleanConverter": Expected({}, "Invalid schema type for BooleanConverter: STRING", b"\x01", "true", b"\x01\x01"),
    "ShortConverter": number("short", b"\x00\x07", "7"),
    "IntegerConverter": number("integer", b"\x00\x00\x00\x07", "7"),
    "LongConverter": number("long", b"\xff" * 8, "-1"),
    "FloatConverter": number("float", b"\x3f\xc0\x00\x00", "1.5"),
    "DoubleConverter": number("double", b"\x3f\xf8\x00\x00\x00\x00\x00\x00", "1.5"),
    **{converter.__name__: registered(message) for converter, message in REGISTERED.items()},
}
#: Connectors that read lines of text; where each finds them, below a directory.
SOURCES: Final = {"FileStreamSourceConnector": "file", "DirectorySourceConnector": "directories"}
SINKS: Final = ("FileStreamSinkConnector",)
#: Connectors of structs and of JSON, and the tests that run them, or the pages whose commands do.
ELSEWHERE: Final = {
    "JdbcSource": "jdbc",
    "JdbcSink": "jdbc",
    "SparkSource": "spark",
    "SparkSink": "spark",
    "FileSink": "files",
    **dict.fromkeys(("MirrorSource", "MirrorCheckpoint", "MirrorHeartbeat"), "mirror"),
    "TableSource": "tables",
    "TableSink": "tables",
    "FileSource": "files",
    "DatagenSource": "../../../docs/datagen.md",
    "HttpSource": "../../../docs/http.md",
    "HttpSink": "../../../docs/http.md",
}


def stock(kind: PluginKind) -> list[PluginDescriptor]:
    return [one for one in STOCK if one.kind is kind]


def test_every_stock_connector_and_converter_is_here() -> None:
    kinds = (PluginKind.SOURCE, PluginKind.SINK)
    connectors = {simple_name(one.name) for kind in kinds for one in stock(kind)}
    assert {*SOURCES, *SINKS, *ELSEWHERE} == connectors
    assert all((Path(__file__).parent / tests).exists() for tests in ELSEWHERE.values())
    converters = {simple_name(one.name) for one in stock(PluginKind.CONVERTER)}
    assert {label.partition(" ")[0] for label in EXPECTED} == converters


class Pairs:
    """Connectors of all pairs, each with a topic of its own."""

    def __init__(self, worker: WorkerProcess, servers: str, registry: str, directory: Path) -> None:
        self.worker = worker
        self.servers = servers
        self.registry = registry
        self.directory = directory
        self._run = uuid.uuid4().hex[:8]

    def name(self, connector: str, label: str) -> str:
        """Of the connector, its topic and its directory."""
        return f"{connector}-{label}-{self._run}".replace(" ", "-")

    def sunk(self, connector: str, label: str) -> Path:
        """The file of a sink."""
        return self.directory / f"{self.name(connector, label)}.out"

    def start(self) -> None:
        """Makes all connectors, and the messages that the sinks read."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        for connector in SINKS:
            for label, expected in EXPECTED.items():
                for message in (expected.unreadable, expected.message):
                    if message is not None:
                        producer.produce(self.name(connector, label), message, partition=0)
        assert producer.flush(30) == 0
        for connector in (*SOURCES, *SINKS):
            for label in EXPECTED:
                status, body = self.worker.ask("POST", "/connectors", self._request(connector, label))
                assert status == 201, body

    def _request(self, connector: str, label: str) -> dict[str, object]:
        name = self.name(connector, label)
        config = {"connector.class": connector, "value.converter": label.partition(" ")[0], "tasks.max": "1"}
        for key, value in EXPECTED[label].config.items():
            config[f"value.converter.{key}"] = self.registry if value == REGISTRY else value
        if connector in SINKS:
            return {
                "name": name,
                "config": {
                    **config,
                    "topics": name,
                    "file": str(self.sunk(connector, label)),
                    "errors.tolerance": "all",
                    "consumer.override.metadata.max.age.ms": "1000",
                },
            }
        folder = self.directory / name
        folder.mkdir()
        (folder / "in.txt").write_text("hello\n", encoding="utf-8")
        where = folder / "in.txt" if SOURCES[connector] == "file" else folder
        return {"name": name, "config": {**config, "topic": name, SOURCES[connector]: str(where)}}

    def end(self) -> None:
        """Deletes all connectors."""
        for connector in (*SOURCES, *SINKS):
            for label in EXPECTED:
                self.worker.ask("DELETE", f"/connectors/{self.name(connector, label)}")


@pytest.fixture(scope="module")
def pairs(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pairs]:
    with RegistryStandIn() as registry:
        for kind in REGISTERED:
            with closing(kind()) as converter:
                converter.configure({"schema.registry.url": registry.url}, False)
                converter.from_connect_data("any", STRING_SCHEMA, "text")
        made = Pairs(shared_worker, broker.bootstrap_servers, registry.url, tmp_path_factory.mktemp("pairs"))
        made.start()
        try:
            yield made
        finally:
            made.end()


@pytest.mark.parametrize("connector", SOURCES)
@pytest.mark.parametrize("label", EXPECTED)
def test_a_source_of_text_writes_it_or_fails_with_a_clear_error(connector: str, label: str, pairs: Pairs) -> None:
    name, written = pairs.name(connector, label), EXPECTED[label].written
    if isinstance(written, bytes):
        assert read_values(pairs.servers, name, 1, 60) == [written]
        # The directory source has no task any more once it has read everything.
        assert set(pairs.worker.states(name)) == {"RUNNING"}
        return
    pairs.worker.wait(lambda: pairs.worker.states(name)[1:] == ["FAILED"], f"{name} fails")
    assert f"DataException: {written}".rstrip() in pairs.worker.trace(name)


@pytest.mark.parametrize("connector", SINKS)
@pytest.mark.parametrize("label", EXPECTED)
def test_a_sink_of_text_writes_what_was_read_and_skips_what_cannot_be(connector: str, label: str, pairs: Pairs) -> None:
    file, line = pairs.sunk(connector, label), EXPECTED[label].line
    pairs.worker.wait(lambda: file.exists() and file.read_text().endswith("\n"), f"{file.name} has a line")

    assert file.read_text() == f"{line}\n"
