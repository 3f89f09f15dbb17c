"""The common part of the commands that call a worker: its address, the client, exit codes, and the output.

The decorator ``asking`` passes a ``Session`` to such a command. Standard output is for results, standard error for
messages and progress bars.

Exit codes: 0 done, 1 the worker refused or a configuration is invalid, 2 wrong usage, 3 no worker answers, 4 the
connector or task does not exist.

Thread: the main thread of the command.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, NoReturn
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit, urlunsplit

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.errors import ConfigException

_REQUEST: Final = re.compile(r"issuing a '(?:PUT|POST)' request to the '/connectors/([^']*)/(\w+)' endpoint")
_LISTED_ELSEWHERE: Final = re.compile(r"\s*You can also find the above list of errors at the endpoint `[^`]*`")


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


_WARNING = re.compile(r'299 \S+ "([^"]*)"')


class ApiError(Exception):
    """The worker answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(Exception):
    """No worker answered."""

    def __init__(self, url: str, reason: object) -> None:
        super().__init__(
            f"No worker answers at {url}: {reason}. Is it running? Another one is asked with --url or PENSTOCK_URL"
        )
        self.reason = str(reason)


class ApiClient:
    """Calls one worker.

    Args:
        url: The worker's address; may hold ``user:password@``.
        timeout_s: The time limit of an answer; the worker's own limit is 90 seconds.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 100.0, ca_file: str | None = None, certificate: str | None = None
    ) -> None:
        parts = _worker_url(url)
        host = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        self.warnings: list[str] = []
        self._files = ca_file, certificate
        self._tls = _context(ca_file, certificate) if parts.scheme == "https" else None

    def at(self, url: str, timeout_s: float) -> ApiClient:
        """The same user's client of another worker.

        A login that was given for https is not sent over http.

        Raises:
            ConfigException: the address is none, or a file of certificates cannot be used.
        """
        ca_file, certificate = self._files
        other = ApiClient(url, timeout_s=timeout_s, ca_file=ca_file, certificate=certificate)
        if self._tls is None or other._tls is not None:
            other._headers = dict(self._headers)
        return other

    def call(
        self,
        method: str,
        path: Sequence[str],
        *,
        body: object = None,
        query: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Any:
        """Makes one request.

        Args:
            path: Its segments, not escaped.
            body: Sent as JSON; None for none.

        Returns:
            The answer's JSON; None for an empty one.

        Raises:
            ApiError: the worker refused.
            Unreachable: there was no answer, or it was not HTTP.
        """
        url = "/".join([self.url, *(quote(segment, safe="") for segment in path)])
        if query:
            url += "?" + urlencode(query, doseq=True)
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._tls) as answer:
                self.warnings += _WARNING.findall(answer.headers.get("Warning", ""))
                content = answer.read()
                return json.loads(content) if content.strip() else None
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _message(error)) from error
        except (OSError, ValueError) as error:
            raise Unreachable(self.url, getattr(error, "reason", None) or error) from error


def _context(ca_file: str | None, certificate: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate)
    except OSError as error:
        named = " and ".join(name for name in (ca_file, certificate) if name)
        raise ConfigException(f"The certificates of {named} cannot be used: {error}") from error
    return context


def _worker_url(url: str) -> SplitResult:
    """The parts of a worker's address; ``http://`` may be left out.

    >>> _worker_url("worker:8083").geturl()
    'http://worker:8083'
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ConfigException(f"{url} is no address of a worker: {error}; write http://HOST:PORT") from error
    if not usable:
        raise ConfigException(f"{url} is no address of a worker; write http://HOST:PORT or https://HOST:PORT")
    return parts


def _message(error: urllib.error.HTTPError) -> str:
    content = error.read()
    try:
        found = json.loads(content)
        message = found.get("message") if isinstance(found, dict) else None
    except ValueError:
        message = content.decode("utf-8", "replace").strip()
    return str(message or f"HTTP {error.code} {error.reason}")


DEFAULT_URL: Final = "http://localhost:8083"
EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3
EXIT_MISSING: Final = 4

NOT_FOUND: Final = 404
#: The options of every command, in the order of ``ApiClient``; they may also precede the command's name.
_COMMON: Final = ("url", "ca_file", "certificate", "output")


@dataclass(frozen=True)
class Session:
    """The session of a command: the worker to call, and the form of the output."""

    api: ApiClient
    json: bool

    def show(self, found: object, draw: Callable[[], None]) -> None:
        """Prints an answer in the requested form."""
        if self.json:
            show_json(found)
        else:
            draw()


def _complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del parameter
    try:
        given = _with_those_of_the_group(context, context.params)
        client = ApiClient(str(given.get("url") or DEFAULT_URL), timeout_s=2)
        return [CompletionItem(name) for name in client.call("GET", ["connectors"]) if name.startswith(incomplete)]
    except (ApiError, Unreachable, ConfigException):
        return []


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of all commands that call a worker, and turns errors into exit codes."""

    @click.option("--url", envvar="PENSTOCK_URL", default=DEFAULT_URL, show_default=True, help="Of the worker.")
    @click.option("--ca-file", envvar="PENSTOCK_CA_FILE", help="Certificates to trust, for https.")
    @click.option("--certificate", envvar="PENSTOCK_CERTIFICATE", help="Own key and certificate (PEM), for https.")
    @click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form."
    )
    @wraps(command)
    def run(**arguments: Any) -> None:
        given = _with_those_of_the_group(click.get_current_context(), arguments)
        url, ca_file, certificate, output = (given.pop(name) for name in _COMMON)
        try:
            session = Session(ApiClient(url, ca_file=ca_file, certificate=certificate), output == "json")
            command(session, **given)
            for warning in session.api.warnings:
                complain(f"Warning: {warning}")
        except ApiError as error:
            end(in_commands(str(error)), EXIT_MISSING if error.status == NOT_FOUND else EXIT_REFUSED)
        except Unreachable as error:
            end(str(error), EXIT_UNREACHABLE)
        except ConfigException as error:
            raise click.UsageError(str(error)) from error

    return run


def _with_those_of_the_group(context: click.Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command; options before its name apply if it does not set them itself."""
    before = {name: value for name, value in (context.obj or {}).items() if value is not None}
    own = {name for name in _COMMON if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return {**arguments, **{name: value for name, value in before.items() if name not in own}}


def end(message: str, code: int) -> NoReturn:
    """Ends the command with an exit code, and a message on standard error."""
    complain(message)
    sys.exit(code)


#: The name of a connector; shells complete it.
name_argument = click.argument("name", shell_complete=_complete_name)
#: A file to read, or - for standard input.
file_argument = partial(click.argument, "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
