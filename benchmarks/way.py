"""How many files are on the way of a record: `python -m benchmarks.way`.

A standalone worker with the file source and the file sink runs in this process, with schemaless JSON. When it has
settled, one batch of lines goes from file to file; the modules of Penstock are counted whose functions run meanwhile
in the threads of the two tasks, from `poll` to the commit of the offsets, and from the consumer to the commit behind
`put`. What a module does only when it is imported, or when a task starts, is not counted.

Main function: `main`. Thread: the worker has the main thread; `lines` of this module feeds it and looks.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

import penstock
from penstock.broker import EmbeddedBroker
from penstock.cli.worker.standalone import run

SOURCE = f"{Path(penstock.__file__).parent}{os.sep}"
_WARM_UP = 20
_TIMEOUT_S = 120.0
_FLUSH_S = 1.0


class Watched:
    """The modules whose functions run, by thread.

    Thread: each thread writes a set of its own; the one that feeds the worker reads them when it has stopped watching.
    """

    def __init__(self) -> None:
        self.watching = False
        self._files: dict[int, set[str]] = defaultdict(set)

    def saw(self, frame: FrameType, event: str, argument: object) -> None:
        """A function of any module begins: for ``threading.setprofile``."""
        if self.watching and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self._files[threading.get_ident()].add(frame.f_code.co_filename.removeprefix(SOURCE))

    def files_of(self, task: str) -> set[str]:
        """The files that ran in the threads of a task."""
        idents = {one.ident for one in threading.enumerate() if one.name.endswith(task)}
        return {file for ident, files in self._files.items() if ident in idents for file in files}


def main() -> int:
    """Runs a worker, and prints the files and how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50, help="lines in the batch (50)")
    arguments = parser.parse_args()
    watched = Watched()
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder, "kafka")) as broker:
        home = Path(folder)
        worker = _write(home, broker.bootstrap_servers)
        feeder = threading.Thread(target=lines, args=(home, arguments.records, watched), name="lines")
        feeder.start()
        threading.setprofile(watched.saw)
        code = run(str(worker), [str(home / "source.properties"), str(home / "sink.properties")])
        threading.setprofile(None)
        feeder.join()
    return code


def lines(home: Path, records: int, watched: Watched) -> None:
    """Feeds the worker batch by batch, watches the last one, prints what was seen, and stops the worker."""
    try:
        for batch in range(_WARM_UP):
            _pass(home, records, batch)
        watched.watching = True
        _pass(home, records, _WARM_UP)
        time.sleep(3 * _FLUSH_S)  # the commits behind it
        watched.watching = False
        _print(watched.files_of("way-source-0"), watched.files_of("way-sink-0"))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _pass(home: Path, records: int, batch: int) -> None:
    with (home / "in").open("a", encoding="utf-8") as file:
        file.write("".join(f"line {batch} {index}\n" for index in range(records)))
    deadline = time.monotonic() + _TIMEOUT_S
    out = home / "out"
    while not out.exists() or out.read_bytes().count(b"\n") < (batch + 1) * records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"batch {batch} has not arrived within {_TIMEOUT_S:g} s")
        time.sleep(0.05)


def _print(source: set[str], sink: set[str]) -> None:
    for title, files in (("source", source), ("sink", sink)):
        print(f"{title}: {len(files)} files", *sorted(files), sep="\n  ")
    print(f"both: {len(source | sink)} files", flush=True)


def _write(home: Path, servers: str) -> Path:
    json = "org.apache.kafka.connect.json.JsonConverter"
    source = {"name": "way-source", "connector.class": "FileStreamSource", "file": str(home / "in"), "topic": "way"}
    sink = {"name": "way-sink", "connector.class": "FileStreamSink", "file": str(home / "out"), "topics": "way"}
    files: dict[str, dict[str, str]] = {
        "worker": {
            "bootstrap.servers": servers,
            "listeners": "http://127.0.0.1:0",
            "key.converter": json,
            "value.converter": json,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(home / "offsets"),
            "offset.flush.interval.ms": str(int(1000 * _FLUSH_S)),
            "consumer.auto.offset.reset": "earliest",
        },
        "source": source,
        "sink": sink,
    }
    for name, settings in files.items():
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (home / f"{name}.properties").write_text(text, encoding="utf-8")
    return home / "worker.properties"


if __name__ == "__main__":
    sys.exit(main())
