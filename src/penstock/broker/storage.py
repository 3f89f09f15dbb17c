"""The files of a KRaft node: its properties, its log configuration and the formatted storage.

Main functions: `node_properties` (pure), `write_configuration`, `format_storage`, `stored_cluster_id`.

Thread: the one that starts the broker.
"""

import base64
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

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
rootLogger.level = {level}
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


def with_listeners(
    properties: Mapping[str, str], host: str, ports: Mapping[str, int], listeners: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Adds listeners to the properties of a node.

    Args:
        properties: the properties without these listeners.
        host: the host of the new listeners.
        ports: the port of each, by its name.
        listeners: the settings of each, by its name; with `security.protocol` unless the name is a protocol.

    >>> base = {"listeners": "A://h:1", "advertised.listeners": "A://h:1", "listener.security.protocol.map": "A:SSL"}
    >>> found = with_listeners(base, "h", {"SSL": 2}, {"SSL": {"ssl.client.auth": "required"}})
    >>> found["listeners"], found["listener.security.protocol.map"], found["listener.name.ssl.ssl.client.auth"]
    ('A://h:1,SSL://h:2', 'A:SSL,SSL:SSL', 'required')
    """
    found = dict(properties)
    for name, settings in listeners.items():
        place = f",{name}://{host}:{ports[name]}"
        found["listeners"] += place
        found["advertised.listeners"] += place
        found["listener.security.protocol.map"] += f",{name}:{settings.get('security.protocol', name)}"
        for key, text in settings.items():
            if key != "security.protocol":
                found[f"listener.name.{name.lower()}.{key}"] = text
    return found


def write_configuration(data_dir: Path, properties: Mapping[str, str], log_level: str) -> Path:
    """Write the node's properties and log configuration; returns the path of the properties.

    Raises:
        BrokerException: the directory cannot be made or written to.
    """
    lines = [f"{key}={_escape(value)}\n" for key, value in properties.items()]
    path = data_dir / SERVER_PROPERTIES
    try:
        data_dir.mkdir(0o700, parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
        (data_dir / _LOGGING_PROPERTIES).write_text(
            _LOGGING.format(path=_escape(str(data_dir / SERVER_LOG)), level=log_level), encoding="utf-8"
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

    Returns:
        The id of the cluster.

    Raises:
        BrokerException: the tool failed; its output is in the message.
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
