"""`penstock quickstart`: the documentation's worked example on a real broker, in one command.

It starts the embedded broker and a standalone worker with the example configuration, which is a part of the package,
shows the received records and compares them byte for byte with the documentation. Broker and worker are separate
processes that end with this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import click

from penstock.broker import EmbeddedBroker, free_port
from penstock.broker.jars import is_free
from penstock.config.properties import load_properties
from penstock.kafka.consumer.sampler import read_values

T = TypeVar("T")

PLAIN = b'"hello world"'
TRANSFORMED = b'{"line":"hello world","data_source":"test-file-source"}'
REST_PORT = 8083
#: The wheel has the example configuration next to this module; a checkout has it in `config/`.
PACKED = Path(__file__).with_name("config")
EXAMPLES = PACKED if PACKED.is_dir() else Path(__file__).parents[3] / "config"
TRANSFORMS = {
    "transforms": "MakeMap, InsertSource",
    "transforms.MakeMap.type": "HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.InsertSource.type": "InsertField$Value",
    "transforms.InsertSource.static.field": "data_source",
    "transforms.InsertSource.static.value": "test-file-source",
}


class _Mismatch(click.ClickException):
    """An error: the output differs from the documentation."""


@click.command()
@click.option("--once", is_flag=True, help="Compare what is shown, stop everything and exit with 0 when it is right.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".penstock") / "quickstart",
    show_default=True,
    help="Where the broker's data, the files and the log go; emptied first.",
)
def quickstart(once: bool, directory: Path) -> None:
    """Run a broker, a worker, a file source and a file sink, and show what happens."""
    shown, directory = directory, directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(0o700, parents=True)
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:5.1f} s] {text}")

    say("Starting Kafka (the first time its jars are downloaded, about 45 MB) ...")
    with contextlib.ExitStack() as running:
        broker = running.enter_context(EmbeddedBroker(directory / "kafka"))
        say(f"Kafka serves on {broker.bootstrap_servers}")
        url = running.enter_context(_worker(directory, broker.bootstrap_servers))
        version = _wait("the worker answers", 30, lambda: json.load(urllib.request.urlopen(url, timeout=2)))["version"]
        say(f"The worker (Kafka Connect {version} over REST) answers on {url}; Spark starts in the background")
        _show(directory, broker.bootstrap_servers, say)
        say(f"REST: {url}/connectors?expand=status   worker log: {shown / 'worker.log'}")
        if not once:
            click.echo(f"Append lines to {shown / 'test.txt'} and watch {shown / 'test.sink.txt'}. Ctrl-C ends.")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
        say("Stopping ...")
    say("Done")


def _show(directory: Path, bootstrap_servers: str, say: Callable[[str], None]) -> None:
    """Shows and compares the two outputs of the documentation and the growing sink file."""
    source, sink = directory / "test.txt", directory / "test.sink.txt"
    _append(source, "hello world")
    say(f"Appended to {source.name}: hello world")
    for what, topic, expected in (
        ("Without transforms", "connect-test", PLAIN),
        ("With MakeMap and InsertSource", "connect-test-transformed", TRANSFORMED),
    ):
        values = read_values(bootstrap_servers, topic, 1, 60)
        if values != [expected]:
            raise _Mismatch(f"topic {topic} holds {values!r}, expected [{expected!r}]; see {directory / 'worker.log'}")
        say(f"{what}, topic {topic}: {expected.decode()}")
    lines = ["hello world"]
    for line in ("a second line", "and a third"):
        _expect_file(sink, lines)
        say(f"{sink.name}: {sink.read_text().splitlines()}")
        _append(source, line)
        say(f"Appended to {source.name}: {line}")
        lines.append(line)
    _expect_file(sink, lines)
    say(f"{sink.name}: {sink.read_text().splitlines()}")


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as out:
        out.write(line + "\n")


def _expect_file(path: Path, lines: list[str]) -> None:
    expected = "".join(line + "\n" for line in lines).encode()

    def matches() -> bool:
        found = path.read_bytes()
        if not expected.startswith(found):
            raise _Mismatch(f"{path} holds {found!r}, expected {expected!r}")
        return found == expected

    _wait(f"{path} holds {len(lines)} lines", 60, matches)


@contextlib.contextmanager
def _worker(directory: Path, bootstrap_servers: str) -> Iterator[str]:
    """Runs connect-standalone with the example configuration; yields its URL."""
    port = REST_PORT if is_free(REST_PORT) else free_port()
    url = f"http://127.0.0.1:{port}"
    files = [
        _adapted(
            EXAMPLES / "connect-standalone.properties",
            directory,
            {
                "bootstrap.servers": bootstrap_servers,
                "listeners": url,
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "offset.storage.file.filename": str(directory / "connect.offsets"),
                "offset.flush.interval.ms": "1000",
            },
        ),
        _adapted(EXAMPLES / "connect-file-source.properties", directory, {"topic": "connect-test"}),
        _adapted(
            EXAMPLES / "connect-file-source.properties",
            directory,
            {"name": "local-file-source-transformed", "topic": "connect-test-transformed", **TRANSFORMS},
            name="connect-file-source-transformed.properties",
        ),
        _adapted(EXAMPLES / "connect-file-sink.properties", directory, {}),
    ]
    command = Path(sys.executable).with_name("connect-standalone")
    with (directory / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [str(command), *map(str, files)], cwd=directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
    if process.returncode != 0:
        raise _Mismatch(f"the worker ended with exit code {process.returncode}; see {directory / 'worker.log'}")


def _adapted(template: Path, directory: Path, changes: Mapping[str, str], name: str | None = None) -> Path:
    """A copy of an example file with some settings changed."""
    settings = {**load_properties(template), **changes}
    target = directory / (name or template.name)
    target.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return target


def _wait(what: str, timeout_s: float, attempt: Callable[[], T]) -> T:
    """Calls ``attempt`` until it returns a true value."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while True:
        error: Exception | None = None
        try:
            found = attempt()
            if found:
                return found
        except OSError as problem:
            error = problem
        if time.monotonic() > deadline:
            raise _Mismatch(f"{what}: not seen within {timeout_s:.0f} s" + (f" ({error})" if error else ""))
        pause.wait(0.05)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    quickstart()
