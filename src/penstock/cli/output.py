"""How commands show what they have found: tables for people, JSON for programs.

Main functions: ``show_json``, ``table``, ``state_text``, and ``filling`` and ``counting`` (bars for what lasts).
Standard output is for results, standard error for messages and bars.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

#: No line is folded in files and pipes.
_WIDE = 10_000
_COLOURS = {
    "RUNNING": "green",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
    "RESTARTING": "cyan",
    "UNASSIGNED": "dim",
    "FAILED": "bold red",
}


def console() -> Console:
    """Where results go; without colours and line ends of its own when that is no terminal."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(file=sys.stdout, soft_wrap=True, highlight=False, width=width)


def show_json(value: object) -> None:
    """Prints JSON, and nothing else."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Text | None]], empty: str) -> None:
    """Prints rows, folded to the width of a terminal; one line of text when there are none."""
    lines = [[cell if isinstance(cell, Text) else Text(cell or "-") for cell in row] for row in rows]
    out = console()
    if not lines:
        out.print(Text(empty, style="dim"))
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(heading, overflow="fold")
    for line in lines:
        drawn.add_row(*line)
    out.print(drawn, soft_wrap=not sys.stdout.isatty())


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=_COLOURS.get(state, ""))


def say(text: str, style: str = "") -> None:
    """Prints one line."""
    console().print(Text(text, style=style))


def complain(text: str, style: str = "red") -> None:
    """Prints a message to standard error."""
    Console(file=sys.stderr, soft_wrap=True, highlight=False).print(Text(text, style=style))


class _OverTime(ProgressColumn):
    """A bar that fills by itself: its total is a number of seconds."""

    def render(self, task: Task) -> ProgressBar:
        """The bar as it is now."""
        total = task.total or 0.0
        return ProgressBar(total=total, completed=min(task.elapsed or 0.0, total), width=40)


@contextmanager
def filling(text: str, seconds: float) -> Iterator[None]:
    """Shows a bar that is full after so many seconds, while a command waits for an answer.

    Nothing is shown where standard error is no terminal.
    """
    with _bars(_OverTime()) as bars:
        bars.add_task(text, total=seconds)
        yield


@contextmanager
def counting(text: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar; gives what sets it, to so many of so many.

    Nothing is shown where standard error is no terminal.
    """
    with _bars(BarColumn(), MofNCompleteColumn()) as bars:
        task = bars.add_task(text, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _bars(*columns: ProgressColumn) -> Progress:
    screen = Console(file=sys.stderr)
    return Progress(
        TextColumn("{task.description}"), *columns, console=screen, transient=True, disable=not screen.is_terminal
    )
