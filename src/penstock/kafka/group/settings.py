"""The settings of a member of the workers' group, derived from those of the worker.

Main type: ``GroupSettings``; main function: ``group_settings``. The worker's keys without a prefix apply, as they do to
its admin client; names, rules and key stores are those of ``penstock.kafka.settings.client``.

Thread: any; apart from reading key stores, everything is pure.

Source: org.apache.kafka.connect.runtime.distributed.DistributedConfig, WorkerGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import ConfigException
from penstock.kafka.settings.client import admin_settings
from penstock.kafka.settings.security import SaslSettings, TlsSettings
from penstock.kafka.settings.values import RdValue, items, java_number

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
_SETUP_MAX: Final = "socket.connection.setup.timeout.max.ms"
_NEVER_MS: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The network settings for connections to brokers.

    Attributes:
        send_buffer_bytes, receive_buffer_bytes: The socket buffers; 0 for the system's default.
        rebootstrap: True to start again from ``bootstrap_servers`` when no known broker responds.
    """

    bootstrap_servers: tuple[str, ...]
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connection_setup_ms: int
    connection_setup_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    client_dns_lookup: str
    rebootstrap: bool


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The settings of a member.

    Attributes:
        rebalance_timeout_ms: The time in which members must join a round, and the owner must show that it is alive.
        tls: The encryption of connections; None without encryption.
        sasl: The login; None without login.
    """

    group_id: str
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    network: NetworkSettings = field(repr=False)
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


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
    setup_max_ms = _milliseconds(worker, _SETUP_MAX, 30_000, faults)
    if faults:
        raise _joined(faults)
    return GroupSettings(
        group_id=group_id,
        client_id=own_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        heartbeat_interval_ms=heartbeat_ms,
        network=_network(admin.librdkafka, setup_max_ms),
        tls=admin.tls,
        sasl=admin.sasl,
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


def _network(given: Mapping[str, RdValue], setup_max_ms: int) -> NetworkSettings:
    """The values that were checked and converted for an admin client, under its names."""

    def number(name: str, default: int = 0) -> int:
        return int(given.get(name, default))

    setup_ms = number("socket.connection.setup.timeout.ms")
    return NetworkSettings(
        bootstrap_servers=tuple(items(str(given.get("bootstrap.servers", "")))),
        request_timeout_ms=number("socket.timeout.ms"),
        retry_backoff_ms=number("retry.backoff.ms"),
        retry_backoff_max_ms=number("retry.backoff.max.ms"),
        reconnect_backoff_ms=number("reconnect.backoff.ms"),
        reconnect_backoff_max_ms=number("reconnect.backoff.max.ms"),
        connection_setup_ms=setup_ms,
        connection_setup_max_ms=max(setup_max_ms, setup_ms),
        connections_max_idle_ms=number("connections.max.idle.ms") or _NEVER_MS,
        metadata_max_age_ms=number("topic.metadata.refresh.interval.ms"),
        send_buffer_bytes=number("socket.send.buffer.bytes"),
        receive_buffer_bytes=number("socket.receive.buffer.bytes"),
        client_dns_lookup=str(given.get("client.dns.lookup", "use_all_dns_ips")),
        rebootstrap=given.get("metadata.recovery.strategy", "rebootstrap") == "rebootstrap",
    )
