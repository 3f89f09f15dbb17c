"""`penstock`: the commands beside the workers'.

Main object: the click group `main`. Thread: the main thread of the command.
"""

from __future__ import annotations

import sys

import click

from penstock import __version__
from penstock.cli.api_client import ApiClient, ApiError, Unreachable
from penstock.cli.broker import broker
from penstock.cli.cluster import cluster
from penstock.cli.connectors import connectors
from penstock.cli.output import complain, show_json, table
from penstock.cli.postgresql import postgresql
from penstock.cli.quickstart import quickstart
from penstock.cli.session import EXIT_REFUSED, EXIT_UNREACHABLE
from penstock.cli.spark import spark
from penstock.errors import ConfigException


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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
    """Archive Spark's classes: workers on this machine start in half the time from then on.

    Takes about a minute and 150 MB of the cache directory. To be done again after an update of Java or PySpark.
    """
    from penstock.broker.class_archive import ArchiveFailedException
    from penstock.pipeline.spark.class_archive import archive_spark

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


main.add_command(connectors)
main.add_command(cluster)
main.add_command(broker)
main.add_command(postgresql)
main.add_command(quickstart)
main.add_command(spark)

if __name__ == "__main__":
    main()
