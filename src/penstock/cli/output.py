"""The output of commands: tables for people, JSON for programs.

Main functions: ``show_json``, ``table``, ``state_text``, and ``filling`` and ``counting`` (progress bars).
``SettingError``, ``faults``, ``warnings`` and ``in_commands``, all pure, put a worker's answers in the words of the
command line. Standard output is for results, standard error for messages and bars.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.config.parse import HIDDEN

#: The follow-up errors of a setting whose value could not be read.
_NULL: Final = re.compile(r"Invalid value null for configuration |Missing required configuration ")
_REQUEST: Final = re.compile(r"issuing a '(?:PUT|POST)' request to the '/connectors/([^']*)/(\w+)' endpoint")
_LISTED_ELSEWHERE: Final = re.compile(r"\s*You can also find the above list of errors at the endpoint `[^`]*`")


@dataclass(frozen=True)
class SettingError:
    """An error in one setting.

    Attributes:
        name: The setting.
        value: Its value; None if it was not set. The value of a secret is hidden.
        error: The error.
    """

    name: str
    value: str | None
    error: str


def faults(found: Mapping[str, Any], config: Mapping[str, str]) -> list[SettingError]:
    """The faults in a validation's answer: one for each setting.

    Args:
        found: The answer.
        config: The validated configuration.
    """
    listed = []
    for entry in found["configs"]:
        value, definition = entry["value"], entry["definition"] or {}
        name, errors = value["name"], list(dict.fromkeys(value["errors"]))
        # Later checks take an unreadable value for null, which is not a further error.
        errors = [error for error in errors if not _NULL.match(error)] or errors[:1]
        if not errors:
            continue
        given = config.get(name, value["value"])
        secret = definition.get("type") == "PASSWORD"
        text = "; ".join(errors)
        if secret and given:
            text, given = text.replace(given, HIDDEN), HIDDEN
        listed.append(SettingError(name, given, text))
    return listed


def warnings(found: Mapping[str, Any]) -> Sequence[str]:
    """The warnings in a validation's answer."""
    return [f"{one['name']}: {one['message']}" for one in found.get("warnings", ())]


def in_commands(message: str) -> str:
    """Replaces the REST requests that a worker's error message recommends by commands.

    >>> in_commands("Stop it by issuing a 'PUT' request to the '/connectors/a b/stop' endpoint")
    "Stop it by running `penstock connectors stop 'a b'`"
    """
    message = _LISTED_ELSEWHERE.sub("", message)
    return _REQUEST.sub(lambda found: f"running `penstock connectors {found[2]} {shlex.quote(found[1])}`", message)


#: The width of files and pipes, where lines are not folded.
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
    """Returns the console for results; it adds no colours or line breaks if the output is not a terminal."""
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
    """A bar that fills with time: its total is a number of seconds."""

    def render(self, task: Task) -> ProgressBar:
        """The bar as it is now."""
        total = task.total or 0.0
        return ProgressBar(total=total, completed=min(task.elapsed or 0.0, total), width=40)


@contextmanager
def filling(text: str, seconds: float) -> Iterator[None]:
    """Shows a bar that is full after ``seconds``, while a command waits for an answer.

    Nothing is shown where standard error is no terminal.
    """
    with _bars(_OverTime()) as bars:
        bars.add_task(text, total=seconds)
        yield


@contextmanager
def counting(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Shows a bar; yields the function that sets it to a number done of a total, which is None if unknown.

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
