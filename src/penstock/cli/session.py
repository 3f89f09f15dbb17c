"""The common part of the commands that call a worker: the options for its address, the form of answers, and exit codes.

Main objects: ``Session`` is what such a command gets, from the decorator ``asking``. Exit codes: 0 done, 1 the worker
refused or a configuration is invalid, 2 wrong usage, 3 no worker answers, 4 there is no such connector or task.

Thread: the main thread of the command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from penstock.cli.api_client import ApiClient, ApiError, Unreachable
from penstock.cli.output import complain, in_commands, show_json
from penstock.errors import ConfigException

DEFAULT_URL: Final = "http://localhost:8083"
EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 3
EXIT_MISSING: Final = 4

NOT_FOUND: Final = 404
#: The options of every command, in the order of ``ApiClient``; they may stand before its name, too.
_COMMON: Final = ("url", "ca_file", "certificate", "output")


@dataclass(frozen=True)
class Session:
    """The session of a command: which worker to call, and how to show its answers."""

    api: ApiClient
    json: bool

    def show(self, found: object, draw: Callable[[], None]) -> None:
        """Prints an answer in the form that was asked for."""
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
    """Adds the options of every command that asks a worker, and turns refusals into exit codes."""

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
    """The options of a command; those given before its name count where it has none of its own."""
    before = {name: value for name, value in (context.obj or {}).items() if value is not None}
    own = {name for name in _COMMON if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return {**arguments, **{name: value for name, value in before.items() if name not in own}}


def end(message: str, code: int) -> NoReturn:
    """Says why a command ends here, on standard error."""
    complain(message)
    sys.exit(code)


#: The name of a connector; shells complete it.
name_argument = click.argument("name", shell_complete=_complete_name)
#: A file to read, or - for standard input.
file_argument = partial(click.argument, "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
