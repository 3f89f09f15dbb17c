"""Cases of data that nobody expects: very long, very deep, of a million shapes, in very many partitions; lost topics.

Thread: the test's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from tools.chaos.stage import Peak, Stage

_LONG: Final = 100_000_000
_LONG_MESSAGE: Final = 60_000_000
_DEEP: Final = 5_000
_MANY: Final = 1_000_000
_FEWER: Final = 20_000
_PARTITIONS: Final = 1_000
_JSON: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "errors.tolerance": "all",
    "errors.log.enable": "true",
}


def long_line(stage: Stage) -> None:
    """A line of 100 MB among others: its task fails with its place, and takes a bounded amount of memory."""
    file = stage.directory / "long.txt"
    with file.open("wb") as out:
        out.write(b"first\n")
        out.write(b"x" * _LONG)
        out.write(b"\nlast\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": stage.name("long")}
    with Peak(stage.worker.pid) as peak, stage.connector(config, runs=False) as name:
        trace = stage.fails(name)
        assert "max.request.size" in trace, trace
        stage.goes_on()
    assert "session was lost" not in stage.worker.text(), "its batch has brought down Spark's JVM"
    assert peak.added_mb < 15 * _LONG / 1e6, f"{peak.added_mb:.0f} MB"
    file.unlink()


def long_message(stage: Stage) -> None:
    """A message of 60 MB among others reaches its sink, whose plan makes text of it."""
    topic, out = stage.name("long"), stage.directory / "long-out.txt"
    message = b"y" * _LONG_MESSAGE
    stage.produce(topic, [b"first", message, b"last"], **{"message.max.bytes": 2 * _LONG_MESSAGE})
    config = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic}
    config["value.converter"] = "org.apache.kafka.connect.storage.StringConverter"
    with Peak(stage.worker.pid) as peak, stage.connector(config):
        stage.worker.wait(lambda: out.exists() and out.stat().st_size == _LONG_MESSAGE + 12, "all is there", 60)
        stage.goes_on()
    assert peak.added_mb < 15 * _LONG_MESSAGE / 1e6, f"{peak.added_mb:.0f} MB"
    assert "session was lost" not in stage.worker.text(), "its batch has brought down Spark's JVM"
    out.unlink()


def deep_json(stage: Stage) -> None:
    """JSON of 5,000 levels among other messages, and in requests: one is skipped, the other refused."""
    topic, out = stage.name("deep"), stage.directory / "deep.txt"
    deep = b'{"a":' * _DEEP + b"1" + b"}" * _DEEP
    arrays = b"[" * _DEEP + b"]" * _DEEP
    stage.produce(topic, [b'{"n":1}', deep, b'{"n":2}', arrays, b'{"n":3}'])
    config = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic, **_JSON}
    with stage.connector(config):
        assert {"{n=1}", "{n=2}", "{n=3}"} <= stage.wait_lines(out, 3)
    nested: object = 1
    for _ in range(500):
        nested = {"a": nested}
    for body in (nested, {"config": {"a": nested}}, {"config": {}, "records": [{"value": nested}]}):
        for path in ("/connectors", "/connector-plugins/FileStreamSink/preview"):
            status, answer = stage.worker.ask("POST", path, body)
            assert status == 400 or "preview" in path, (path, answer)
            assert status < 500, (path, answer)
    stage.goes_on()


def _shapes(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield json.dumps({f"f{number}": number, "g": {f"h{number % 977}": [number], "i": None}}).encode()


def _of_many_shapes(stage: Stage, count: int, added_mb: float, timeout_s: float) -> None:
    topic, out = stage.name("shapes"), stage.directory / f"shapes-{count}.txt"
    stage.produce(topic, _shapes(count))
    config = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic, **_JSON}
    with Peak(stage.worker.pid) as peak, stage.connector(config):
        stage.wait_lines(out, count, timeout_s)
        stage.goes_on(timeout_s=120)
    assert peak.added_mb < added_mb, f"{peak.added_mb:.0f} MB"


def many_shapes(stage: Stage) -> None:
    """20,000 JSON messages, each with field names of its own."""
    _of_many_shapes(stage, _FEWER, 300, 90)


def million_shapes(stage: Stage) -> None:
    """A million JSON messages, each with field names of its own: memory is bounded."""
    _of_many_shapes(stage, _MANY, 600, 900)


def thousand_partitions(stage: Stage) -> None:
    """A source and a sink of a topic with 1,000 partitions."""
    topic, lines = stage.name("partitions"), 20_000
    file, out = stage.directory / "partitions-in.txt", stage.directory / "partitions-out.txt"
    stage.create_topic(topic, _PARTITIONS)
    file.write_text("".join(f"line {n}\n" for n in range(lines)))
    source = {"connector.class": "FileStreamSource", "file": str(file), "topic": topic}
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic}
    with stage.connector(source), stage.connector(sink):
        assert stage.wait_lines(out, lines) == {f"line {n}" for n in range(lines)}
        stage.goes_on()


def recreated_topic(stage: Stage) -> None:
    """A topic is deleted under its source and its sink, and comes back with more partitions."""
    with _Recreated(stage, 2) as topic:
        topic.recreate(5)
        topic.wait_lines()
    stage.goes_on()


def shrunken_topic(stage: Stage) -> None:
    """It comes back with fewer: the source that had records for another partition says so, and a restart sends them."""
    with _Recreated(stage, 4) as topic:
        topic.recreate(1)
        try:
            topic.wait_lines(45)
        except AssertionError:
            assert "has lost partition" in stage.fails(topic.source)
            assert stage.worker.ask("POST", f"/connectors/{topic.source}/tasks/0/restart")[0] == 204
            topic.wait_lines()
    stage.goes_on()


class _Recreated:
    """A topic between a source and a sink of its own, which both look often what has become of it."""

    def __init__(self, stage: Stage, partitions: int) -> None:
        self._stage, self._topic, self._written = stage, stage.name("recreated"), 0
        self._in, self._out = (stage.directory / f"{self._topic}-{end}.txt" for end in ("in", "out"))
        stage.create_topic(self._topic, partitions)

    def __enter__(self) -> _Recreated:
        source = {"connector.class": "FileStreamSource", "file": str(self._in), "topic": self._topic}
        sink = {"connector.class": "FileStreamSink", "file": str(self._out), "topics": self._topic}
        with ExitStack() as opened:
            self.source = opened.enter_context(
                self._stage.connector(source | {"producer.override.metadata.max.age.ms": "2000"})
            )
            opened.enter_context(self._stage.connector(sink | {"consumer.override.metadata.max.age.ms": "2000"}))
            self.write(1000)
            self.wait_lines()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def write(self, count: int) -> None:
        """Some more lines into the source's file."""
        with self._in.open("a") as lines:
            lines.writelines(f"line {n}\n" for n in range(self._written, self._written + count))
        self._written += count

    def wait_lines(self, timeout_s: float = 90) -> None:
        """Waits until all lines so far are in the sink's file."""
        self._stage.wait_lines(self._out, self._written, timeout_s)

    def recreate(self, partitions: int) -> None:
        """Deletes it and makes it again, while lines are written."""
        self._stage.delete_topic(self._topic)
        self.write(10)
        self._stage.create_topic(self._topic, partitions)
        self.write(500)
