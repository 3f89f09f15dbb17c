"""The settings of a member of the workers' group: the worker's keys without a prefix, as for its admin client.

Source: org.apache.kafka.connect.runtime.distributed.DistributedConfig, WorkerGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import ConfigException
from penstock.kafka.settings.client import admin_settings
from penstock.kafka.settings.producer import ColumnSettings, own_connections
from penstock.kafka.settings.values import items, java_number

#: The defaults of a distributed worker that differ from those of Kafka's admin client.
_DEFAULTS: Final[Mapping[str, str]] = {
    "connections.max.idle.ms": "540000",
    "metadata.max.age.ms": "300000",
    "receive.buffer.bytes": "32768",
    "reconnect.backoff.max.ms": "1000",
    "reconnect.backoff.ms": "50",
    "request.timeout.ms": "40000",
    "retry.backoff.max.ms": "1000",
    "retry.backoff.ms": "100",
    "send.buffer.bytes": "131072",
    "socket.connection.setup.timeout.ms": "10000",
}
_GROUP_DEFAULTS: Final = {"session.timeout.ms": 10_000, "rebalance.timeout.ms": 60_000, "heartbeat.interval.ms": 3_000}


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The settings of a member.

    Attributes:
        rebalance_timeout_ms: The time in which members must join a round, and the owner must show that it is alive.
        connect_most_s: The timeout of a connection attempt after failures.
        network: The brokers, the connections to them, and the login.
    """

    group_id: str
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    connect_most_s: float
    network: ColumnSettings = field(repr=False)


def group_settings(worker: Mapping[str, str], *, client_id: str) -> GroupSettings:
    """The settings of a member of the worker's group."""
    own_id = worker.get("client.id", "").strip() or client_id
    admin = admin_settings({**_DEFAULTS, **worker, "client.id": own_id}, client_id=own_id)
    faults = [ConfigException(fault.name, fault.value, fault.reason) for fault in admin.refused]
    if not (group_id := worker.get("group.id", "").strip()):
        faults.append(ConfigException("group.id", worker.get("group.id", ""), "Workers that share it share the work"))
    times = {name: _milliseconds(worker, name, default, faults) for name, default in _GROUP_DEFAULTS.items()}
    session_ms, rebalance_ms, heartbeat_ms = times.values()
    if heartbeat_ms >= session_ms:
        faults.append(
            ConfigException(
                "heartbeat.interval.ms",
                heartbeat_ms,
                f"It must be below session.timeout.ms, which is {session_ms}; a third of it is usual",
            )
        )
    if not items(worker.get("bootstrap.servers", "")):
        faults.append(
            ConfigException("bootstrap.servers", worker.get("bootstrap.servers", ""), "Name a broker, as host:port")
        )
    connect_most_ms = _milliseconds(worker, "socket.connection.setup.timeout.max.ms", 30_000, faults)
    if faults:
        raise _joined(faults)
    network = own_connections(admin)
    return GroupSettings(
        group_id=group_id,
        client_id=own_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        heartbeat_interval_ms=heartbeat_ms,
        connect_most_s=max(connect_most_ms / 1000, network.connect_timeout),
        network=network,
    )


def _milliseconds(worker: Mapping[str, str], name: str, default: int, faults: list[ConfigException]) -> int:
    text = worker.get(name, str(default))
    try:
        number = java_number(text)
        if number < 1:
            raise ValueError("Value must be at least 1")
    except ValueError as error:
        faults.append(ConfigException(name, text, str(error)))
        return default
    return number


def _joined(faults: list[ConfigException]) -> ConfigException:
    if len(faults) == 1:
        return faults[0]
    lines = "".join(f"\n  {fault}" for fault in faults)
    return ConfigException(f"{len(faults)} settings of the worker's group cannot be used:{lines}")
