"""Runs what stands in the ``console`` blocks of a page, in a folder of its own, and compares what is printed.

Main types: ``Page`` (what there is to do, and what the page shows) and ``Stage`` (folder, shell, processes).
``python -m tools.reference.consoles PAGE...`` writes the pages again with what is printed now; where the
page agrees already it stays as it is.

A block is a console block, or a file that the reader is to write (marked ``file: NAME``; a name that is there already
is replaced, and with ``more of: NAME`` the text goes to its end). Marks of console blocks:

* none: each command is run, one after the other, and prints what the page shows;
* ``background: TEXT``: the command is started, and runs to the end of the stage; a line with this text is waited for;
* ``not run: REASON``.

What the page shows may leave things out: ``...`` stands for anything in a line, and as a line for any lines. Times,
ids of processes and clusters, ports of this machine, and how many blanks stand in a row, do not count. Pages name the
usual ports, and tests take free ones: both are a ``Stage``'s ``here``.

Thread: the caller's.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from testkit.spark_settings import QUICK_START

from penstock.broker import free_port
from tools.reference.blocks import Block, blocks

#: What differs from run to run.
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?"), "<time>"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"\[ *\d+\.\d s\]"), "[<n> s]"),
    (re.compile(r"\bafter \d+\.\d s\b"), "after <n> s"),
    (re.compile(r"\bpid \d+"), "pid <n>"),
    (re.compile(r"\bcluster id \S+"), "cluster id <id>"),
    (re.compile(r"[ \t]+"), " "),
)
#: Commands that only look may be tried again until they show what they should: data takes a moment to arrive.
_LOOKS: Final = re.compile(
    r"cat |tail |curl (?!.*-X)"
    r"|penstock connectors (?:-\S+ \S+ )*(?:list|get|status|explain|preview|validate|offsets get)\b"
    r"|penstock cluster\b"
    r"|.* --dry-run\b"
)
_COMMAND_S: Final = 180.0
_POLL_S: Final = 0.3
#: Each look of a command starts a process, which takes longer than a worker takes to do what is waited for.
_LOOK_AGAIN_S: Final = 2.0
#: The page whose beginning starts the worker that the examples of all pages use.
TUTORIAL: Final = Path("docs/tutorial.md")


@dataclass(frozen=True)
class Command:
    """One command of a page, and what the page says it prints."""

    shell: str
    shown: str


def commands(text: str) -> list[Command]:
    """The commands of a console block.

    >>> commands("$ echo a \\\\\\n    b\\na b\\n$ true\\n")
    [Command(shell='echo a \\\\\\n    b', shown='a b\\n'), Command(shell='true', shown='')]

    Raises:
        ValueError: it does not begin with ``$``.
    """
    found: list[Command] = []
    open_ended = False
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], ""))
        elif not found:
            raise ValueError(f"{line!r} stands before the first command; a command begins with '$ '")
        elif open_ended:
            found[-1] = Command(f"{found[-1].shell}\n{line}", "")
        else:
            found[-1] = Command(found[-1].shell, f"{found[-1].shown}{line}\n")
        open_ended = not found[-1].shown and line.endswith("\\")
    return found


def agrees(shown: str, printed: str) -> bool:
    """True if a page's text stands for what was printed.

    >>> agrees("at 2026-01-31 12:00:00,123\\n...\\nend of ...\\n", "at  2026-02-01 13:00:00,000\\n1\\n2\\nend of it\\n")
    True
    >>> agrees("one\\n", "one\\ntwo\\n")
    False
    """
    pattern = ""
    for line in _plain(shown):
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _plain(printed))) is not None


def _plain(text: str) -> list[str]:
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return [line.rstrip() for line in text.strip("\n").splitlines()]


class Stage:
    """The environment of the commands of pages: a folder, a shell, and what was started in the background.

    Args:
        folder: Empty; the commands' working directory.
        here: What takes the place of texts in pages, such as ports; in what is printed it is put back.
        environment: More variables for the commands.
    """

    def __init__(self, folder: Path, here: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._here = dict(here)
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        # As in a terminal of somebody who sees no colours; times in answers are those of the page.
        self._environment = {**os.environ, "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8", **(environment or {})}
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, name: str, text: str, *, more: bool = False) -> None:
        """Writes a file, or goes on with it."""
        with (self.folder / name).open("a" if more else "w", encoding="utf-8") as out:
            out.write(self._localized(text))

    def run(self, shell: str) -> str:
        """Runs a command and returns what it prints to both of its outputs."""
        done = subprocess.run(
            ["bash", "-c", self._localized(shell)],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_S,
            check=False,
        )
        return self._as_on_page(done.stdout.decode(errors="replace"))

    def start(self, shell: str, until: str) -> str:
        """Starts a command in the background and waits for a line; what it has printed by then.

        Raises:
            AssertionError: the line did not come.
        """
        log = self.folder / f".output-{len(self._running)}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._localized(shell)}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._running.append((shell, process, log))
        deadline = time.monotonic() + _COMMAND_S
        while True:
            printed = self._as_on_page(log.read_text(encoding="utf-8", errors="replace"))
            if any(until in line for line in printed.splitlines()):
                return printed
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"$ {shell}: no line with {until!r} in\n{printed}")
            threading.Event().wait(_POLL_S)

    def outputs(self) -> str:
        """Returns the last output of the commands in the background, for messages."""
        return "\n".join(
            f"$ {shell}\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}" for shell, _, log in self._running
        )

    def close(self) -> None:
        """Ends what runs in the background, the last one first."""
        while self._running:
            _, process, _ = self._running.pop()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _localized(self, text: str) -> str:
        for there, here in self._here.items():
            text = _replaced(text, there, here)
        return text

    def _as_on_page(self, text: str) -> str:
        for there, here in self._here.items():
            text = _replaced(text, here, there)
        return text.replace(str(self.folder), ".")


def _replaced(text: str, old: str, new: str) -> str:
    """The text with one part for another, but not within a longer number."""
    return re.sub(rf"(?<!\d){re.escape(old)}(?!\d)", lambda _: new, text)


class Page:
    """A page whose blocks are run.

    Args:
        path: The page.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.blocks = [one for one in blocks(path.name, self.text) if _is_done(one)]
        background = [number for number, one in enumerate(self.blocks) if one.marked("background") is not None]
        #: How many blocks there are up to the last that starts something.
        self.beginning = background[-1] + 1 if background else 0

    def play(self, stage: Stage, todo: slice, patience_s: float = 90.0) -> Iterator[tuple[Block, Command, str]]:
        """Does what some of the blocks say.

        Args:
            stage: Where.
            todo: Which blocks, by their places in ``blocks``.
            patience_s: For how long a command that only looks is tried until it shows what the page shows; until it
                shows anything, where the page has nothing yet.

        Yields:
            Each command with its block and what it printed.
        """
        exports: list[str] = []
        for block in self.blocks[todo]:
            name, more = block.marked("file"), block.marked("more of")
            if name is not None:
                stage.write(name, block.text)
            elif more is not None:
                stage.write(more, block.text, more=True)
            else:
                for command in commands(block.text):
                    yield block, command, _done(stage, block, command, exports, patience_s)

    def replaced(self, outcomes: Sequence[tuple[Block, Command, str]]) -> str:
        """The page's text with what commands printed, where it shows something else."""
        text = self.text
        for block in reversed(self.blocks):
            own = [(command, printed) for one, command, printed in outcomes if one == block]
            if own:
                end = block.start + len(block.text)
                text = text[: block.start] + "".join(_written(*one) for one in own) + text[end:]
        return text


def _is_done(block: Block) -> bool:
    if block.language == "console":
        return block.marked("not run") is None
    return block.marked("file") is not None or block.marked("more of") is not None


def _done(stage: Stage, block: Block, command: Command, exports: list[str], patience_s: float) -> str:
    until = block.marked("background")
    if until is not None:
        return stage.start(command.shell, until)
    if command.shell.startswith("export "):
        exports.append(command.shell)
        return ""
    shell = "\n".join((*exports, command.shell))
    deadline = time.monotonic() + patience_s
    while True:
        printed = stage.run(shell)
        as_shown = agrees(command.shown, printed) if command.shown else bool(printed)
        if as_shown or not _LOOKS.match(command.shell) or time.monotonic() > deadline:
            return printed
        threading.Event().wait(_LOOK_AGAIN_S)


def _written(command: Command, printed: str) -> str:
    shown = command.shown
    if not agrees(shown, printed):
        shown = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return f"$ {command.shell}\n{shown}"


@contextlib.contextmanager
def stage_with_worker(tutorial: Page, folder: Path) -> Iterator[tuple[Stage, list[tuple[Block, Command, str]]]]:
    """A stage with the broker and the worker that the tutorial starts, and what its commands printed."""
    kafka, rest, tls, database = (free_port() for _ in range(4))
    # Workers of a group are dealt their work in the order of their addresses.
    group = sorted(free_port() for _ in range(3))
    on_demand = f"{sys.executable} -m testkit.processes.spark_on_demand"
    here = {
        "penstock broker start": f"penstock broker start --port {kafka}",
        **{f"penstock postgresql {do}": f"penstock postgresql {do} --port {database}" for do in ("start", "sql")},
        "5432": str(database),
        "9092": str(kafka),
        "8083": str(rest),
        "8443": str(tls),
        **{str(8084 + number): str(port) for number, port in enumerate(group)},
        "8087": str(free_port()),
        # Spark's master, and the web interfaces of master and worker.
        **{str(port): str(free_port()) for port in (7077, 7078, 7079)},
        # The web interface of the page about HTTP.
        "8089": str(free_port()),
        # Workers whose page does not wait for Spark start it with the first batch.
        **{
            f"connect-distributed worker-{number}": f"{on_demand} penstock.cli.worker.distributed worker-{number}"
            for number in (2, 3)
        },
        "connect-standalone secured": f"{on_demand} penstock.cli.worker.standalone secured",
        # Starts Spark sooner; nobody has to see it.
        "bootstrap.servers=localhost": "\n".join(f"{key}={text}" for key, text in QUICK_START.items())
        + "\nbootstrap.servers=localhost",
    }
    with Stage(folder, here, {"PENSTOCK_URL": f"http://127.0.0.1:{rest}"}) as stage:
        try:
            yield stage, list(tutorial.play(stage, slice(tutorial.beginning)))
        finally:
            stage.close()
            stage.run("penstock broker stop; penstock postgresql stop")


def main(arguments: Sequence[str]) -> int:
    """Writes pages again; run in the checkout."""
    if not arguments:
        sys.stderr.write("usage: python -m tools.reference.consoles PAGE...\n")
        return 2
    pages = [Page(Path(argument)) for argument in arguments]
    tutorial = Page(TUTORIAL)
    with (
        tempfile.TemporaryDirectory() as folder,
        stage_with_worker(tutorial, Path(folder)) as (stage, begun),
    ):
        for page in pages:
            first = page.path == TUTORIAL
            try:
                outcomes = list(page.play(stage, slice(page.beginning if first else 0, None), patience_s=6.0))
            except Exception as error:
                error.add_note(stage.outputs())
                raise
            page.path.write_text(page.replaced([*(begun if first else []), *outcomes]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
