"""The embedded broker: one JVM with one KRaft node, which ends with its owner.

A broker may be started again after ``stop`` or ``kill``, and then keeps its ports and data.

Thread: one owner starts and stops a broker; ``bootstrap_servers`` and ``is_running`` may be read from any thread.
Source: the Kafka protocol guide, Metadata API key 3.
"""

from __future__ import annotations

import atexit
import base64
import os
import secrets
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from penstock.broker.jars import (
    BROKER_COORDINATES,
    JarsNotFoundException,
    find_java,
    free_ports,
    is_free,
    kafka_archive,
    make_archive,
    resolve_jars,
    sharing,
)
from penstock.errors import ConnectException

LOG_DIRECTORY = "log"
SERVER_PROPERTIES = "server.properties"
SERVER_LOG = "server.log"
_LOGGING_PROPERTIES = "log4j2.properties"
_FORMAT_TIMEOUT_S = 120

_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""


class BrokerException(ConnectException):
    """The embedded broker could not be set up, started or stopped; the message holds the end of its log."""


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 16 bytes, URL-safe base64, never with a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def node_properties(
    data_dir: Path, host: str, port: int, controller_port: int, overrides: Mapping[str, str]
) -> dict[str, str]:
    """The server properties of a development node that is broker and controller and uses few resources.

    Args:
        overrides: take precedence over all other properties.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{host}:{controller_port}",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir / LOG_DIRECTORY),
        "auto.create.topics.enable": "true",
        "num.partitions": "1",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # The controller readmits a killed node after its old session; the node serves after a heartbeat.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # An idle node writes nothing: these records, two a second, cost a third of its idle time.
        "metadata.max.idle.interval.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "socket.request.max.bytes": str(100 << 20),
        "message.max.bytes": str(64 << 20),
    }
    properties.update(overrides)
    return properties


def write_configuration(data_dir: Path, properties: Mapping[str, str]) -> Path:
    """Write the node's properties and log configuration; returns the path of the properties."""
    lines = [f"{key}={_escape(value)}\n" for key, value in properties.items()]
    path = data_dir / SERVER_PROPERTIES
    try:
        data_dir.mkdir(0o700, parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
        (data_dir / _LOGGING_PROPERTIES).write_text(
            _LOGGING.format(path=_escape(str(data_dir / SERVER_LOG))), encoding="utf-8"
        )
    except OSError as error:
        raise BrokerException(
            f"The broker's data directory {data_dir} cannot be written to: {error.strerror or error}; choose another"
        ) from error
    return path


def logging_option(data_dir: Path) -> str:
    """The JVM option that makes Kafka log into the data directory."""
    return f"-Dlog4j2.configurationFile={(data_dir / _LOGGING_PROPERTIES).as_uri()}"


def stored_cluster_id(properties: Mapping[str, str]) -> str | None:
    """The cluster that the node's storage belongs to; None when it has none yet."""
    path = Path(properties["log.dirs"].split(",")[0]) / "meta.properties"
    if not path.is_file():
        return None
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, text = line.partition("=")
        if name.strip() == "cluster.id":
            return text.strip()
    raise BrokerException(f"{path} names no cluster; use another data directory")


def format_storage(
    java: Path, class_path: str, configuration: Path, options: Sequence[str], cluster_id: str | None = None
) -> str:
    """Format the storage with Kafka's own tool, so that the cluster has the release's default features.

    Args:
        cluster_id: the id of the node's cluster; None for a new one.
    """
    cluster_id = cluster_id or new_cluster_id()
    command = [
        *(str(java), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options, "-cp", class_path),
        *("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", str(configuration)),
    ]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerException(f"Formatting the broker's storage failed: {error}") from error
    if done.returncode != 0:
        raise BrokerException(
            f"Formatting the broker's storage failed (exit code {done.returncode}):\n{done.stdout}{done.stderr}"
        )
    return cluster_id


def _escape(value: str) -> str:
    """A value as java.util.Properties reads it back."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


# The process id arrives on the first line; the second read ends when the owner is gone or releases the guard.
_SCRIPT = 'read -r pid || exit 0; read -r word || kill -KILL "$pid" 2>/dev/null'


class OwnerGuard:
    """Kills one process when this one disappears, even by SIGKILL: a shell waits on a pipe that only this one holds.

    Linux's own signal at the death of a parent follows the thread that started the child, not the process.
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
    """The first part of a Metadata v2 response."""
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


class EmbeddedBroker:
    """A real single-node Kafka broker for development and tests.

    >>> from pathlib import Path
    >>> broker = EmbeddedBroker(Path("kafka-data"), port=29999)
    >>> broker.bootstrap_servers
    '127.0.0.1:29999'

    Args:
        data_dir: holds log segments, configuration and log of the node; an existing one is continued.
        port: the port for clients; None or 0 for a free one.
        outlive: leave the JVM running when this process ends (for `penstock broker start`); without it the JVM is
            killed with its owner, however the owner ends.
        jvm_options: further options of the JVM. As with Kafka's own scripts, `KAFKA_JVM_PERFORMANCE_OPTS` in the
            environment replaces the built-in options for speed.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        outlive: bool = False,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self._jvm_options = list(jvm_options)
        self._properties = dict(properties or {})
        self._heap = heap
        self._outlive = outlive
        self._port = port or 0
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

    def start(self, timeout_s: float = 120.0) -> Self:
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
        class_path = os.pathsep.join(map(str, resolve_jars(BROKER_COORDINATES)))
        chosen, controller_port = free_ports(2)
        self._port = self._port or chosen
        data_dir = self.data_dir.absolute()
        properties = self._node_properties(controller_port)
        configuration = write_configuration(data_dir, properties)
        shared = sharing(kafka_archive(java))
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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _node_properties(self, controller_port: int) -> dict[str, str]:
        return node_properties(self.data_dir.absolute(), _HOST, self._port, controller_port, self._properties)

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


#: Seconds to start Kafka, or to write some 50 MB, on a busy machine.
_TIME_S = 300.0


def archive_kafka() -> Path:
    """Makes the archive where brokers of this Java look for it, or makes it again."""
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
