"""Every setting of Kafka 4.3's producer, consumer and admin clients, and its treatment here; and the override policy.

A row is one of four kinds: used (a conversion, and for consumer and admin librdkafka's names), part of a family that is
read together, not needed (with the reason), or refused (with the reason and what to do instead). The producer is the
worker's own; it uses converted values by Java's names.

Source: org.apache.kafka.clients.{producer.ProducerConfig, consumer.ConsumerConfig, admin.AdminClientConfig} 4.3.0;
librdkafka's CONFIGURATION.md; KIP-458; org.apache.kafka.connect.connector.policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.config.suggestions import looks_secret, nearest
from penstock.errors import ConfigException
from penstock.kafka.settings import values as value
from penstock.kafka.settings.librdkafka import is_secret_of_librdkafka, property_for, reason_kept_from_connectors
from penstock.kafka.settings.values import Conversion


class ClientKind(Enum):
    """The kinds of Java clients that settings are for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


class SettingFamily(Enum):
    """Settings that have a meaning only together."""

    COMPRESSION = "compression"
    TLS = "tls"
    SASL = "sasl"


class Treatment(Enum):
    """The treatment of a setting."""

    USED = "used"
    """The client uses it, either directly or through its family."""
    NOT_NEEDED = "not needed"
    """It has no counterpart and nothing is lost without it; a value that was set is logged with the reason."""
    REFUSED = "refused"
    """Ignoring it would change the result: the client is not created, unless the value is harmless."""


@dataclass(frozen=True)
class Setting:
    """One setting of a Java client.

    Attributes:
        targets: librdkafka's names that get the converted value; none for a setting of only the producer.
        family: the family of settings that it is read with; `targets` is empty then.
    """

    name: str
    clients: frozenset[ClientKind]
    treatment: Treatment
    targets: tuple[str, ...] = ()
    convert: Conversion = value.same
    family: SettingFamily | None = None
    reason: str = ""
    harmless: tuple[str, ...] = ("",)
    secret: bool = False


_PRODUCER = frozenset({ClientKind.PRODUCER})
_CONSUMER = frozenset({ClientKind.CONSUMER})
_ADMIN = frozenset({ClientKind.ADMIN})
_ALL = frozenset(ClientKind)

_MAX = 2**31 - 1
_BACKOFF = value.integer(1, 300_000, java_type="LONG")
_RECOVERY = value.one_of({"rebootstrap": "rebootstrap", "none": "none"}, ignore_case=True)


def _to(name: str, clients: frozenset[ClientKind], convert: Conversion = value.same, *targets: str) -> Setting:
    return Setting(name, clients, Treatment.USED, targets or (name,), convert)


def _own(name: str, convert: Conversion) -> Setting:
    return Setting(name, _PRODUCER, Treatment.USED, (), convert)


def _with(family: SettingFamily, clients: frozenset[ClientKind], names: str, *, secret: bool = False) -> list[Setting]:
    return [Setting(name, clients, Treatment.USED, family=family, secret=secret) for name in names.split()]


def _unneeded(reason: str, clients: frozenset[ClientKind], names: str) -> list[Setting]:
    return [Setting(name, clients, Treatment.NOT_NEEDED, reason=reason) for name in names.split()]


def _refused(
    reason: str, clients: frozenset[ClientKind], names: str, harmless: tuple[str, ...] = ("",)
) -> list[Setting]:
    return [Setting(name, clients, Treatment.REFUSED, reason=reason, harmless=harmless) for name in names.split()]


_CONNECTION = [
    _to("bootstrap.servers", _ALL, value.trimmed_list),
    _to("client.id", _ALL),
    _to(
        "client.dns.lookup",
        _ALL,
        value.one_of(
            {
                "use_all_dns_ips": "use_all_dns_ips",
                "resolve_canonical_bootstrap_servers_only": "resolve_canonical_bootstrap_servers_only",
            }
        ),
    ),
    _to("connections.max.idle.ms", _ALL, value.integer(0, _MAX, java_type="LONG", zero_for_minus_one=True)),
    _to(
        "metadata.max.age.ms",
        _ALL,
        value.integer(10, 3_600_000, java_type="LONG"),
        "topic.metadata.refresh.interval.ms",
    ),
    _to("metadata.recovery.strategy", _CONSUMER | _ADMIN, _RECOVERY),
    _to("metadata.recovery.rebootstrap.trigger.ms", _CONSUMER | _ADMIN, value.integer(0, _MAX, java_type="LONG")),
    _to(
        "receive.buffer.bytes",
        _ALL,
        value.integer(0, 100_000_000, zero_for_minus_one=True),
        "socket.receive.buffer.bytes",
    ),
    _to("send.buffer.bytes", _ALL, value.integer(0, 100_000_000, zero_for_minus_one=True), "socket.send.buffer.bytes"),
    _to("reconnect.backoff.ms", _ALL, value.integer(0, 3_600_000, java_type="LONG")),
    _to("reconnect.backoff.max.ms", _ALL, value.integer(0, 3_600_000, java_type="LONG")),
    _to("retry.backoff.ms", _ALL, _BACKOFF),
    _to("retry.backoff.max.ms", _ALL, _BACKOFF),
    _to("socket.connection.setup.timeout.ms", _ALL, value.integer(1000, _MAX, java_type="LONG")),
    _to("enable.metrics.push", _CONSUMER | _ADMIN, value.boolean),
    _to("request.timeout.ms", _CONSUMER | _ADMIN, value.integer(10, 300_000), "socket.timeout.ms"),
    *_unneeded(
        "the time to set up a connection does not grow between attempts here",
        _ALL,
        "socket.connection.setup.timeout.max.ms",
    ),
    *_refused("the admin client cannot talk to controllers; use bootstrap.servers", _ADMIN, "bootstrap.controllers"),
    *_unneeded(
        "the worker gives each admin and consumer call its own deadline", _CONSUMER | _ADMIN, "default.api.timeout.ms"
    ),
    *_unneeded("admin calls are repeated until their deadline", _ADMIN, "retries"),
    *_unneeded("placeholders were resolved when the worker read its configuration", _ALL, "config.providers"),
    *_unneeded(
        "Java metrics reporters cannot be loaded; the worker has metrics of its own",
        _ALL,
        "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms",
    ),
]

_PRODUCING = [
    _own("acks", value.acks),
    _own("batch.size", value.integer(1, _MAX)),
    _own("buffer.memory", value.integer(0, 2**63 - 1, java_type="LONG")),
    _own("delivery.timeout.ms", value.integer(1, _MAX)),
    _own("enable.idempotence", value.boolean),
    _own("max.in.flight.requests.per.connection", value.integer(1, _MAX, java_lowest=1)),
    _own("max.request.size", value.integer(1, 1_000_000_000)),
    _own("metadata.recovery.strategy", _RECOVERY),
    _own("partitioner.class", value.partitioner),
    # Read with the class: a class that is set takes precedence, as in Java.
    _own("partitioner.ignore.keys", value.boolean),
    _own("request.timeout.ms", value.integer(1, _MAX)),
    _own("retries", value.integer(0, _MAX)),
    _own("transaction.timeout.ms", value.integer(1, _MAX)),
    _own("transactional.id", value.same),
    *_with(
        SettingFamily.COMPRESSION,
        _PRODUCER,
        "compression.type compression.gzip.level compression.lz4.level compression.zstd.level",
    ),
    *_refused(
        "two-phase commit is not available", _PRODUCER, "transaction.two.phase.commit.enable", harmless=("", "false")
    ),
    *_refused("Java interceptors cannot be loaded; remove the setting", _PRODUCER | _CONSUMER, "interceptor.classes"),
    *_unneeded("record batches are made of whole columns; nothing waits for one to fill", _PRODUCER, "linger.ms"),
    *_unneeded("the worker waits for room in the queue as long as the task runs", _PRODUCER, "max.block.ms"),
    *_unneeded("what is known of a task's topics is kept as long as it runs", _PRODUCER, "metadata.max.idle.ms"),
    *_unneeded(
        "the bootstrap servers are asked as soon as no broker that is known can be reached",
        _PRODUCER,
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    *_unneeded("the worker has metrics of its own", _PRODUCER, "enable.metrics.push"),
    *_unneeded(
        "records without a key go to another partition after each batch, whatever the load of the brokers",
        _PRODUCER,
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
    ),
    *_unneeded("the converters deliver bytes", _PRODUCER, "key.serializer value.serializer"),
]

_CONSUMING = [
    _to("allow.auto.create.topics", _CONSUMER, value.boolean),
    _to("auto.offset.reset", _CONSUMER, value.offset_reset),
    _to("check.crcs", _CONSUMER, value.boolean),
    _to("client.rack", _CONSUMER),
    _to("fetch.max.bytes", _CONSUMER, value.integer(0, 2_147_483_135)),
    _to("fetch.max.wait.ms", _CONSUMER, value.integer(0, 300_000), "fetch.wait.max.ms"),
    _to("fetch.min.bytes", _CONSUMER, value.integer(1, 100_000_000)),
    _to("group.id", _CONSUMER),
    _to("group.instance.id", _CONSUMER),
    _to("group.protocol", _CONSUMER, value.one_of({"classic": "classic", "consumer": "consumer"}, ignore_case=True)),
    _to("group.remote.assignor", _CONSUMER),
    _to("heartbeat.interval.ms", _CONSUMER, value.integer(1, 3_600_000)),
    _to(
        "isolation.level",
        _CONSUMER,
        value.one_of({"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}),
    ),
    _to("max.partition.fetch.bytes", _CONSUMER, value.integer(1, 1_000_000_000)),
    _to("max.poll.interval.ms", _CONSUMER, value.integer(1, 86_400_000, java_lowest=1)),
    _to("partition.assignment.strategy", _CONSUMER, value.assignors),
    _to("session.timeout.ms", _CONSUMER, value.integer(1, 3_600_000)),
    *_unneeded(
        "the pipeline bounds its batches itself: batch.max.records and batch.max.bytes", _CONSUMER, "max.poll.records"
    ),
    *_unneeded(
        "the worker commits offsets, once the task has taken their records",
        _CONSUMER,
        "auto.commit.interval.ms enable.auto.commit",
    ),
    *_unneeded(
        "topics.regex never matches Kafka's internal topics; name them in topics to read them",
        _CONSUMER,
        "exclude.internal.topics",
    ),
    *_unneeded("the converters take bytes", _CONSUMER, "key.deserializer value.deserializer"),
    *_unneeded(
        "it concerns share groups, and sink tasks use consumer groups",
        _CONSUMER,
        "share.acknowledgement.mode share.acquire.mode",
    ),
    *_unneeded("internal to Java's consumer", _CONSUMER, "internal.throw.on.fetch.stable.offset.unsupported"),
]

_TLS = [
    _to(
        "security.protocol",
        _ALL,
        value.one_of({word: word for word in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")}, ignore_case=True),
    ),
    *_with(
        SettingFamily.TLS,
        _ALL,
        "ssl.cipher.suites ssl.endpoint.identification.algorithm ssl.keystore.type ssl.keystore.location "
        "ssl.truststore.type ssl.truststore.location",
    ),
    *_with(
        SettingFamily.TLS,
        _ALL,
        "ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.password "
        "ssl.truststore.certificates ssl.truststore.password",
        secret=True,
    ),
    *_with(SettingFamily.TLS, _PRODUCER, "ssl.enabled.protocols"),
    *_unneeded(
        "OpenSSL agrees on the best of TLS 1.2 and 1.3; narrow it with MinProtocol in openssl.cnf",
        _CONSUMER | _ADMIN,
        "ssl.enabled.protocols",
    ),
    *_unneeded("OpenSSL agrees on the best of TLS 1.2 and 1.3", _ALL, "ssl.protocol"),
    *_unneeded(
        "it chooses classes inside a JVM, and OpenSSL is used here",
        _ALL,
        "security.providers ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation "
        "ssl.trustmanager.algorithm",
    ),
    *_refused(
        "a Java TLS engine cannot be loaded; describe keys and certificates with the other ssl.* settings",
        _ALL,
        "ssl.engine.factory.class",
    ),
]

_SASL = [
    *_with(
        SettingFamily.SASL,
        _ALL,
        "sasl.mechanism sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.login.callback.handler.class "
        "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.client.credentials.client.id "
        "sasl.oauthbearer.scope",
    ),
    *_with(SettingFamily.SASL, _ALL, "sasl.jaas.config sasl.oauthbearer.client.credentials.client.secret", secret=True),
    *_with(
        SettingFamily.SASL,
        _ALL,
        "sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.assertion.algorithm "
        "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
        "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
        "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file "
        "sasl.oauthbearer.assertion.template.file",
    ),
    *_with(SettingFamily.SASL, _ALL, "sasl.oauthbearer.assertion.private.key.passphrase", secret=True),
    _to("sasl.kerberos.min.time.before.relogin", _CONSUMER | _ADMIN, value.integer(0, 86_400_000, java_type="LONG")),
    *_unneeded("a ticket is taken for each connection", _PRODUCER, "sasl.kerberos.min.time.before.relogin"),
    _to("sasl.oauthbearer.sub.claim.name", _CONSUMER | _ADMIN),
    *_unneeded("the broker reads who it is from the token", _PRODUCER, "sasl.oauthbearer.sub.claim.name"),
    *_refused(
        "a Java login class cannot be loaded; use sasl.jaas.config with a stock login module",
        _ALL,
        "sasl.login.class sasl.client.callback.handler.class",
    ),
    *_refused(
        "the client id and secret cannot be URL-encoded before they are sent",
        _ALL,
        "sasl.oauthbearer.header.urlencode",
        harmless=("", "false"),
    ),
    *_unneeded(
        "the ticket is renewed as often as it is needed",
        _ALL,
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor",
    ),
    *_unneeded(
        "a new token is fetched when 80% of the life of the one before is over",
        _ALL,
        "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds "
        "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter",
    ),
    *_with(
        SettingFamily.SASL,
        _PRODUCER,
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms "
        "sasl.login.retry.backoff.ms",
    ),
    *_unneeded(
        "librdkafka has its own time limits for the token endpoint",
        _CONSUMER | _ADMIN,
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms "
        "sasl.login.retry.backoff.ms",
    ),
    *_unneeded(
        "the broker checks tokens; the client passes them on",
        _ALL,
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
        "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
        "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.validator.class "
        "sasl.oauthbearer.scope.claim.name",
    ),
]

SETTINGS: tuple[Setting, ...] = (*_CONNECTION, *_PRODUCING, *_CONSUMING, *_TLS, *_SASL)
"""All rows; a name has at most one row for each client."""


def _index() -> Mapping[ClientKind, Mapping[str, Setting]]:
    return {kind: {row.name: row for row in SETTINGS if kind in row.clients} for kind in ClientKind}


_BY_CLIENT = _index()


def setting_for(kind: ClientKind, name: str) -> Setting | None:
    """The row of a Java setting, or None if that client has no setting of this name."""
    return _BY_CLIENT[kind].get(name)


def is_client_secret(name: str) -> bool:
    """True if the value of a setting must not be shown, whichever client gets it.

    A setting that a client does not have, or that only librdkafka has, is still a secret.

    >>> [is_client_secret(name) for name in ("sasl.jaas.config", "sasl.password", "my.token", "acks")]
    [True, True, True, False]
    """
    rows = [index[name] for index in _BY_CLIENT.values() if name in index]
    if rows or property_for(name) is not None:
        return any(row.secret for row in rows) or is_secret_of_librdkafka(name)
    return looks_secret(name)


def setting_names(kind: ClientKind) -> frozenset[str]:
    """All Java names of a client."""
    return frozenset(_BY_CLIENT[kind])


_NAMES: Final = {
    "batch.num.messages": "batch.size",
    "broker.address.ttl": "metadata.max.age.ms",
    "compression.codec": "compression.type",
    "compression.level": "compression.zstd.level",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "partitioner": "partitioner.class",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.kerberos.keytab": "sasl.jaas.config",
    "sasl.kerberos.principal": "sasl.jaas.config",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "socket.max.fails": "reconnect.backoff.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "sticky.partitioning.linger.ms": "batch.size",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}


def java_name_of(kind: ClientKind, name: str) -> str | None:
    """The Java setting that was probably meant; None if no name is close.

    >>> java_name_of(ClientKind.PRODUCER, "message.max.bytes"), java_name_of(ClientKind.PRODUCER, "compresion.type")
    ('max.request.size', 'compression.type')
    >>> java_name_of(ClientKind.PRODUCER, "statistics.interval.ms")
    """
    if kind is ClientKind.PRODUCER and name in _NAMES:
        return _NAMES[name]
    return nearest(name, sorted(setting_names(kind)), 0.8)


_POLICY: Final = "connector.client.config.override.policy"
_ALLOWLIST: Final = "connector.client.config.override.allowlist"
_PACKAGE: Final = "org.apache.kafka.connect.connector.policy."
_SUFFIX: Final = "ConnectorClientConfigOverridePolicy"
_PRINCIPAL: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_KNOWN: Final = ("All", "None", "Principal", "Allowlist")


@dataclass(frozen=True)
class OverridePolicy:
    """The policy on which client settings connectors may override.

    Attributes:
        name: All, None, Principal or Allowlist.
        allowed: The settings that are allowed; None for all.
    """

    name: str = "All"
    allowed: frozenset[str] | None = None

    def refusal(self, setting: str) -> str | None:
        """The reason why a client setting, without prefix, may not be overridden; None if it may.

        >>> OverridePolicy().refusal("plugin.library.paths")
        "A connector may not set 'plugin.library.paths', whatever the policy: it loads a library into the worker."
        """
        kept = reason_kept_from_connectors(setting)
        if kept is not None:
            return f"A connector may not set '{setting}', whatever the policy: {kept}."
        if self.allowed is None or setting in self.allowed:
            return None
        return f"The '{self.name}' policy does not allow '{setting}' to be overridden in the connector configuration."


def parse_policy(text: str, allowlist: Sequence[str]) -> OverridePolicy:
    """The policy that a worker's file names, by its short name or Java's class name.

    >>> parse_policy("org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy", ()).name
    'None'
    """
    name = text.strip().removeprefix(_PACKAGE).removesuffix(_SUFFIX)
    allowed = {
        "All": None,
        "None": frozenset[str](),
        "Principal": _PRINCIPAL,
        "Allowlist": frozenset(allowlist),
    }
    if name not in allowed:
        raise ConfigException(_POLICY, text, f"There is no such policy; choose {', '.join(_KNOWN)}")
    return OverridePolicy(name, allowed[name])


def policy_of(worker: Mapping[str, str]) -> OverridePolicy:
    """The policy of a worker with these properties."""
    allowlist = [part.strip() for part in worker.get(_ALLOWLIST, "").split(",")]
    return parse_policy(worker.get(_POLICY, "All"), [part for part in allowlist if part])


def overrides_of(
    kind: ClientKind, connector: Mapping[str, str], policy: OverridePolicy
) -> tuple[dict[str, str], dict[str, str]]:
    """The client settings that a connector may override, and the reasons against its other overrides, by name.

    Names are without the prefix; values are not used.

    >>> given = {"consumer.override.client.rack": "a", "consumer.override.plugin.library.paths": "b"}
    >>> allowed, refused = overrides_of(ClientKind.CONSUMER, given, OverridePolicy())
    >>> allowed, list(refused)
    ({'client.rack': 'a'}, ['plugin.library.paths'])
    """
    prefix = f"{kind.value}.override."
    given = {name.removeprefix(prefix): text for name, text in connector.items() if name.startswith(prefix)}
    refused = {name: reason for name in given if (reason := policy.refusal(name)) is not None}
    return {name: text for name, text in given.items() if name not in refused}, refused
