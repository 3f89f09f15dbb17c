"""`penstock`: the commands beside the workers'.

Main object: the click group `main`. Thread: the main thread of the command.
"""

from __future__ import annotations

import click

from penstock import __version__
from penstock.cli.broker import broker
from penstock.cli.quickstart import quickstart


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Kafka Connect in Python, on Apache Spark."""


@main.command()
@click.option("--plugin-path", default="", help="Directories of further plugins, separated by commas.")
@click.option("--type", "kind", default=None, help="Only one type: source, sink, converter, transformation, ...")
def plugins(plugin_path: str, kind: str | None) -> None:
    """List the plugins that a worker would find."""
    from penstock.plugins import PluginKind, Plugins

    kinds = [entry.value for entry in PluginKind]
    if kind is not None and kind not in kinds:
        raise click.BadParameter(f"{kind!r} is not one of {', '.join(kinds)}", param_hint="--type")
    wanted = None if kind is None else [PluginKind(kind)]
    for plugin in Plugins.discover([path for path in plugin_path.split(",") if path]).descriptors(wanted):
        click.echo(f"{plugin.kind.value:17} {plugin.name}  {plugin.version or '-'}  ({plugin.origin})")


main.add_command(broker)
main.add_command(quickstart)

if __name__ == "__main__":
    main()
