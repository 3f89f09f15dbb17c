"""What `bin/bench shapes` does: measures each way of records through both workers, and prints the table.

Main function: `main`. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Final

from testkit.processes.schema_registry import RegistryStandIn

from benchmarks.confluent import confluent_jars
from benchmarks.java_source import compile_java
from benchmarks.runs import Contestant
from benchmarks.shapes import here
from benchmarks.shapes.messages import SHAPES, Format
from benchmarks.shapes.workers import INTO, OUT_OF, Amounts, Bench, Figures, Way
from benchmarks.workloads import CLIENTS, Environment
from penstock.broker import CONNECT_COORDINATES, KAFKA_VERSION, EmbeddedBroker, resolve_jars
from penstock.broker.jars import find_java

_SOURCES: Final = ("CountingSink.java", "ShapeSource.java")
#: Of Confluent's wheel, what Java's worker has itself.
_ITS_OWN: Final = ("connect-", "kafka-clients", "slf4j-", "jackson-")
#: The head of the table.
_HEAD: Final = (
    "| way | Penstock, us | interpreter / JVM | Java, us | Penstock's time over Java's | its rate over Java's |",
    "| --- | --- | --- | --- | --- | --- |",
)
_COLUMNS: Final = 6
#: Threads that take less than this share of a record's time are not printed.
_WORTH: Final = 0.03


def main(arguments: list[str]) -> int:
    """Parses the arguments, measures and prints; the exit code is 0.

    Raises:
        RuntimeError: A worker or a task failed, or records did not arrive in time.
        NoCompilerError: There is no `javac`; `--no-java` does without.
    """
    parser = argparse.ArgumentParser(prog="bin/bench shapes", description=__doc__)
    parser.add_argument("--only", default="", help="ways whose name contains this text, as in 'flat, JSON ->'")
    parser.add_argument("--warm", type=int, default=500_000, help="records of each way before it counts (500,000)")
    parser.add_argument("--records", type=int, default=200_000, help="records of each way that count (200,000)")
    parser.add_argument("--quick", action="store_true", help="150,000 records before it counts, 150,000 that count")
    parser.add_argument("--clients", choices=list(CLIENTS), default="larger", help="settings of the clients (larger)")
    parser.add_argument("--no-java", action="store_true", help="Penstock only")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--here", action="store_true", help="the pipelines of sinks in this process, no workers")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}; processor time in microseconds a record")
    if options.here:
        return here.report(options.only, options.json)
    amounts = Amounts(150_000, 150_000) if options.quick else Amounts(options.warm, options.records)
    settings = ", ".join(f"{key}={value}" for key, value in CLIENTS[options.clients].items())
    print(f"Kafka {KAFKA_VERSION}; {amounts.warm:,} records to warm up, {amounts.counted:,} that count; {settings}")
    report: list[dict[str, object]] = []
    rows: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-shapes-") as scratch:
        directory = Path(scratch)
        contestants = [Contestant("penstock")] if options.no_java else [Contestant("penstock"), Contestant("java")]
        classes = [] if options.no_java else _java_classes(directory / "classes")
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker, _registry() as registry:
            environment = Environment(broker.bootstrap_servers, directory, amounts.counted, options.clients)
            bench = Bench(environment, registry.url, classes, amounts)
            for ways in chosen(options.only):
                for way, found in _measured(bench, contestants, ways):
                    _print(way, found)
                    rows.append(row(way, found))
                    report.append(_told(way, found))
                    if options.json:
                        options.json.write_text(json.dumps(report, indent=2))
    print("", *_HEAD, *rows, sep="\n")
    return 0


def _registry() -> RegistryStandIn:
    # One that takes any schema: it is to answer, not to judge.
    return RegistryStandIn({})


def _java_classes(directory: Path) -> list[Path]:
    """What Java's worker needs beside its own classes: the connectors, and Confluent's converters."""
    directory.mkdir()
    class_path = ":".join(map(str, resolve_jars(CONNECT_COORDINATES)))
    for source in _SOURCES:
        compile_java(find_java(), Path(__file__).with_name(source), class_path, directory)
    return [directory, *(jar for jar in confluent_jars() if not jar.name.startswith(_ITS_OWN))]


def chosen(only: str) -> Iterator[Sequence[Way]]:
    """The ways that are asked for: those together that one worker takes, one after the other."""
    for shape, form in product(SHAPES, Format):
        for plugins in (INTO, OUT_OF):
            ways = [way for plugin in plugins if only in (way := Way(shape, form, plugin)).name]
            if ways:
                yield ways


def _measured(
    bench: Bench, contestants: Sequence[Contestant], ways: Sequence[Way]
) -> Iterator[tuple[Way, list[Figures]]]:
    """Each way's figures, of one contestant after the other."""
    found: dict[str, list[Figures]] = {way.name: [] for way in ways}
    first = ways[0]
    with bench.topic_of(first.shape, first.form) if first.is_sink else nullcontext() as topic:
        for contestant in contestants:
            for way, figures in bench.measure(contestant, ways, topic):
                found[way.name].append(figures)
    yield from ((way, found[way.name]) for way in ways)


def _print(way: Way, found: Sequence[Figures]) -> None:
    print(way.name)
    for one in found:
        print(f"  {one.contestant:10} {one.total:6.1f}   {one.rate:9,.0f} records/s   {threads_of(one)}")
    if len(found) > 1:
        ours, java = found
        print(
            f"  {ours.total / java.total:.2f} of Java's processor time, {ours.rate / java.rate:.2f} of its rate",
            flush=True,
        )


def row(way: Way, found: Sequence[Figures]) -> str:
    """For the table in `METHODOLOGY.md`."""
    ours = found[0]
    cells = [way.name, f"{ours.total:.1f}", f"{ours.of('interpreter'):.1f} / {ours.of('jvm'):.1f}"]
    for java in found[1:]:
        cells += [f"{java.total:.1f}", f"{ours.total / java.total:.2f}", f"{ours.rate / java.rate:.2f}"]
    return f"| {' | '.join([*cells, *[''] * (_COLUMNS - len(cells))])} |"


def threads_of(figures: Figures) -> str:
    """The kinds of threads that take most, by process."""
    texts = []
    for program, threads in figures.threads.items():
        kinds = sorted(threads.items(), key=lambda one: -one[1])
        shown = ", ".join(f"{kind} {us:.1f}" for kind, us in kinds if us >= _WORTH * figures.total)
        texts.append(f"{program} {figures.of(program):.1f} ({shown})")
    return "; ".join(texts)


def _told(way: Way, found: Sequence[Figures]) -> dict[str, object]:
    return {
        "name": way.name,
        "contestants": {one.contestant: {"us": one.total, "rate": one.rate, "threads": one.threads} for one in found},
    }
