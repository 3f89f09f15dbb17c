"""The embedded broker: one JVM with one KRaft node, which ends with its owner.

Main types: `EmbeddedBroker`. Its states follow from the process: not started, running, ended; a broker object may be
started again after `stop` or `kill` and then keeps its ports and data. `OwnerGuard` ends a process when its owner ends,
however that happens: a small shell waits on a pipe that only the owner holds open; when the owner is gone, even by
SIGKILL, the pipe ends and the shell kills the guarded process. (Linux's parent-death signal follows the thread that
started the child, not the process, and does not exist on other systems.) Main function: `ask_cluster` checks that a
broker serves, without a Kafka client: one Metadata request (version 2, without topics) over a fresh connection.

Thread: one owner starts and stops a broker; `bootstrap_servers` and `is_running` may be read from any thread. A guard
has one owner; start and release it from one thread at a time.
Source: the Kafka protocol guide, Metadata API key 3.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from penstock.broker.class_archive import kafka_archive, make_archive, sharing
from penstock.broker.jars import BROKER_COORDINATES, JarsNotFoundException, find_java, free_ports, is_free, resolve_jars
from penstock.broker.storage import (
    SERVER_LOG,
    BrokerException,
    format_storage,
    logging_option,
    node_properties,
    stored_cluster_id,
    with_listeners,
    write_configuration,
)

# The process id arrives on the first line; the second read ends when the owner is gone or releases the guard.
_SCRIPT = 'read -r pid || exit 0; read -r word || kill -KILL "$pid" 2>/dev/null'


class OwnerGuard:
    """Kills one process when this one disappears.

    Start the guard before the process to guard, so that the time without a guard is as short as can be.
    """

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=os.sep,
        )

    def watch(self, pid: int) -> None:
        """Kill `pid` when this process ends without `release`."""
        self._write(f"{pid}\n")

    def release(self) -> None:
        """Stop guarding: the guarded process has ended, or may outlive this one."""
        self._write("released\n")
        if self._shell.stdin is not None:
            try:
                self._shell.stdin.close()
            except BrokenPipeError:
                pass
        self._shell.wait(timeout=10)

    def _write(self, text: str) -> None:
        if self._shell.stdin is None or self._shell.stdin.closed:
            return
        try:
            self._shell.stdin.write(text.encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass


_METADATA = 3
_VERSION = 2
_CORRELATION = 7
_CLIENT_ID = b"penstock-probe"


class BrokerAddress(NamedTuple):
    """A broker as the cluster advertises it."""

    node_id: int
    host: str
    port: int


class BrokerView(NamedTuple):
    """A broker's view of its cluster; no brokers while the node is still being registered."""

    cluster_id: str | None
    brokers: tuple[BrokerAddress, ...]


def ask_cluster(host: str, port: int, timeout_s: float) -> BrokerView:
    """The cluster of the broker at this address, with the brokers that are alive.

    Raises:
        OSError: nothing listens there, or the peer closed the connection or was silent for too long.
        ValueError: the answer is not Kafka's.
    """
    body = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT_ID)) + _CLIENT_ID + struct.pack(">i", 0)
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        if not 8 <= size <= 1 << 20:
            raise ValueError(f"the peer at {host}:{port} does not speak Kafka's protocol")
        return parse_metadata(_read(connection, size))


def parse_metadata(response: bytes) -> BrokerView:
    """The first part of a Metadata v2 response.

    Raises:
        ValueError: the bytes are not a Metadata response.
    """
    try:
        correlation, count = struct.unpack_from(">ii", response, 0)
        if correlation != _CORRELATION:
            raise ValueError(f"the answer belongs to request {correlation}, not {_CORRELATION}")
        position = 8
        brokers = []
        for _ in range(count):
            node_id, length = struct.unpack_from(">ih", response, position)
            position += 6
            host = response[position : position + length].decode()
            position += length
            (port, rack_length) = struct.unpack_from(">ih", response, position)
            position += 6 + max(rack_length, 0)
            brokers.append(BrokerAddress(node_id, host, port))
        (length,) = struct.unpack_from(">h", response, position)
        cluster_id = response[position + 2 : position + 2 + length].decode() if length >= 0 else None
        return BrokerView(cluster_id, tuple(brokers))
    except struct.error as error:
        raise ValueError("the metadata answer ends too early") from error


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = connection.recv(size)
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


__all__ = ["BrokerException", "EmbeddedBroker"]

_HOST = "127.0.0.1"
_OUTPUT = "server.out"
_PERFORMANCE = "KAFKA_JVM_PERFORMANCE_OPTS"
_POLL_S = 0.05
_STILL_CHECKS = 500


class EmbeddedBroker:
    """A real single-node Kafka broker for development and tests.

    >>> from pathlib import Path
    >>> broker = EmbeddedBroker(Path("kafka-data"), port=29999)
    >>> broker.bootstrap_servers
    '127.0.0.1:29999'

    Args:
        data_dir: holds log segments, configuration and log of the node; an existing one is continued.
        port: the port for clients; None or 0 for a free one.
        properties: server properties that win over the built-in ones.
        cache: the jar cache (see `penstock.broker.jars.cache_directory`).
        heap: the JVM's largest heap.
        outlive: leave the JVM running when this process ends (for `penstock broker start`); without it the JVM is
            killed with its owner, however the owner ends.
        log_level: the level of the server's log file.
        listeners: further ones by name, each with its settings: `security.protocol` (by default the name) and the
            settings that Kafka reads below `listener.name.<name>.`; see `bootstrap_of`.
        jvm_options: further options of the JVM. As with Kafka's own scripts, `KAFKA_JVM_PERFORMANCE_OPTS` in the
            environment replaces the built-in options for speed.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        cache: Path | None = None,
        heap: str = "512m",
        outlive: bool = False,
        log_level: str = "INFO",
        listeners: Mapping[str, Mapping[str, str]] | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self._jvm_options = list(jvm_options)
        self._properties = dict(properties or {})
        self._cache = cache
        self._heap = heap
        self._outlive = outlive
        self._log_level = log_level
        self._port = port or 0
        self._listeners = dict(listeners or {})
        self._ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: OwnerGuard | None = None

    @property
    def port(self) -> int:
        """The port for clients; 0 before the first start when none was chosen."""
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients."""
        return f"{_HOST}:{self._port}"

    def bootstrap_of(self, listener: str) -> str:
        """Returns the `bootstrap.servers` of clients for one of the further listeners, once the broker has started."""
        return f"{_HOST}:{self._ports[listener]}"

    @property
    def pid(self) -> int | None:
        """The process id of the JVM while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def is_running(self) -> bool:
        """True if the JVM runs (not that it serves already)."""
        return self.pid is not None

    def leave_running(self) -> int:
        """Release the broker, which may then outlive this process; returns the JVM's process id."""
        assert self._process is not None
        pid = self._process.pid
        # Python warns of a process object that is dropped while its process runs; this one is meant to keep running.
        atexit.register(self._process.poll)
        self._process = None
        return pid

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.data_dir / SERVER_LOG

    def start(self, timeout_s: float = 120.0) -> EmbeddedBroker:
        """Start the JVM and wait until the broker answers a Metadata request with itself in it.

        The jars are fetched first when the cache lacks them; that time is not part of the timeout.

        Raises:
            BrokerException: it ended or did not serve in time; the end of its log is in the message.
            JavaNotFoundException: no suitable Java.
            JarsNotFoundException: the jars could not be fetched.
        """
        if self.is_running:
            return self
        java = find_java()
        class_path = os.pathsep.join(map(str, resolve_jars(BROKER_COORDINATES, self._cache)))
        chosen, controller_port, *others = free_ports(2 + len(self._listeners))
        self._port = self._port or chosen
        self._ports = self._ports or dict(zip(self._listeners, others, strict=True))
        data_dir = self.data_dir.absolute()
        properties = node_properties(data_dir, _HOST, self._port, controller_port, self._properties)
        properties = with_listeners(properties, _HOST, self._ports, self._listeners)
        configuration = write_configuration(data_dir, properties, self._log_level)
        shared = sharing(kafka_archive(java, self._cache))
        cluster_id = stored_cluster_id(properties)
        if cluster_id is None:
            cluster_id = format_storage(java, class_path, configuration, shared)
        if not is_free(self._port, _HOST):
            raise BrokerException(f"The broker cannot listen on {self.bootstrap_servers}: the port is in use")
        self._launch(java, [*shared, *self._jvm_options], class_path, configuration)
        try:
            self._await_serving(cluster_id, timeout_s)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = 30.0) -> None:
        """Shut the broker down in order; kill it when that takes longer than the timeout."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._release()

    def kill(self) -> None:
        """End the JVM at once, as a crash would. Data that the operating system has received is kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._release()

    def freeze(self) -> None:
        """Suspend the JVM, as a long pause would, and wait until it is suspended; see `thaw`."""
        self._signal(signal.SIGSTOP)
        pause = threading.Event()
        for _ in range(_STILL_CHECKS):
            if self._process is None or _stands_still(self._process.pid):
                return
            pause.wait(0.01)

    def thaw(self) -> None:
        """Let a frozen broker continue."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, java: Path, options: Sequence[str], class_path: str, configuration: Path) -> None:
        command = [
            *(str(java), f"-Xmx{self._heap}", "-Xms64m", "-XX:+ExitOnOutOfMemoryError"),
            *os.environ.get(_PERFORMANCE, "-XX:+UseSerialGC").split(),
            *options,
            *("-Djava.awt.headless=true", logging_option(self.data_dir.absolute())),
            *("-cp", class_path, "kafka.Kafka", str(configuration)),
        ]
        self._guard = None if self._outlive else OwnerGuard()
        with (self.data_dir / _OUTPUT).open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.data_dir,
            )
        if self._guard is not None:
            self._guard.watch(self._process.pid)

    def _await_serving(self, cluster_id: str, timeout_s: float) -> None:
        assert self._process is not None
        await_serving(_HOST, self._port, cluster_id, timeout_s, self._process.poll, self.log_tail)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the server's output and log."""
        found: list[str] = []
        for path in (self.data_dir / _OUTPUT, self.log_file):
            if path.is_file():
                found += path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return "\n".join(found[-2 * lines :])

    def _release(self) -> None:
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def await_serving(
    host: str,
    port: int,
    cluster_id: str,
    timeout_s: float,
    exit_code: Callable[[], int | None],
    log_tail: Callable[[], str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until the broker at this address names itself in its metadata.

    Args:
        cluster_id: distinguishes the broker from any other that uses its port.
        exit_code: returns the exit code of its process, None while it runs.
        log_tail: returns the end of the log, for the error message.

    Raises:
        BrokerException: the process ended, or the timeout expired.
    """
    deadline = clock() + timeout_s
    pause = threading.Event()
    reason = "no answer yet"
    while True:
        if (code := exit_code()) is not None:
            raise BrokerException(f"The broker on {host}:{port} ended with exit code {code}:\n{log_tail()}")
        try:
            view = ask_cluster(host, port, 2.0)
            if view.cluster_id == cluster_id and any(broker.port == port for broker in view.brokers):
                return
            reason = "it is not registered yet" if view.cluster_id == cluster_id else "another cluster answers there"
        except (OSError, ValueError) as error:
            reason = str(error)
        if clock() >= deadline:
            raise BrokerException(
                f"The broker on {host}:{port} does not serve after {timeout_s:g} s ({reason}):\n{log_tail()}"
            )
        pause.wait(_POLL_S)


def _stands_still(pid: int) -> bool:
    """True if no thread of a process runs any more; a signal to stop reaches them one after the other."""
    try:
        states = [
            stat.read_text().rpartition(")")[2].split()[0] for stat in Path("/proc", str(pid), "task").glob("*/stat")
        ]
    except OSError:
        return False
    return all(state in "TtZX" for state in states)


#: Seconds to start Kafka, or to write some 50 MB, on a busy machine.
_TIME_S = 300.0


def archive_kafka() -> Path:
    """Makes the archive where brokers of this Java look for it, or makes it again.

    Raises:
        ArchiveFailedException: The broker does not start, or the file cannot be written.
        JavaNotFoundException: no suitable Java.
    """
    target = kafka_archive(find_java())

    def record(made: Path) -> str:
        broker = EmbeddedBroker(made.parent / "kafka", jvm_options=[f"-XX:ArchiveClassesAtExit={made}"])
        # A JVM that uses an older archive cannot make another one.
        target.unlink(missing_ok=True)
        try:
            broker.start(_TIME_S)
        except (BrokerException, JarsNotFoundException) as error:
            return str(error)
        broker.stop(_TIME_S)
        return broker.log_tail()

    return make_archive(target, record)
