"""Source connectors whose task does what no task should, until a file is removed.

Main names: `Troublemaker`, `no_more_threads`. Settings: `fault`, one of `FAULTS`; `until`, the file.
Thread: the task's own; leaked threads end with the file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.api import SourceConnector, SourceTask
from penstock.config import ConfigDef, ConfigType, ValidString

LEAKED_THREADS: Final = 3_000
_TURNS: Final = 1_000_000
_STACK_BYTES: Final = 64 * 1024


class Troublemaker(SourceConnector):
    """One task."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[SourceTask]:
        return TroublemakerTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return (
            ConfigDef()
            .define("fault", ConfigType.STRING, validator=ValidString(*FAULTS), doc="What it does.")
            .define("until", ConfigType.STRING, doc="The file whose end ends it.")
        )


class TroublemakerTask(SourceTask):
    """Does it in its first `poll`, or in `stop`."""

    def start(self, props: Mapping[str, str]) -> None:
        self._fault, self._until = props["fault"], Path(props["until"])

    def poll(self) -> None:
        if self._fault != "blocked-stop":
            FAULTS[self._fault](self._until)
        self.context.stopping.wait(1)

    def stop(self) -> None:
        if self._fault == "blocked-stop":
            _wait(self._until)


def _wait(until: Path) -> None:
    while until.exists():
        threading.Event().wait(0.05)


def _tell(until: Path) -> None:
    """Makes a second file, without a descriptor."""
    with suppress(FileExistsError):
        os.link(until, until.with_suffix(".reached"))


def _loop(until: Path) -> None:
    """Python code that never waits, and gives the interpreter away only when it is taken."""
    while until.exists():
        for _ in range(_TURNS):
            pass


def _leak_threads(until: Path) -> None:
    """As many threads as the machine has, at most 3,000; then none can be started by anybody."""
    gone = threading.Event()
    before = threading.stack_size(_STACK_BYTES)
    try:
        for _ in range(LEAKED_THREADS):
            threading.Thread(target=gone.wait, daemon=True).start()
    except RuntimeError:
        pass  # The machine has no more.
    finally:
        threading.stack_size(before)
    with no_more_threads():
        _tell(until)
        _wait(until)
    gone.set()


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Refuses new threads as the system does; its own limits hold for a user, and not for root."""

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    # What starts threads has another name from Python 3.13 on.
    names = [name for name in ("_start_new_thread", "_start_joinable_thread") if hasattr(threading, name)]
    kept: dict[str, Any] = {name: getattr(threading, name) for name in names}
    for name in names:
        setattr(threading, name, refused)
    try:
        yield
    finally:
        for name, start in kept.items():
            setattr(threading, name, start)


def _open_files(until: Path) -> None:
    """Every descriptor that the worker may have, taken again as soon as one gets free."""
    with ExitStack() as opened:
        while until.exists():
            try:
                while True:
                    opened.callback(os.close, os.open("/dev/null", os.O_RDONLY))
            except OSError:
                _tell(until)
            threading.Event().wait(0.01)


def _move_clock(seconds: int, until: Path) -> None:
    """The time of day of all Python code of the worker; that of C code, and every other clock, stays."""
    kept, kept_ns = time.time, time.time_ns
    time.time = lambda: kept() + seconds
    time.time_ns = lambda: kept_ns() + seconds * 1_000_000_000
    try:
        _tell(until)
        _wait(until)
    finally:
        time.time, time.time_ns = kept, kept_ns


FAULTS: Final[Mapping[str, Callable[[Path], None]]] = {
    "none": lambda _: None,
    "loop": _loop,
    "blocked-stop": _wait,
    "leaked-threads": _leak_threads,
    "open-files": _open_files,
    "clock-ahead": partial(_move_clock, 3_600),
    "clock-behind": partial(_move_clock, -3_600),
}
