"""The settings of the worker's Kafka clients: Java's names and rules of precedence in, librdkafka's names out.

Main functions: `producer_settings`, `consumer_settings`, `admin_settings` collect what applies to one client (later
wins: Java's defaults, the worker's defaults, `producer.` / `consumer.` / `admin.` keys of the worker's file,
`*.override.` keys of the connector); `translate` turns Java settings into `ClientSettings`. The names themselves are
data in `client_table`.

Source: org.apache.kafka.connect.runtime.Worker (baseProducerConfigs, baseConsumerConfigs, adminConfigs).
Thread: any; apart from asking librdkafka for names that no Java client has, everything is pure.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import confluent_kafka as ck

from penstock.errors import ConfigException
from penstock.kafka.client_families import Part, compression, sasl, tls
from penstock.kafka.client_table import ClientKind, Family, Setting, Treatment, setting_for, setting_names
from penstock.kafka.client_values import RdValue, java_number

__all__ = [
    "ClientKind",
    "ClientSettings",
    "LeftOut",
    "admin_client_id",
    "admin_settings",
    "consumer_settings",
    "dead_letter_admin_id",
    "dead_letter_producer_id",
    "librdkafka_knows",
    "producer_settings",
    "refused_for_all",
    "refused_overrides",
    "sink_consumer_id",
    "sink_instance_id",
    "source_producer_id",
    "translate",
]

_MAX_INT = str(2**31 - 1)
_HIDDEN = "[hidden]"
_SECRET_NAME = re.compile("password|secret|jaas|passphrase|token|key", re.IGNORECASE)

# Where Java's clients and librdkafka have different defaults, Java's count. `batch.size` is an exception: librdkafka's
# million bytes are what makes one task fast, and an own value of the user still counts.
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

# Java Connect sends one request at a time without idempotence, for the sake of old brokers: a retry may store records
# twice. With idempotence the broker drops what it has already, and keeps the order of up to five requests. Invariant 3.
_WORKER_PRODUCER = {
    "enable.idempotence": "true",
    "acks": "all",
    "max.in.flight.requests.per.connection": "5",
    "delivery.timeout.ms": _MAX_INT,
}
_IDEMPOTENT_REQUESTS = 5
_INSTANCE = "group.instance.id"
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9._-]")
_LONGEST_NAME = 160
_WORKER_CONSUMER = {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}

# Java's five minutes are what a topic that matches `topics.regex` would wait for its first reader.
_LOOK_FOR_TOPICS_MS = 10_000

_FAMILIES: Mapping[Family, Callable[[Mapping[str, str]], Part]] = {
    Family.COMPRESSION: compression,
    Family.TLS: tls,
    Family.SASL: sasl,
}


@dataclass(frozen=True)
class LeftOut:
    """A setting that is not used, or must not be: with its value (secrets hidden) and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class ClientSettings:
    """What one client is made with.

    Attributes:
        kind: which client.
        java: all Java settings that counted, Java's own defaults not among them.
        librdkafka: what the client is made with.
        unused: settings that change nothing here, and unknown ones.
        refused: settings that cannot be fulfilled; a client must not be made while there are any.
    """

    kind: ClientKind
    java: Mapping[str, str] = field(repr=False)
    librdkafka: Mapping[str, RdValue] = field(repr=False)
    unused: tuple[LeftOut, ...] = ()
    refused: tuple[LeftOut, ...] = ()

    @property
    def client_id(self) -> str:
        """The name the brokers see."""
        return str(self.librdkafka.get("client.id", "rdkafka"))

    @property
    def refresh_s(self) -> float:
        """How often a sink looks for new topics of its pattern: `metadata.max.age.ms`, more often where not set."""
        return int(self.librdkafka.get("topic.metadata.refresh.interval.ms", _LOOK_FOR_TOPICS_MS)) / 1000

    @property
    def max_poll_interval_s(self) -> float:
        """How long a consumer may stay away from its group (`max.poll.interval.ms`)."""
        return int(self.librdkafka.get("max.poll.interval.ms", 300_000)) / 1000

    @property
    def api_timeout_s(self) -> float:
        """How long one call may take (`default.api.timeout.ms`)."""
        try:
            return java_number(self.java.get("default.api.timeout.ms", "60000")) / 1000
        except ValueError:
            return 60.0

    def checked(self) -> "ClientSettings":
        """These settings, if nothing in them is refused.

        Raises:
            ConfigException: names every refused setting with its value and what to do.
        """
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
        """One line for each setting that changes nothing."""
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


def sink_consumer_id(connector: str, task: int) -> str:
    """The client id of a sink task's consumer."""
    return f"connector-consumer-{connector}-{task}"


def sink_instance_id(worker: str, connector: str, task: int) -> str:
    """The `group.instance.id` of a sink task's consumer; no two tasks of any workers have the same.

    Kafka allows 249 letters, digits, dots, underscores and hyphens: other names are told apart by their digest.

    Args:
        worker: tells workers apart, and stays the same when one is started again.
        connector: its name.
        task: its number.

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
    """The client id of the producer of a sink task's dead letters."""
    return f"connector-dlq-producer-{connector}-{task}"


def dead_letter_admin_id(connector: str, task: int) -> str:
    """The client id of the admin client that makes the dead letter topic."""
    return f"connector-dlq-adminclient-{connector}-{task}"


def admin_client_id(connector: str, task: int | None = None) -> str:
    """The client id of the admin client of a source task, or of its connector."""
    return f"connector-adminclient-{connector}" + ("" if task is None else f"-{task}")


def producer_settings(worker: Mapping[str, str], connector: Mapping[str, str], *, client_id: str) -> ClientSettings:
    """A producer of a source task or of dead letters.

    Args:
        worker: the worker's properties, placeholders resolved.
        connector: the connector's configuration, placeholders resolved.
        client_id: the default, see `source_producer_id` and `dead_letter_producer_id`.
    """
    own = _own(worker, connector, "producer")
    java = {**_bootstrap(worker), "client.id": client_id, **_WORKER_PRODUCER}
    if not _may_be_idempotent(own):
        # As in Java, what the user asks for counts more than idempotence; without it only one request keeps the order.
        java |= {"enable.idempotence": "false", "max.in.flight.requests.per.connection": "1"}
    return translate(ClientKind.PRODUCER, java | own)


def consumer_settings(
    worker: Mapping[str, str],
    connector: Mapping[str, str],
    *,
    client_id: str,
    group_id: str,
    instance_id: str | None = None,
    instance_suffix: str = "",
) -> ClientSettings:
    """The consumer of a sink task.

    Args:
        worker: the worker's properties, placeholders resolved.
        connector: the connector's configuration, placeholders resolved.
        client_id: the default, see `sink_consumer_id`.
        group_id: the default, `connect-<connector>`.
        instance_id: the default of `group.instance.id`, see `sink_instance_id`; None for a dynamic member.
        instance_suffix: tells the tasks of a connector apart whose user gives a `group.instance.id`.
    """
    static = {} if instance_id is None else {_INSTANCE: instance_id}
    java = {**_bootstrap(worker), "client.id": client_id, "group.id": group_id, **static, **_WORKER_CONSUMER}
    own = _own(worker, connector, "consumer")
    if own.get(_INSTANCE):
        own[_INSTANCE] += instance_suffix
    return translate(ClientKind.CONSUMER, java | own)


def admin_settings(
    worker: Mapping[str, str], connector: Mapping[str, str] | None = None, *, client_id: str
) -> ClientSettings:
    """An admin client of a connector or task, or of the worker itself when `connector` is None.

    The worker's keys without a prefix apply too, those of the worker itself are no client's settings and fall away.
    Nothing is said of those that change nothing here: they were written for the worker.
    """
    names = setting_names(ClientKind.ADMIN)
    plain = {name: text for name, text in worker.items() if name in names}
    own = {} if connector is None else _own(worker, connector, "admin")
    given = translate(ClientKind.ADMIN, {**_bootstrap(worker), "client.id": client_id, **plain, **own})
    return replace(given, unused=tuple(left for left in given.unused if left.name in own or left.name not in plain))


def refused_overrides(kind: ClientKind, worker: Mapping[str, str], connector: Mapping[str, str]) -> tuple[LeftOut, ...]:
    """What of the client settings that a connector overrides cannot be used, together with the worker's.

    Names come without their prefix.

    Args:
        kind: which client's settings are looked at.
        worker: the worker's properties, placeholders resolved.
        connector: the connector's configuration, placeholders resolved.
    """
    before = refused_for_all(kind, worker)
    overridden = _with_prefix(connector, f"{kind.value}.override.")
    refused = _refused(kind, worker, connector)
    return tuple(fault for fault in refused if fault.name in overridden or fault not in before)


def refused_for_all(kind: ClientKind, worker: Mapping[str, str]) -> tuple[LeftOut, ...]:
    """What of the worker's settings for its connectors' clients cannot be used: clients of this kind cannot be made."""
    return _refused(kind, worker, {})


def _refused(kind: ClientKind, worker: Mapping[str, str], connector: Mapping[str, str]) -> tuple[LeftOut, ...]:
    names = setting_names(kind) if kind is ClientKind.ADMIN else frozenset[str]()
    plain = {name: text for name, text in worker.items() if name in names}
    java = {**_bootstrap(worker), **plain, **_own(worker, connector, kind.value)}
    return translate(kind, java, knows=lambda *_: True).refused


def translate(
    kind: ClientKind,
    java: Mapping[str, str],
    *,
    knows: Callable[[ClientKind, str, str], bool] | None = None,
) -> ClientSettings:
    """Turn Java client settings into librdkafka's.

    Args:
        kind: which client's settings they are.
        java: by Java name; names that only librdkafka has are passed on as they are.
        knows: whether librdkafka has a setting of this name; asks the library when None.
    """
    knows = librdkafka_knows if knows is None else knows
    everything = {**_JAVA_DEFAULTS[kind], **java}
    result: dict[str, RdValue] = {}
    unused: list[LeftOut] = []
    refused: list[LeftOut] = []
    own: dict[str, str] = {}
    for name, text in everything.items():
        row = setting_for(kind, name)
        if row is None:
            own[name] = text
        elif row.treatment is Treatment.NOT_NEEDED:
            unused.append(_left_out(kind, name, text, row.reason))
        elif row.treatment is Treatment.REFUSED:
            if text.strip().lower() not in row.harmless:
                refused.append(_left_out(kind, name, text, row.reason))
        elif row.family is None and (text.strip() or name == "partitioner.class"):
            _convert(kind, row, text, result, refused)
    for family in Family:
        part = _FAMILIES[family](everything)
        result.update(part.librdkafka)
        refused += [_left_out(kind, name, everything.get(name, "null"), why) for name, why in part.faults.items()]
        unused += [_left_out(kind, name, everything[name], why) for name, why in part.unused.items()]
    _ADJUSTMENTS[kind](everything, result, unused)
    for name, text in own.items():
        if name.startswith("metrics.context."):
            continue
        if knows(kind, name, text):
            result[name] = text
        else:
            shown = _HIDDEN if _SECRET_NAME.search(name) else text
            unused.append(LeftOut(name, shown, f"neither Kafka's {kind.value} nor librdkafka has such a setting"))
    return ClientSettings(kind, dict(java), result, tuple(unused), tuple(refused))


def librdkafka_knows(kind: ClientKind, name: str, text: str) -> bool:
    """Whether librdkafka has a setting of this name, by making a client that has only this one."""
    if name.endswith("_cb"):
        return False
    quiet: dict[str, object] = (
        {"log_level": 0, "group.id": "settings"} if kind is ClientKind.CONSUMER else {"log_level": 0}
    )
    maker = ck.Consumer if kind is ClientKind.CONSUMER else ck.Producer
    try:
        client = maker({**quiet, name: text})
    except (ck.KafkaException, TypeError, ValueError) as error:
        return "No such configuration property" not in str(error)
    if kind is ClientKind.CONSUMER:
        client.close()
    return True


def _may_be_idempotent(own: Mapping[str, str]) -> bool:
    """Whether nothing that the user sets for a producer is at odds with idempotence, or turns it off."""
    idempotence = own.get("enable.idempotence")
    if idempotence is not None:
        # At odds with something else: the client says so, because it was asked for.
        return idempotence.strip().lower() == "true"
    requests = own.get("max.in.flight.requests.per.connection", "1").strip()
    return (
        own.get("acks", "all").strip() in ("all", "-1")
        and own.get("retries", "1").strip() != "0"
        and (not requests.isdigit() or int(requests) <= _IDEMPOTENT_REQUESTS)
    )


def _bootstrap(worker: Mapping[str, str]) -> dict[str, str]:
    return {"bootstrap.servers": worker["bootstrap.servers"]} if "bootstrap.servers" in worker else {}


def _own(worker: Mapping[str, str], connector: Mapping[str, str], client: str) -> dict[str, str]:
    """What the worker's file and then the connector say about one kind of client."""
    return _with_prefix(worker, f"{client}.") | _with_prefix(connector, f"{client}.override.")


def _with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)}


def _convert(kind: ClientKind, row: Setting, text: str, result: dict[str, RdValue], refused: list[LeftOut]) -> None:
    try:
        converted = row.convert(text)
    except ValueError as error:
        refused.append(_left_out(kind, row.name, text, str(error)))
        return
    for target in row.targets:
        result[target] = converted


def _left_out(kind: ClientKind, name: str, text: str, reason: str) -> LeftOut:
    row = setting_for(kind, name)
    return LeftOut(name, _HIDDEN if row is not None and row.secret else text, reason)


def _adjust_producer(java: Mapping[str, str], result: dict[str, RdValue], unused: list[LeftOut]) -> None:
    """What depends on several settings of a producer."""
    if "batch.size" in java:
        # Java's batches are bounded by bytes alone.
        result.setdefault("batch.num.messages", 1_000_000)
    if java.get("partitioner.ignore.keys", "false").strip().lower() == "true" and not java["partitioner.class"].strip():
        result["partitioner"] = "random"
    if "transactional.id" in result:
        # librdkafka refuses a delivery that may outlive its transaction.
        limit = int(result.get("transaction.timeout.ms", 60_000))
        result["delivery.timeout.ms"] = min(int(result.get("delivery.timeout.ms", limit)), limit)


def _adjust_consumer(java: Mapping[str, str], result: dict[str, RdValue], unused: list[LeftOut]) -> None:
    """What depends on several settings of a consumer."""
    if result.get("group.protocol") == "consumer":
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if result.pop(name, None) is not None and java[name] != _JAVA_DEFAULTS[ClientKind.CONSUMER].get(name):
                unused.append(LeftOut(name, java[name], "with group.protocol=consumer the broker decides"))
    elif "max.poll.interval.ms" in result:
        # librdkafka refuses a session that is longer than the poll interval; Java does not.
        session = int(result.get("session.timeout.ms", 45_000))
        result["session.timeout.ms"] = min(session, int(result["max.poll.interval.ms"]))


def _adjust_admin(java: Mapping[str, str], result: dict[str, RdValue], unused: list[LeftOut]) -> None:
    """Nothing of an admin client depends on several settings."""


_ADJUSTMENTS: Mapping[ClientKind, Callable[[Mapping[str, str], dict[str, RdValue], list[LeftOut]], None]] = {
    ClientKind.PRODUCER: _adjust_producer,
    ClientKind.CONSUMER: _adjust_consumer,
    ClientKind.ADMIN: _adjust_admin,
}
