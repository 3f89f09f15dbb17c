"""One way of records through a whole worker, Penstock's or Java's: a standalone worker, a connector, a real broker.

Main types: `Way` (what is measured), `Figures` (what was found), `Bench` (a worker, and what its ways need).

Thread: the main thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final

from benchmarks.processes import WorkerProcess, thread_seconds
from benchmarks.runs import Contestant, line_counter, start_worker, topic_counter
from benchmarks.shapes.messages import Format, Shape
from benchmarks.workloads import FILE_SINK, Environment, fill_topic

#: Gives threads their names, in the Python path of a worker.
THREAD_NAMES: Final = Path(__file__).with_name("thread_names")
_PLUGINS: Final = "benchmarks.shapes.plugins"
#: So many messages are made; topics and sources have them again and again.
_DIFFERENT: Final = 5_000
_PARTITIONS: Final = 8
#: What a client fetches ahead of a task, and about how many records a worker holds besides.
_READ_AHEAD_BYTES: Final = 64 * 1024 * 1024
_IN_STAGES: Final = 100_000
_LOOK_S: Final = 0.01
_STOP_S: Final = 60.0
_numbers = count()

#: Where records go to, or come from: the connector's class for Penstock and for Java, who has no frames.
INTO: Final[Mapping[str, tuple[str, str | None]]] = {
    "FileStreamSink": (FILE_SINK, FILE_SINK),
    "record sink": (f"{_PLUGINS}.CountingRecordSink", "bench.CountingSink"),
    "frame sink": (f"{_PLUGINS}.CountingFrameSink", None),
}
OUT_OF: Final[Mapping[str, tuple[str, str | None]]] = {
    "record task": (f"{_PLUGINS}.RecordShapeSource", "bench.ShapeSource"),
    "frame task": (f"{_PLUGINS}.FrameShapeSource", None),
}


@dataclass(frozen=True)
class Way:
    """One way of records.

    Attributes:
        shape, form: The messages.
        plugin: A key of `INTO` or `OUT_OF`.
    """

    shape: Shape
    form: Format
    plugin: str

    @property
    def name(self) -> str:
        """For the table."""
        messages = f"{self.shape.name}, {self.form.value}"
        return f"{messages} -> {self.plugin}" if self.is_sink else f"{self.plugin} -> {messages}"

    @property
    def is_sink(self) -> bool:
        """True if records come from Kafka."""
        return self.plugin in INTO

    def class_of(self, contestant: Contestant) -> str | None:
        """The connector's class; None = there is none."""
        here, java = (INTO if self.is_sink else OUT_OF)[self.plugin]
        return java if contestant.kind == "java" else here


@dataclass(frozen=True)
class Figures:
    """What one way took.

    Attributes:
        contestant: Whose.
        rate: Records a second.
        threads: Microseconds of processor time a record, by program and kind of thread.
    """

    contestant: str
    rate: float
    threads: Mapping[str, Mapping[str, float]]

    @property
    def total(self) -> float:
        """Microseconds of processor time a record, of all processes."""
        return sum(map(self.of, self.threads))

    def of(self, program: str) -> float:
        """The same of one program."""
        return sum(self.threads.get(program, {}).values())


@dataclass(frozen=True)
class Amounts:
    """How many records pass: so many before it counts, and while it does.

    Attributes:
        warm, counted: They, of the first shape.
    """

    warm: int
    counted: int

    def of(self, shape: Shape) -> Amounts:
        """Those of another shape."""
        return Amounts(self.warm // shape.weight, self.counted // shape.weight)

    def whole(self, message_bytes: int, tasks: int) -> int:
        """How many messages a topic holds: at the end a worker has as much in hand as when it began to count."""
        return self.warm + self.counted + tasks * _READ_AHEAD_BYTES // message_bytes + _IN_STAGES


class Bench:
    """What the ways of one shape and format need.

    Args:
        environment: Broker and files.
        registry: The address of the schema registry.
        java_classes: Jars and classes for Java's worker.
        amounts: How many records pass.
    """

    def __init__(self, environment: Environment, registry: str, java_classes: Sequence[Path], amounts: Amounts) -> None:
        self._environment = environment
        self._registry = registry
        self._java_classes = java_classes
        self._amounts = amounts

    @contextmanager
    def topic_of(self, shape: Shape, form: Format) -> Iterator[str]:
        """A topic with messages of one kind."""
        topic = f"shape-{next(_numbers)}"
        partitions = _PARTITIONS if shape.tasks > 1 else 1
        self._environment.create_topic(topic, partitions)
        try:
            messages = shape.messages(form, _DIFFERENT, topic, self._registry)
            size = sum(len(key or b"") + len(value) for key, value in messages) // len(messages)
            records = self._amounts.of(shape).whole(size, shape.tasks)
            again = islice(cycle(messages), records)
            fill_topic(self._environment.bootstrap_servers, topic, again, shape.compression)
            yield topic
        finally:
            self._environment.delete_topic(topic)

    def measure(self, contestant: Contestant, ways: Sequence[Way], topic: str | None) -> Iterator[tuple[Way, Figures]]:
        """Measures ways one after the other in one worker.

        Args:
            contestant: Whose worker.
            ways: They.
            topic: The messages of sinks.

        Raises:
            RuntimeError: The worker or a task failed, or records did not arrive in time.
        """
        mine = [(way, name) for way in ways if (name := way.class_of(contestant)) is not None]
        if not mine:
            return
        worker = start_worker(
            contestant,
            self._environment,
            {"key.converter": _STRING, "value.converter": _STRING},
            java_classes=self._java_classes,
            python_path=[THREAD_NAMES],
        )
        try:
            worker.await_rest()
            worker.await_health()
            for way, name in mine:
                yield way, self._measured(contestant, worker, way, name, topic)
        finally:
            worker.stop()

    def _measured(
        self, contestant: Contestant, worker: WorkerProcess, way: Way, class_name: str, topic: str | None
    ) -> Figures:
        name = f"shape-{next(_numbers)}"
        file = self._environment.directory / name
        settings = {
            "name": name,
            "connector.class": class_name,
            "tasks.max": str(way.shape.tasks if way.is_sink else 1),
            "file": str(file),
            **way.form.converter_settings(self._registry),
        }
        if way.is_sink:
            assert topic is not None, "sinks read one"
            settings["topics"] = topic
            seen = line_counter(str(file)) if way.plugin == "FileStreamSink" else _added(file, way.shape.tasks)
        else:
            lines = way.shape.json(_DIFFERENT, schemas=True)
            file.write_bytes(b"".join(b"%b\t%b\n" % (key or b"", value) for key, value in lines))
            settings["topic"] = name
            self._environment.create_topic(name)
            seen = topic_counter(self._environment, name)
        worker.post("/connectors", {"name": name, "config": settings})
        try:
            return self._figures(contestant, worker, way, seen)
        finally:
            worker.delete(f"/connectors/{name}")
            _wait_for(lambda: worker.get(f"/connectors/{name}/status") is None, f"{name} ends", _STOP_S)
            if not way.is_sink:
                self._environment.delete_topic(name)
            for made in file.parent.glob(f"{name}*"):
                made.unlink()

    def _figures(self, contestant: Contestant, worker: WorkerProcess, way: Way, seen: Callable[[], int]) -> Figures:
        return figures_of(contestant, worker, way.name, seen, self._amounts.of(way.shape))


def figures_of(
    contestant: Contestant, worker: WorkerProcess, name: str, seen: Callable[[], int], amounts: Amounts
) -> Figures:
    """Waits for the records that warm up, then for those that count.

    Args:
        contestant: Whose worker it is.
        worker: It, at work.
        name: Of the way, for errors.
        seen: The records that have arrived so far.
        amounts: How many are waited for.

    Raises:
        RuntimeError: A task failed, or records did not arrive in time.
    """
    before = _reached(worker, name, seen, amounts.warm)
    after = _reached(worker, name, seen, before[1] + amounts.counted)
    records = after[1] - before[1]
    threads: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, seconds in after[2].items():
        program, _, _, thread = key
        program = "jvm" if program == "java" or contestant.kind == "java" else "interpreter"
        threads[program][kind_of(thread, program)] += (seconds - before[2].get(key, 0.0)) / records * 1e6
    return Figures(contestant.name, records / (after[0] - before[0]), threads)


_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
_Seen = tuple[float, int, Mapping[tuple[str, int, int, str], float]]


def _reached(worker: WorkerProcess, name: str, seen: Callable[[], int], wanted: int) -> _Seen:
    """Waits for so many records; when that was, how many there were, and the processor time of all threads."""
    pause = threading.Event()
    last = arrived = seen()
    idle_since = time.monotonic()
    while arrived < wanted:
        pause.wait(_LOOK_S)
        arrived = seen()
        now = time.monotonic()
        if arrived != last:
            last, idle_since = arrived, now
        elif now - idle_since > _STOP_S:
            failures = worker.failures() or [f"{arrived} of {wanted} records, and no more for {_STOP_S:.0f} s"]
            raise RuntimeError(f"{name}: {failures[0]}; see {worker.log}")
    return time.monotonic(), arrived, thread_seconds(worker.pid)


def kind_of(thread: str, program: str) -> str:
    """A thread's name without what tells it from its like: a task's name, a number."""
    if program == "interpreter":
        return thread.partition("-")[0].rstrip("0123456789").partition(":")[0]
    return re.sub(r"[-#].*$|[0-9]+$", "", thread).strip() or thread


def _wait_for(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not seen within {timeout_s:.0f} s: {what}")
        pause.wait(0.05)


def _added(file: Path, tasks: int) -> Callable[[], int]:
    """Adds what the tasks of a sink have counted."""

    def seen() -> int:
        counts = [Path(f"{file}.{number}") for number in range(tasks)]
        return sum(int.from_bytes(one.read_bytes()) for one in counts if one.exists())

    return seen
