"""A distributed worker's file: its settings in addition to those of every worker. Frozen values; any thread.

Source: DistributedConfig, SaslConfigs and CommonClientConfigs of Kafka 4.3; the defaults of the group and of the three
topics are those of the documentation's chapter on Kafka Connect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from penstock.config import CaseInsensitiveValidString, ConfigType, Password, Range, ValidString, setting
from penstock.settings.plugin_classes import SettingFault
from penstock.settings.topics import PARTITIONS, REPLICAS
from penstock.settings.worker import JVM, WorkerSettings, high, low


def _ms(default: int, doc: str) -> Any:
    return low(type=ConfigType.LONG, default=default, validator=Range.at_least(0), doc=doc)


_ANY_LENGTH: Final = Range.between(0, 2147483647)


class ExactlyOnceSourceSupport(Enum):
    """`exactly.once.source.support`."""

    DISABLED = "disabled"
    """Source tasks deliver at least once."""
    PREPARING = "preparing"
    """As DISABLED, but the leader writes the config topic in transactions, so that a former leader cannot write."""
    ENABLED = "enabled"
    """Records and offsets of source tasks are in one transaction."""

    @property
    def leader_is_fenced(self) -> bool:
        """True if the leader's writes are transactions."""
        return self is not ExactlyOnceSourceSupport.DISABLED


_DEFAULTED: Final = ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")
_LARGEST_KEY_BITS: Final = 1 << 16


@dataclass(frozen=True)
class KeySettings:
    """`inter.worker.*`: the signatures of requests between workers.

    Attributes:
        algorithm: The algorithm of keys, by Java's name.
        size_bits: The size of keys; None for the algorithm's default.
        ttl_ms: The lifetime of a key; 0 for no limit.
        signature: The algorithm of this worker's signatures.
        verified: The algorithms that it accepts.
    """

    algorithm: str
    size_bits: int | None
    ttl_ms: int
    signature: str
    verified: tuple[str, ...]


class DistributedSettings(WorkerSettings):
    """The settings of a distributed worker.

    Attributes:
        raw: Every setting of the file, and the names of the group and of the topics even if they are defaults, because
            clients, transactional ids and topics are named after them in many places.
        defaulted: The names that are defaults, with their values.
    """

    group_id: str = high(
        default="connect-cluster",
        doc="The name of the group of workers that share the work. No consumer group may have it.",
    )
    session_timeout_ms: int = high(
        default=10000,
        doc="After how long without a heartbeat a worker counts as lost, and its work is given to others.",
    )
    rebalance_timeout_ms: int = high(
        default=60000,
        doc="The time in which a worker must stop its work and join again in a rebalance; and the time for which its "
        "herder may be busy before the worker leaves the group.",
    )
    heartbeat_interval_ms: int = high(default=3000, doc="How often a worker shows the group that it is there.")
    exactly_once: ExactlyOnceSourceSupport = high(
        "exactly.once.source.support",
        default=ExactlyOnceSourceSupport.DISABLED,
        validator=CaseInsensitiveValidString(*(one.value for one in ExactlyOnceSourceSupport)),
        doc="Whether source connectors write their records and offsets in transactions. All workers go from 'disabled' "
        "through 'preparing' to 'enabled', with a rolling restart for each step.",
    )
    connect_protocol: str = low(
        default="sessioned",
        validator=ValidString("eager", "compatible", "sessioned"),
        doc="How work is assigned: 'eager' stops all work first, 'compatible' stops only work that moves, "
        "'sessioned' also signs requests between workers. The group uses the best that all of its workers have.",
    )
    max_rebalance_delay_ms: int = low(
        "scheduled.rebalance.max.delay.ms",
        default=300000,
        validator=_ANY_LENGTH,
        doc="How long the work of a lost worker waits for it to come back, before it is given to others.",
    )
    worker_sync_timeout_ms: int = setting(
        default=3000,
        doc="The time that a worker with an old configuration may take to read the config topic before it "
        "leaves the group for a while.",
    )
    worker_unsync_backoff_ms: int = setting(
        default=300000, doc="With connect.protocol=eager: how long it stays away then."
    )
    inter_worker_key_ttl_ms: int = low(
        default=3600000,
        validator=_ANY_LENGTH,
        doc="How long a key counts with which workers sign what they ask of each other; 0 keeps one for ever.",
    )
    inter_worker_key_generation_algorithm: str = low(default="HmacSHA256", doc="The algorithm of these keys.")
    inter_worker_key_size: int | None = low(default=None, doc="Their size in bits; unset for the algorithm's own.")
    inter_worker_signature_algorithm: str = low(default="HmacSHA256", doc="How this worker signs.")
    inter_worker_verification_algorithms: tuple[str, ...] = low(
        default=("HmacSHA256",), doc="Which signatures this worker takes; its own is one of them."
    )

    # The topics
    config_topic: str = high(
        "config.storage.topic",
        default="connect-configs",
        doc="The topic of connector and task configurations: one partition, compacted. Created when it is missing.",
    )
    config_storage_replication_factor: int = low(
        type=ConfigType.SHORT, default=3, validator=REPLICAS, doc="Its replication factor when it is created."
    )
    offset_topic: str = high(
        "offset.storage.topic",
        default="connect-offsets",
        doc="The topic of the offsets of source connectors: compacted. Created when it is missing.",
    )
    offset_storage_partitions: int = low(default=25, validator=PARTITIONS, doc="Its partitions when it is created.")
    offset_storage_replication_factor: int = low(
        type=ConfigType.SHORT, default=3, validator=REPLICAS, doc="Its replication factor when it is created."
    )
    status_topic: str = high(
        "status.storage.topic",
        default="connect-status",
        doc="The topic of the states of connectors and tasks: compacted. Created when it is missing.",
    )
    status_storage_partitions: int = low(default=5, validator=PARTITIONS, doc="Its partitions when it is created.")
    status_storage_replication_factor: int = low(
        type=ConfigType.SHORT, default=3, validator=REPLICAS, doc="Its replication factor when it is created."
    )

    # The worker's own clients
    client_id: str = low(default="", doc="A part of the names by which the brokers know the worker's own clients.")
    metadata_max_age_ms: int = _ms(300000, "How old what is known of the cluster may be.")
    send_buffer_bytes: int = setting(
        default=131072, validator=Range.at_least(-1), doc="The size of the sending buffer; -1: the system's."
    )
    receive_buffer_bytes: int = setting(
        default=32768, validator=Range.at_least(-1), doc="The size of the receiving buffer; -1: the system's."
    )
    reconnect_backoff_ms: int = _ms(50, "The first pause before a broker is tried again.")
    reconnect_backoff_max_ms: int = _ms(1000, "The longest such pause.")
    socket_connection_setup_timeout_ms: int = _ms(10000, "How long connecting may take at first.")
    socket_connection_setup_timeout_max_ms: int = _ms(30000, "How long it may take after failures.")
    retry_backoff_ms: int = _ms(100, "The first pause before a request is made again.")
    retry_backoff_max_ms: int = _ms(1000, "The longest such pause.")
    request_timeout_ms: int = setting(default=40000, validator=Range.at_least(0), doc="How long an answer may take.")
    connections_max_idle_ms: int = setting(
        type=ConfigType.LONG, default=540000, doc="After how long an idle connection is closed."
    )
    metadata_recovery_strategy: str = low(
        default="rebootstrap",
        validator=CaseInsensitiveValidString("REBOOTSTRAP", "NONE"),
        doc="What to do when no known broker answers: begin again with bootstrap.servers, or not.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _ms(300000, "After how long without metadata that happens.")
    security_protocol: str = setting(
        default="PLAINTEXT",
        validator=CaseInsensitiveValidString("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        doc="How the worker's own clients talk to brokers; those of connectors have producer., consumer. and admin. "
        "settings of their own.",
    )

    # SASL
    sasl_mechanism: str = setting(default="GSSAPI", doc="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.")
    sasl_jaas_config: Password | None = setting(default=None, doc="The login: Java's login module with its options.")
    sasl_client_callback_handler_class: str | None = setting(type=ConfigType.CLASS, default=None, doc=JVM)
    sasl_login_callback_handler_class: str | None = setting(type=ConfigType.CLASS, default=None, doc=JVM)
    sasl_login_class: str | None = setting(type=ConfigType.CLASS, default=None, doc=JVM)
    sasl_kerberos_service_name: str | None = low(default=None, doc="The brokers' service.")
    sasl_kerberos_kinit_cmd: str = low(default="/usr/bin/kinit", doc="The command that gets a ticket.")
    sasl_kerberos_ticket_renew_window_factor: float = low(default=0.8, doc="When in a ticket's life it is renewed.")
    sasl_kerberos_ticket_renew_jitter: float = low(default=0.05, doc="How much that is spread.")
    sasl_kerberos_min_time_before_relogin: int = low(
        type=ConfigType.LONG, default=60000, doc="The shortest time between renewals."
    )
    sasl_login_refresh_window_factor: float = low(
        default=0.8, validator=Range.between(0.5, 1.0), doc="When in a token's life another one is asked for."
    )
    sasl_login_refresh_window_jitter: float = low(
        default=0.05, validator=Range.between(0.0, 0.25), doc="How much that is spread."
    )
    sasl_login_refresh_min_period_seconds: int = low(
        type=ConfigType.SHORT, default=60, validator=Range.between(0, 900), doc="The shortest time between tokens."
    )
    sasl_login_refresh_buffer_seconds: int = low(
        type=ConfigType.SHORT,
        default=300,
        validator=Range.between(0, 3600),
        doc="How long before its end a token is replaced.",
    )
    sasl_login_connect_timeout_ms: int | None = low(
        default=None, doc="How long connecting to the provider of tokens may take."
    )
    sasl_login_read_timeout_ms: int | None = low(default=None, doc="How long its answer may take.")
    sasl_login_retry_backoff_max_ms: int = low(
        type=ConfigType.LONG, default=10000, doc="The longest pause between two tries."
    )
    sasl_login_retry_backoff_ms: int = low(type=ConfigType.LONG, default=100, doc="The first one.")
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        type=ConfigType.CLASS, default="org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", doc=JVM
    )
    sasl_oauthbearer_jwt_validator_class: str = setting(
        type=ConfigType.CLASS, default="org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", doc=JVM
    )
    sasl_oauthbearer_scope: str | None = setting(default=None, doc="The scope of the token.")
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(default=None, doc="The client's id.")
    sasl_oauthbearer_client_credentials_client_secret: Password | None = setting(
        default=None, doc="The client's secret."
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        default="RS256", validator=CaseInsensitiveValidString("ES256", "RS256"), doc="How an assertion is signed."
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(default=None, doc="The audience of an assertion.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = low(
        default=300, validator=Range.between(0, 86400), doc="How long an assertion counts."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(default=None, doc="Who issues an assertion.")
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(default=False, doc="Whether it has an id.")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = low(
        default=60, validator=Range.between(0, 3600), doc="How long before now it begins to count."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(default=None, doc="Whom it is about.")
    sasl_oauthbearer_assertion_file: str | None = setting(default=None, doc="A file with a finished assertion.")
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(default=None, doc="The key that signs it.")
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None = setting(
        default=None, doc="The key's password."
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(default=None, doc="A file with claims.")
    sasl_oauthbearer_scope_claim_name: str = low(default="scope", doc="The claim with the scope.")
    sasl_oauthbearer_sub_claim_name: str = low(default="sub", doc="The claim with the subject.")
    sasl_oauthbearer_token_endpoint_url: str | None = setting(default=None, doc="Where tokens come from.")
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(default=None, doc="Where the issuer's keys are.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = low(
        type=ConfigType.LONG, default=3600000, doc="How often they are read."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = low(
        type=ConfigType.LONG, default=10000, doc="The longest pause between tries."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = low(type=ConfigType.LONG, default=100, doc="The first one.")
    sasl_oauthbearer_clock_skew_seconds: int = low(default=30, doc="By how much clocks may differ.")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = low(default=(), doc="The audiences of a token that count.")
    sasl_oauthbearer_expected_issuer: str | None = low(default=None, doc="The issuer of a token that counts.")
    sasl_oauthbearer_header_urlencode: bool = low(default=False, doc="Whether the client's id and secret are encoded.")

    defaulted: tuple[tuple[str, str], ...]

    @classmethod
    def beside(cls, raw: dict[str, str], values: Mapping[str, object]) -> dict[str, Any]:
        defaulted = {name: str(values[name]) for name in _DEFAULTED if name not in raw}
        return {"raw": {**raw, **defaulted}, "defaulted": tuple(defaulted.items())}

    @property
    def keys(self) -> KeySettings:
        """The settings of the key with which workers sign their requests to each other."""
        return KeySettings(
            self.inter_worker_key_generation_algorithm,
            self.inter_worker_key_size,
            self.inter_worker_key_ttl_ms,
            self.inter_worker_signature_algorithm,
            self.inter_worker_verification_algorithms,
        )

    @classmethod
    def cross_faults(cls, properties: Mapping[str, str], values: Mapping[str, object]) -> list[SettingFault]:
        """Faults of combined settings; faults of signatures count only for `connect.protocol=sessioned`."""
        faults = _group_faults(properties, values)
        if values.get("connect.protocol") == "sessioned":
            faults += _key_faults(properties, values)
        return faults


DISTRIBUTED: Final = DistributedSettings.definition()


def mac_of(algorithm: str) -> str | None:
    """Python's name for the digest of one of Java's MACs; None if it has none.

    >>> mac_of("HmacSHA256"), mac_of("hmacsha512/256"), mac_of("AESCMAC")
    ('sha256', 'sha512_256', None)
    """
    lower = algorithm.strip().lower()
    digest = lower.removeprefix("hmac").replace("/", "_").replace("sha3-", "sha3_")
    return digest if lower.startswith("hmac") and digest in hashlib.algorithms_available else None


def _fault(name: str, why: str, properties: Mapping[str, str], values: Mapping[str, object]) -> SettingFault:
    return SettingFault.of(name, values.get(name), why, properties.get(name))


def _group_faults(properties: Mapping[str, str], values: Mapping[str, object]) -> list[SettingFault]:
    found = []
    session, heartbeat = values.get("session.timeout.ms"), values.get("heartbeat.interval.ms")
    if isinstance(session, int) and isinstance(heartbeat, int) and heartbeat >= session:
        why = f"it must be lower than session.timeout.ms, which is {session}; a third of it is usual"
        found.append(("heartbeat.interval.ms", why))
    topics = [name for name in _DEFAULTED if name.endswith("topic")]
    for name in topics:
        same = [other for other in topics if other != name and values.get(other) == values.get(name)]
        if same and name > same[0]:
            found.append((name, f"{same[0]} is the same topic"))
    empty = (name for name in _DEFAULTED if name in values and not str(values[name]).strip())
    found += [(name, "it must have a name") for name in empty]
    return [_fault(name, why, properties, values) for name, why in found]


def _key_faults(properties: Mapping[str, str], values: Mapping[str, object]) -> list[SettingFault]:
    fault = partial(_fault, properties=properties, values=values)
    faults = []
    verified = values.get("inter.worker.verification.algorithms")
    signature = values.get("inter.worker.signature.algorithm")
    unknown = "Python has no HMAC of that name; HmacSHA256 is usual"
    for name in ("inter.worker.key.generation.algorithm", "inter.worker.signature.algorithm"):
        if mac_of(str(values.get(name))) is None:
            faults.append(fault(name, unknown))
    if isinstance(verified, list):
        if not verified:
            faults.append(fault("inter.worker.verification.algorithms", "at least one algorithm is needed"))
        elif any(mac_of(str(one)) is None for one in verified):
            faults.append(fault("inter.worker.verification.algorithms", unknown))
        elif signature not in verified:
            why = (
                f"it lacks {signature}, which inter.worker.signature.algorithm names: workers must take what they sign"
            )
            faults.append(fault("inter.worker.verification.algorithms", why))
    size = values.get("inter.worker.key.size")
    if isinstance(size, int) and not 8 <= size <= _LARGEST_KEY_BITS:
        faults.append(fault("inter.worker.key.size", f"it counts bits, from 8 to {_LARGEST_KEY_BITS}"))
    return faults
