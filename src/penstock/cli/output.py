"""How commands show what they have found: tables for people, JSON for programs.

Main functions: ``show``, ``table``, ``state_text``. Standard output is for results, standard error for messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
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
    """Prints rows; one line of text when there are none."""
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
    out.print(drawn)


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=_COLOURS.get(state, ""))


def say(text: str, style: str = "") -> None:
    """Prints one line."""
    console().print(Text(text, style=style))


def complain(text: str) -> None:
    """Prints a message to standard error."""
    Console(file=sys.stderr, soft_wrap=True, highlight=False).print(Text(text, style="red"))
