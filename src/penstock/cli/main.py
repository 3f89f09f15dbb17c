"""The command `penstock`, with `penstock spark pack`: all commands except the two that run workers.

Main object: the click group `main`. Thread: the main thread of the command.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final

import click

from penstock import __version__
from penstock.cli.session import (
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    ApiClient,
    ApiError,
    Unreachable,
    complain,
    say,
    show_json,
    table,
)
from penstock.errors import ConfigException, ConnectException

#: Commands in separate modules, imported when they are called, because some need Kafka clients.
_IN_MODULES: Final = {
    **{name: f"penstock.cli.{name}" for name in ("cluster", "connectors", "quickstart")},
    **dict.fromkeys(("broker", "postgresql"), "penstock.cli.servers"),
}


class _Commands(click.Group):
    """The commands of this module and of separate modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_IN_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _IN_MODULES:
            found: click.Command = getattr(importlib.import_module(_IN_MODULES[cmd_name]), cmd_name)
            return found
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Kafka Connect in Python, on Apache Spark."""


@main.command()
@click.option("--plugin-path", default="", help="Directories of further plugins, separated by commas.")
@click.option("--type", "kind", default=None, help="Only one type: source, sink, converter, transformation, ...")
@click.option("--url", default=None, help="Ask this worker instead of looking on this machine.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form.")
def plugins(plugin_path: str, kind: str | None, url: str | None, output: str) -> None:
    """List the plugins that a worker would find here, or that a running worker has."""
    from penstock.plugins import PluginKind, Plugins

    kinds = [entry.value for entry in PluginKind]
    if kind is not None and kind not in kinds:
        raise click.BadParameter(f"{kind!r} is not one of {', '.join(kinds)}", param_hint="--type")
    if url is not None:
        found = _remote_plugins(url, kind)
    else:
        wanted = None if kind is None else [PluginKind(kind)]
        there = Plugins.discover([path for path in plugin_path.split(",") if path]).descriptors(wanted)
        found = [
            {"class": one.name, "type": one.kind.value, "version": one.version, "origin": one.origin} for one in there
        ]
    if output == "json":
        show_json(found)
        return
    rows = [[one["type"], one["class"], one.get("version"), one.get("origin")] for one in found]
    table(["TYPE", "CLASS", "VERSION", "FROM"], rows, "There are no plugins.")


@main.command("archive-spark")
def archive_spark_classes() -> None:
    """Archive Spark's classes, so that workers on this machine start in half the time.

    Takes about a minute and 150 MB of the cache directory. Repeat this after an update of Java or PySpark.
    """
    from penstock.broker.jars import ArchiveFailedException
    from penstock.pipeline.spark.jvm import archive_spark

    try:
        click.echo(archive_spark())
    except ArchiveFailedException as error:
        complain(str(error))
        sys.exit(EXIT_REFUSED)


def _remote_plugins(url: str, kind: str | None) -> list[dict[str, str | None]]:
    try:
        found = ApiClient(url).call("GET", ["connector-plugins"], query={"connectorsOnly": "false"})
    except ApiError as error:
        complain(str(error))
        sys.exit(EXIT_REFUSED)
    except Unreachable as error:
        complain(str(error))
        sys.exit(EXIT_UNREACHABLE)
    except ConfigException as error:
        raise click.UsageError(str(error)) from error
    return [one for one in found if kind in (None, one["type"])]


@main.group()
def spark() -> None:
    """Commands for the executors of a Spark cluster."""


@spark.command()
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--add",
    "more",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A module, or a folder of modules, of your own: transforms and converters. May be given several times.",
)
def pack(archive: Path, more: tuple[Path, ...]) -> None:
    """Make ARCHIVE (.tar.gz) of Penstock and its dependencies, for `spark.archives` of a worker.

    For executors that have Spark, and the Python and platform of this machine, but not Penstock.
    """
    from penstock.worker.bulk.shipping import ARCHIVE
    from penstock.worker.bulk.shipping import pack as make

    try:
        names = make(archive, more)
    except ConnectException as error:
        complain(str(error))
        sys.exit(EXIT_REFUSED)
    say(f"Made {archive} ({archive.stat().st_size / 1e6:.0f} MB) of {', '.join(names)}")
    say(f"In the worker's file: spark.archives={archive.resolve()}#{ARCHIVE}")
    say(f"And where executors have no PyArrow: spark.executorEnv.PYTHONPATH={ARCHIVE}")


if __name__ == "__main__":
    main()
