"""The settings of the worker's Kafka clients: from Java's names and rules of precedence to the arguments of a client.

Later ones win: Java's defaults, the worker's defaults, ``producer.`` / ``consumer.`` / ``admin.`` keys of the worker's
file, ``*.override.`` keys of the connector. The override policy and the settings forbidden for connectors are checked
before a value is used: rejected settings are left out, with their reasons. No client is created here. Every client logs
to ``CLIENT_LOG``, which filters its lines, so that no client writes to standard error.

Source: org.apache.kafka.connect.runtime.Worker (baseProducerConfigs, baseConsumerConfigs, adminConfigs).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from penstock.config.parse import HIDDEN
from penstock.errors import ConfigException
from penstock.kafka.settings import values as value
from penstock.kafka.settings.librdkafka import fault_of, property_for
from penstock.kafka.settings.security import (
    LeftOut,
    SaslSettings,
    TlsSettings,
    TranslatedFamily,
    librdkafka_sasl,
    librdkafka_tls,
    sasl,
    tls,
)
from penstock.kafka.settings.table import (
    ClientKind,
    OverridePolicy,
    Setting,
    Treatment,
    is_client_secret,
    java_name_of,
    overrides_of,
    policy_of,
    setting_for,
    setting_names,
)
from penstock.kafka.settings.values import COMPRESSIONS, Compression, RdValue, items, java_number

_MAX_INT = str(2**31 - 1)

# Java's defaults, where a client has other defaults. The producer's `batch.size` is an exception: a million bytes make
# one task fast, and a user's own value still takes precedence.
_JAVA_DEFAULTS: Mapping[ClientKind, Mapping[str, str]] = {
    ClientKind.PRODUCER: {
        "buffer.memory": str(32 << 20),
        "connections.max.idle.ms": "540000",
        "max.request.size": str(1 << 20),
        "partitioner.class": "",
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "request.timeout.ms": "30000",
        "socket.connection.setup.timeout.ms": "10000",
    },
    ClientKind.CONSUMER: {
        "allow.auto.create.topics": "true",
        "check.crcs": "true",
        "connections.max.idle.ms": "540000",
        "isolation.level": "read_uncommitted",
        "partition.assignment.strategy": "RangeAssignor",
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "request.timeout.ms": "30000",
        "socket.connection.setup.timeout.ms": "10000",
    },
    ClientKind.ADMIN: {
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "request.timeout.ms": "30000",
        "socket.connection.setup.timeout.ms": "10000",
    },
}

# For the sake of old brokers, Java Connect sends one request at a time without idempotence: a retry may store records
# twice. With idempotence the broker drops duplicates, and keeps the order of up to five requests. Invariant 3.
_WORKER_PRODUCER = {
    "enable.idempotence": "true",
    "acks": "all",
    "max.in.flight.requests.per.connection": "5",
    "delivery.timeout.ms": _MAX_INT,
}
_INSTANCE = "group.instance.id"
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9._-]")
_LONGEST_NAME = 160
_WORKER_CONSUMER = {"auto.offset.reset": "earliest"}

# With Java's five minutes, a new topic that matches `topics.regex` would wait that long for its first reader.
_LOOK_FOR_TOPICS_MS = 10_000


@dataclass(frozen=True)
class ClientSettings:
    """The settings of one client.

    Attributes:
        own: the converted values of a producer, by Java's names.
        tls: the encryption of connections; None without encryption.
        sasl: the login; None without login.
    """

    kind: ClientKind
    java: Mapping[str, str] = field(repr=False)
    librdkafka: Mapping[str, RdValue] = field(repr=False)
    own: Mapping[str, RdValue] = field(default_factory=dict, repr=False)
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    compression: Compression | None = None
    unused: tuple[LeftOut, ...] = ()
    refused: tuple[LeftOut, ...] = ()

    @property
    def client_id(self) -> str:
        return str({**self.librdkafka, **self.own}.get("client.id", "penstock"))

    @property
    def refresh_s(self) -> float:
        """The seconds between checks for new topics of a sink's pattern: `metadata.max.age.ms` or a shorter default."""
        return int(self.librdkafka.get("topic.metadata.refresh.interval.ms", _LOOK_FOR_TOPICS_MS)) / 1000

    @property
    def max_poll_interval_s(self) -> float:
        """The number of seconds that a consumer may stay away from its group (`max.poll.interval.ms`)."""
        return int(self.librdkafka.get("max.poll.interval.ms", 300_000)) / 1000

    @property
    def api_timeout_s(self) -> float:
        """The number of seconds that one call may take (`default.api.timeout.ms`)."""
        try:
            return java_number(self.java.get("default.api.timeout.ms", "60000")) / 1000
        except ValueError:
            return 60.0

    def checked(self) -> ClientSettings:
        """These settings, if nothing in them is refused."""
        match self.refused:
            case ():
                return self
            case (only,):
                raise ConfigException(only.name, only.value, only.reason)
            case several:
                faults = "".join(f"\n  {fault.name} = {fault.value}: {fault.reason}" for fault in several)
                raise ConfigException(
                    f"{len(several)} settings of the {self.kind.value} {self.client_id} cannot be used:{faults}"
                )

    def log_unused(self, logger: logging.Logger) -> None:
        for left_out in self.unused:
            logger.warning(
                "The %s %s does not use %s = %s: %s",
                self.kind.value,
                self.client_id,
                left_out.name,
                left_out.value,
                left_out.reason,
            )


def source_producer_id(connector: str, task: int) -> str:
    """The client id of a source task's producer."""
    return f"connector-producer-{connector}-{task}"


def task_transactional_id(group_id: str, connector: str, task: int) -> str:
    """The transactional id of a source task's producer, with exactly-once.

    >>> task_transactional_id("connect", "orders", 2)
    'connect-orders-2'
    """
    return f"{group_id}-{connector}-{task}"


def sink_consumer_id(connector: str, task: int) -> str:
    """The client id of a sink task's consumer."""
    return f"connector-consumer-{connector}-{task}"


def sink_instance_id(worker: str, connector: str, task: int) -> str:
    """The `group.instance.id` of a sink task's consumer; no two tasks of any workers have the same.

    Kafka allows 249 letters, digits, dots, underscores and hyphens: other names are replaced and get a digest.

    >>> sink_instance_id("00f1", "orders", 2)
    'penstock-00f1-orders-2'
    >>> sink_instance_id("00f1", "my orders", 2)
    'penstock-00f1-my_orders-8482a26d-2'
    """
    plain = _NOT_IN_IDS.sub("_", connector)[:_LONGEST_NAME]
    if plain != connector:
        plain = f"{plain}-{hashlib.sha256(connector.encode()).hexdigest()[:8]}"
    return f"penstock-{worker}-{plain}-{task}"


def dead_letter_producer_id(connector: str, task: int) -> str:
    """The client id of the producer of a sink task's dead letter records."""
    return f"connector-dlq-producer-{connector}-{task}"


def dead_letter_admin_id(connector: str, task: int) -> str:
    """The client id of the admin client that creates the dead letter topic."""
    return f"connector-dlq-adminclient-{connector}-{task}"


def admin_client_id(connector: str, task: int | None = None) -> str:
    """The client id of the admin client of a source task, or of its connector."""
    return f"connector-adminclient-{connector}" + ("" if task is None else f"-{task}")


def producer_settings(
    worker: Mapping[str, str],
    connector: Mapping[str, str],
    *,
    client_id: str,
    transactional_id: str | None = None,
    forced: Mapping[str, str] = MappingProxyType({}),
) -> ClientSettings:
    """The settings of a producer of a source task or of dead letter records."""
    own, kept = _own(worker, connector, ClientKind.PRODUCER)
    own |= forced
    java = {**_bootstrap(worker), "client.id": client_id, **_WORKER_PRODUCER}
    if transactional_id is not None:
        always = {"enable.idempotence": "true", "transactional.id": transactional_id}
        return _refusing(translate(ClientKind.PRODUCER, java | own | always), kept)
    if not _may_be_idempotent(own):
        # As in Java, an explicit setting of the user overrides idempotence; without it only one request in flight keeps
        # the order.
        java |= {"enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}
    return _without_transactions(_refusing(translate(ClientKind.PRODUCER, java | own), kept))


def _without_transactions(given: ClientSettings) -> ClientSettings:
    """Rejects a user's own transactional id: its producer would wait for transactions that are never begun."""
    text = given.java.get("transactional.id", "").strip()
    if not text:
        return given
    reason = "the worker gives transactional ids itself, with exactly.once.source.support=enabled; remove the setting"
    return replace(given, refused=(*given.refused, LeftOut("transactional.id", text, reason)))


def consumer_settings(
    worker: Mapping[str, str],
    connector: Mapping[str, str],
    *,
    client_id: str,
    group_id: str,
    instance_id: str | None = None,
    instance_suffix: str = "",
    forced: Mapping[str, str] = MappingProxyType({}),
) -> ClientSettings:
    """The settings of the consumer of a sink task.

    Args:
        instance_id: the default of `group.instance.id`, see `sink_instance_id`; None for a dynamic member.
    """
    static = {} if instance_id is None else {_INSTANCE: instance_id}
    java = {**_bootstrap(worker), "client.id": client_id, "group.id": group_id, **static, **_WORKER_CONSUMER}
    own, kept = _own(worker, connector, ClientKind.CONSUMER)
    own |= forced
    if own.get(_INSTANCE):
        own[_INSTANCE] += instance_suffix
    return _refusing(translate(ClientKind.CONSUMER, java | own), kept)


def admin_settings(
    worker: Mapping[str, str], connector: Mapping[str, str] | None = None, *, client_id: str
) -> ClientSettings:
    """The settings of an admin client of a connector or task, or of the worker itself if `connector` is None.

    The worker's keys without a prefix apply too; the worker's own settings are not for clients and are dropped.
    Unused settings cause no warning, because they are meant for the worker.
    """
    names = setting_names(ClientKind.ADMIN)
    plain = {name: text for name, text in worker.items() if name in names}
    own, kept = ({}, ()) if connector is None else _own(worker, connector, ClientKind.ADMIN)
    given = translate(ClientKind.ADMIN, {**_bootstrap(worker), "client.id": client_id, **plain, **own})
    unused = tuple(left for left in given.unused if left.name in own or left.name not in plain)
    return _refusing(replace(given, unused=unused), kept)


def refused_overrides(
    kind: ClientKind, worker: Mapping[str, str], connector: Mapping[str, str], policy: OverridePolicy
) -> tuple[LeftOut, ...]:
    """The overrides of a connector that conflict with the worker's settings, with the reasons.

    Names come without their prefix. Settings that the policy refuses are neither checked nor reported.
    """
    before = refused_for_all(kind, worker)
    allowed, _ = overrides_of(kind, connector, policy)
    return tuple(fault for fault in _refused(kind, worker, allowed) if fault.name in allowed or fault not in before)


def refused_for_all(kind: ClientKind, worker: Mapping[str, str]) -> tuple[LeftOut, ...]:
    """Returns the worker's settings for connectors' clients with which no such client can be created, with the
    reasons.
    """
    return _refused(kind, worker, {})


def _refused(kind: ClientKind, worker: Mapping[str, str], overridden: Mapping[str, str]) -> tuple[LeftOut, ...]:
    names = setting_names(kind) if kind is ClientKind.ADMIN else frozenset[str]()
    plain = {name: text for name, text in worker.items() if name in names}
    java = {**_bootstrap(worker), **plain, **_with_prefix(worker, f"{kind.value}."), **overridden}
    found = translate(kind, java)
    return (_without_transactions(found) if kind is ClientKind.PRODUCER else found).refused


def translate(kind: ClientKind, java: Mapping[str, str]) -> ClientSettings:
    """Translates Java client settings to the settings of the client in use.

    Args:
        java: by Java name; settings that only librdkafka has are passed unchanged to consumers and admin clients.
    """
    everything = {**_JAVA_DEFAULTS[kind], **java}
    result: dict[str, RdValue] = {}
    unused: list[LeftOut] = []
    refused: list[LeftOut] = []
    others: dict[str, str] = {}
    for name, text in everything.items():
        row = setting_for(kind, name)
        if row is None:
            others[name] = text
        elif row.treatment is Treatment.NOT_NEEDED:
            unused.append(_left_out(name, text, row.reason))
        elif row.treatment is Treatment.REFUSED:
            if text.strip().lower() not in row.harmless:
                refused.append(_left_out(name, text, row.reason))
        elif row.family is None and (text.strip() or name == "partitioner.class"):
            _convert(kind, row, text, result, refused)
    encryption, login = tls(everything), sasl(everything)
    squeezing = compression(everything) if kind is ClientKind.PRODUCER else TranslatedFamily[Compression]()
    for part in (squeezing, encryption, login):
        refused += [_left_out(name, everything.get(name, "null"), why) for name, why in part.faults.items()]
        unused += [_left_out(name, everything[name], why) for name, why in part.unused.items()]
    if kind is not ClientKind.PRODUCER:
        result |= {} if encryption.value is None else librdkafka_tls(encryption.value)
        result |= {} if login.value is None else librdkafka_sasl(login.value)
        fit_together(result)
    if kind is ClientKind.PRODUCER:
        adjust_producer(everything, result, refused)
    elif kind is ClientKind.CONSUMER:
        adjust_consumer(everything, _JAVA_DEFAULTS[kind], result, unused)
    for name, text in others.items():
        if name.startswith("metrics.context."):
            continue
        if not client_knows(kind, name):
            unused.append(_unknown(kind, name, text, suggests=len(unused) < _MOST_SUGGESTIONS))
        elif (fault := fault_of(name, text)) is not None:
            refused.append(_left_out(name, text, fault))
        else:
            result[name] = text.strip()
    own, library = (result, {}) if kind is ClientKind.PRODUCER else ({}, result)
    return ClientSettings(
        kind,
        dict(java),
        library,
        own,
        encryption.value,
        login.value,
        squeezing.value,
        tuple(unused),
        tuple(refused),
    )


#: More suggestions of names would take longer than everything else.
_MOST_SUGGESTIONS = 100


def _unknown(kind: ClientKind, name: str, text: str, *, suggests: bool) -> LeftOut:
    near = java_name_of(kind, name) if suggests else None
    who = f"Kafka's {kind.value} has no such setting"
    if kind is not ClientKind.PRODUCER:
        who = f"neither Kafka's {kind.value} nor librdkafka has such a setting"
    return _left_out(name, text, who + (f". Did you mean {near}?" if near else ""))


def client_knows(kind: ClientKind, name: str) -> bool:
    """True if librdkafka has a setting of this name and such a client uses librdkafka; a producer does not."""
    if kind is ClientKind.PRODUCER:
        return False
    found = property_for(name)
    return found is not None and found.clients in ("*", "C" if kind is ClientKind.CONSUMER else "*")


def _may_be_idempotent(own: Mapping[str, str]) -> bool:
    idempotence = own.get("enable.idempotence")
    if idempotence is not None:
        # If it conflicts with another setting, the client reports that, because the user has set it.
        return idempotence.strip().lower() == "true"
    requests = own.get("max.in.flight.requests.per.connection", "1").strip()
    return (
        own.get("acks", "all").strip() in ("all", "-1")
        and own.get("retries", "1").strip() != "0"
        and (not requests.isdecimal() or len(requests) > 9 or int(requests) <= IDEMPOTENT_REQUESTS)
    )


def _bootstrap(worker: Mapping[str, str]) -> dict[str, str]:
    return {"bootstrap.servers": worker["bootstrap.servers"]} if "bootstrap.servers" in worker else {}


def _own(
    worker: Mapping[str, str], connector: Mapping[str, str], kind: ClientKind
) -> tuple[dict[str, str], tuple[LeftOut, ...]]:
    """Returns the settings of one kind of client: the worker's, then the connector's, and those not allowed."""
    allowed, refused = overrides_of(kind, connector, policy_of(worker))
    given = _with_prefix(connector, f"{kind.value}.override.")
    kept = tuple(_left_out(name, given[name], reason) for name, reason in refused.items())
    return _with_prefix(worker, f"{kind.value}.") | allowed, kept


def _refusing(settings: ClientSettings, kept: tuple[LeftOut, ...]) -> ClientSettings:
    return replace(settings, refused=(*kept, *settings.refused)) if kept else settings


def _with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}


def _convert(kind: ClientKind, row: Setting, text: str, result: dict[str, RdValue], refused: list[LeftOut]) -> None:
    try:
        converted = row.convert(text)
    except ValueError as error:
        refused.append(_left_out(row.name, text, str(error)))
        return
    for target in (row.name,) if kind is ClientKind.PRODUCER else row.targets:
        result[target] = converted


def _left_out(name: str, text: str, reason: str) -> LeftOut:
    return LeftOut(name, HIDDEN if is_client_secret(name) else text, reason)


#: Facilities of librdkafka whose lines repeat its error callback, or the error of the call.
_SAID_ELSEWHERE: Final = frozenset({"ERROR", "FAIL", "FATAL"})


def is_news(record: logging.LogRecord) -> bool:
    """True if a client's own line reports something that the worker does not report itself.

    The client gives facility, client and text as arguments. With the level DEBUG everything passes.
    """
    if not isinstance(record.args, tuple) or not record.args:
        return True
    return record.args[0] not in _SAID_ELSEWHERE or CLIENT_LOG.isEnabledFor(logging.DEBUG)


CLIENT_LOG: Final = logging.getLogger("penstock.kafka.client")
CLIENT_LOG.addFilter(is_news)


_JAVA_LEVELS: Final = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}


#: LZ4's highest level.
_HIGHEST: Final = {"gzip": 9, "lz4": 12, "zstd": 22}


def compression(settings: Mapping[str, str]) -> TranslatedFamily[Compression]:
    """`compression.type` and the level of that type; a level that is too high becomes the highest."""
    part = TranslatedFamily[Compression]()
    kind = settings.get("compression.type", "none").strip()
    if kind not in COMPRESSIONS:
        part.faults["compression.type"] = f"String must be one of: {', '.join(COMPRESSIONS)}"
    level: int | None = None
    for name, (java_lowest, java_highest) in _JAVA_LEVELS.items():
        key = f"compression.{name}.level"
        if key not in settings:
            continue
        try:
            given = value.java_number(settings[key])
            if not java_lowest <= given <= java_highest or (name == "gzip" and given == 0):
                raise ValueError(f"Value must be between {java_lowest} and {java_highest}")
        except ValueError as error:
            part.faults[key] = str(error)
            continue
        if name == kind:
            level = min(given, _HIGHEST[name])
        else:
            part.unused[key] = f"compression.type is {kind}"
    if not part.faults:
        part.value = Compression.named(kind, level)
    return part


#: The number of requests in flight whose sequence numbers a broker remembers.
IDEMPOTENT_REQUESTS = 5

#: As in Java: an optional protocol, which is ignored, and a host with its port.
_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


def adjust_producer(java: Mapping[str, str], result: Mapping[str, RdValue], refused: list[LeftOut]) -> None:
    """Checks settings of a producer that depend on each other."""
    for address in items(java.get("bootstrap.servers", "")):
        found = _ADDRESS.fullmatch(address)
        if found is None or not found[1]:
            reason = f"{address!r} is no address: it has to be host:port"
            refused.append(LeftOut("bootstrap.servers", java["bootstrap.servers"], reason))
    if result.get("enable.idempotence") is not True:
        return
    limits = {
        "acks": (result.get("acks", "all") != "all", "all"),
        "retries": (result.get("retries", 1) == 0, "more than 0"),
        "max.in.flight.requests.per.connection": (
            int(result.get("max.in.flight.requests.per.connection", 1)) > IDEMPOTENT_REQUESTS,
            f"at most {IDEMPOTENT_REQUESTS}",
        ),
    }
    for name, (at_odds, needed) in limits.items():
        if at_odds:
            reason = f"an idempotent producer (enable.idempotence=true) needs it to be {needed}"
            refused.append(LeftOut(name, java[name], reason))


def adjust_consumer(
    java: Mapping[str, str], defaults: Mapping[str, str], result: dict[str, RdValue], unused: list[LeftOut]
) -> None:
    """Adjusts settings of a consumer that depend on each other."""
    # The client commits nothing by itself, whatever is set.
    result["enable.auto.commit"] = False
    if result.get("group.protocol") == "consumer":
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if result.pop(name, None) is not None and java[name] != defaults.get(name):
                unused.append(LeftOut(name, java[name], "with group.protocol=consumer the broker decides"))
    elif "session.timeout.ms" in result or "max.poll.interval.ms" in result:
        # librdkafka refuses a session that is longer than the poll interval; Java does not.
        session = int(result.get("session.timeout.ms", 45_000))
        result["session.timeout.ms"] = min(session, int(result.get("max.poll.interval.ms", 300_000)))
    if "fetch.max.bytes" in result:
        # librdkafka requires that a fetch is at least as large as the largest message that a producer may send, even
        # without a producer, and that either is at least 1000. A larger message still arrives.
        result["fetch.max.bytes"] = max(1000, int(result["fetch.max.bytes"]))
        result.setdefault("message.max.bytes", min(1_000_000, result["fetch.max.bytes"]))


def fit_together(result: dict[str, RdValue]) -> None:
    """Adjusts combinations of settings that librdkafka refuses in any client and Java accepts."""
    first, longest = int(result.get("reconnect.backoff.ms", 100)), int(result.get("reconnect.backoff.max.ms", 10_000))
    if first > longest:
        # As in Java: all pauses are then as long as the longest.
        result["reconnect.backoff.ms"] = longest
