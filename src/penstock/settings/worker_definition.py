"""The settings of a worker's file.

Main objects: `WORKER` (both modes), `STANDALONE`. Constants; any thread.

Source: WorkerConfig, StandaloneConfig and SslConfigs of Kafka 4.3; the last group is Penstock's own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.config import (
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigType,
    Importance,
    LambdaValidator,
    Range,
    Validator,
    ValidString,
)
from penstock.config.definition import NO_DEFAULT
from penstock.settings.worker_rules import check_admin_listeners, check_listeners, check_response_headers

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_TEXT, _LIST, _CLASS = ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS
_LONG, _INT, _BOOLEAN, _SECRET = ConfigType.LONG, ConfigType.INT, ConfigType.BOOLEAN, ConfigType.PASSWORD

_LISTENERS = "List of comma-separated URLs, ex: http://localhost:8080,https://localhost:8443."
_HEADER_RULES = (
    "Comma-separated header rules, where each header rule is of the form '[action] [header name]:[header value]' and "
    "optionally surrounded by double quotes if any part of a header rule contains a comma"
)


class _Row(NamedTuple):
    name: str
    type: ConfigType
    default: object
    importance: Importance
    doc: str
    validator: Validator | None = None


def _define(rows: tuple[_Row, ...]) -> ConfigDef:
    definition = ConfigDef()
    for row in rows:
        definition.define(
            row.name,
            row.type,
            default=row.default,
            validator=row.validator,
            importance=row.importance,
            doc=row.doc,
        )
    return definition


_BASICS = (
    _Row("bootstrap.servers", _LIST, NO_DEFAULT, _HIGH, "Host:port pairs at which the Kafka cluster is found."),
    _Row(
        "client.dns.lookup",
        _TEXT,
        "use_all_dns_ips",
        _MEDIUM,
        "How the clients use the addresses of a name.",
        ValidString("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    _Row("key.converter", _CLASS, NO_DEFAULT, _HIGH, "The converter of keys, where a connector has none."),
    _Row("key.converter.plugin.version", _TEXT, None, _LOW, "The version of that converter."),
    _Row("value.converter", _CLASS, NO_DEFAULT, _HIGH, "The converter of values, where a connector has none."),
    _Row("value.converter.plugin.version", _TEXT, None, _LOW, "The version of that converter."),
    _Row(
        "task.shutdown.graceful.timeout.ms",
        _LONG,
        5000,
        _LOW,
        "How long tasks have to stop before they are given up.",
    ),
    _Row("offset.flush.interval.ms", _LONG, 60000, _LOW, "How often the offsets of tasks are committed."),
    _Row("offset.flush.timeout.ms", _LONG, 5000, _LOW, "How long a commit of offsets may take before it is cancelled."),
    _Row("plugin.path", _LIST, None, _LOW, "Directories with plugins."),
    _Row(
        "plugin.discovery",
        _TEXT,
        "hybrid_warn",
        _LOW,
        "Accepted for compatibility: Python plugins are found in one way.",
        CaseInsensitiveValidString("only_scan", "service_load", "hybrid_warn", "hybrid_fail"),
    ),
    _Row(
        "metrics.sample.window.ms",
        _LONG,
        30000,
        _LOW,
        "The length of one sample of Max, Avg and Rate in the metrics of plugins.",
        Range.at_least(0),
    ),
    _Row("metrics.num.samples", _INT, 2, _LOW, "How many of these samples count.", Range.at_least(1)),
    _Row(
        "metrics.recording.level",
        _TEXT,
        "INFO",
        _LOW,
        "Which metrics are recorded.",
        ValidString("INFO", "DEBUG"),
    ),
    _Row(
        "metric.reporters",
        _LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        _LOW,
        "Accepted for compatibility: Java reporters cannot be loaded.",
    ),
    _Row(
        "header.converter",
        _CLASS,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        _LOW,
        "The converter of headers, where a connector has none.",
    ),
    _Row("header.converter.plugin.version", _TEXT, None, _LOW, "The version of that converter."),
    _Row("config.providers", _LIST, "", _LOW, "Names of the providers of values kept outside of configurations."),
    _Row(
        "connector.client.config.override.policy",
        _TEXT,
        "All",
        _MEDIUM,
        "Which client settings connectors may override: All, None, Principal, Allowlist or a class.",
    ),
    _Row(
        "connector.client.config.override.allowlist",
        _LIST,
        "",
        _LOW,
        "With the policy Allowlist: the client settings that connectors may override.",
    ),
    _Row("topic.creation.enable", _BOOLEAN, True, _LOW, "Create the topics of source connectors that ask for it."),
    _Row("topic.tracking.enable", _BOOLEAN, True, _LOW, "Keep the topics that each connector has used."),
    _Row("topic.tracking.allow.reset", _BOOLEAN, True, _LOW, "Let users reset those topics."),
)

_REST = (
    _Row(
        "listeners",
        _LIST,
        "http://:8083",
        _LOW,
        "The addresses of the REST API.",
        LambdaValidator(check_listeners, _LISTENERS),
    ),
    _Row("rest.advertised.host.name", _TEXT, None, _LOW, "The host name that other workers use."),
    _Row("rest.advertised.port", _INT, None, _LOW, "The port that other workers use."),
    _Row("rest.advertised.listener", _TEXT, None, _LOW, "The protocol that other workers use: http or https."),
    _Row("access.control.allow.origin", _TEXT, "", _LOW, "The origins that browsers may call from; empty for none."),
    _Row("access.control.allow.methods", _TEXT, "", _LOW, "The methods that they may use; empty for GET, POST, HEAD."),
    _Row(
        "response.http.headers.config",
        _TEXT,
        "",
        _LOW,
        "Rules for the headers of answers.",
        LambdaValidator(check_response_headers, _HEADER_RULES),
    ),
    _Row("rest.extension.classes", _LIST, "", _LOW, "Classes that extend the REST API."),
    _Row(
        "rest.basic.auth.file",
        _TEXT,
        None,
        _LOW,
        "Penstock's own: a file of user=password lines; requests have to name one of these users, with its password. "
        "Unset, everybody who reaches a listener may use the API, unless an extension says otherwise.",
    ),
    _Row(
        "rest.basic.auth.read.only.users",
        _LIST,
        "",
        _LOW,
        "Penstock's own: users who may look (GET, HEAD, OPTIONS), but change, validate and preview nothing.",
    ),
    _Row(
        "admin.listeners",
        _LIST,
        None,
        _LOW,
        "The addresses of the admin part: unset for those of the API, empty for none.",
        LambdaValidator(check_admin_listeners, _LISTENERS),
    ),
)

_TLS = (
    _Row("ssl.protocol", _TEXT, "TLSv1.3", _MEDIUM, "The TLS protocol."),
    _Row("ssl.provider", _TEXT, None, _MEDIUM, "Accepted for compatibility: a provider of the JVM."),
    _Row("ssl.cipher.suites", _LIST, "", _LOW, "The cipher suites to use; empty for the usual ones."),
    _Row("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", _MEDIUM, "The protocols to accept."),
    _Row(
        "ssl.keystore.type",
        _TEXT,
        "JKS",
        _MEDIUM,
        "PEM, PKCS12 or JKS; the key store itself counts.",
    ),
    _Row("ssl.keystore.location", _TEXT, None, _HIGH, "The key store's file."),
    _Row("ssl.keystore.password", _SECRET, None, _HIGH, "The key store's password."),
    _Row("ssl.key.password", _SECRET, None, _HIGH, "The password of the private key."),
    _Row("ssl.keystore.key", _SECRET, None, _HIGH, "The private key itself, PEM."),
    _Row("ssl.keystore.certificate.chain", _SECRET, None, _HIGH, "The certificate chain itself, PEM."),
    _Row("ssl.truststore.certificates", _SECRET, None, _HIGH, "The trusted certificates themselves, PEM."),
    _Row(
        "ssl.truststore.type",
        _TEXT,
        "JKS",
        _MEDIUM,
        "PEM, PKCS12 or JKS; the trust store itself counts.",
    ),
    _Row("ssl.truststore.location", _TEXT, None, _HIGH, "The trust store's file."),
    _Row("ssl.truststore.password", _SECRET, None, _HIGH, "The trust store's password."),
    _Row("ssl.keymanager.algorithm", _TEXT, "SunX509", _LOW, "Accepted for compatibility: a setting of the JVM."),
    _Row("ssl.trustmanager.algorithm", _TEXT, "PKIX", _LOW, "Accepted for compatibility: a setting of the JVM."),
    _Row(
        "ssl.endpoint.identification.algorithm",
        _TEXT,
        "https",
        _LOW,
        "https checks the host name of servers; empty does not.",
    ),
    _Row("ssl.secure.random.implementation", _TEXT, None, _LOW, "Accepted for compatibility: a setting of the JVM."),
    _Row("ssl.engine.factory.class", _CLASS, None, _LOW, "Accepted for compatibility: a class of the JVM."),
    _Row(
        "ssl.client.auth",
        _TEXT,
        "none",
        _LOW,
        "If clients of the REST API need a certificate.",
        ValidString("required", "requested", "none"),
    ),
)

_OWN = (
    _Row(
        "batch.max.records",
        _INT,
        100_000,
        _LOW,
        "The most records that pass the pipeline in one batch; more records a batch are faster and take more memory.",
        Range.at_least(1),
    ),
    _Row(
        "batch.max.bytes",
        _LONG,
        16 * 1024 * 1024,
        _LOW,
        "The size in bytes at which a batch is full, whatever its number of records.",
        Range.at_least(1),
    ),
    _Row(
        "penstock.spark.bypass",
        _TEXT,
        "columns",
        _LOW,
        "What may go around Spark: 'columns' are those of a batch that no transform or converter in Spark reads, such "
        "as offsets or converted headers, JSON messages of usual form are read by Arrow, and small batches of many "
        "schemas and previews are transformed and converted record by record. With 'never' columns take one more job a "
        "batch, plans read JSON, and many schemas get a plan each.",
        ValidString("columns", "never"),
    ),
    _Row(
        "penstock.kafka.producer",
        _TEXT,
        "columns",
        _LOW,
        "What sends the records of source tasks: 'columns' encodes whole batches and sends them over connections of "
        "its own, wherever a producer's settings ask for nothing that only librdkafka can do (TLS, SASL, acks except "
        "all, no idempotence, an own partitioner, librdkafka's own settings); 'librdkafka' always goes through that "
        "library, which costs about three times the processor time.",
        ValidString("columns", "librdkafka"),
    ),
    _Row(
        "penstock.kafka.static.members",
        _BOOLEAN,
        True,
        _LOW,
        "Whether each sink task is a static member of its consumer group (group.instance.id): a worker that was killed "
        "then goes on with the partitions it had as soon as it is started again. With 'false' the group first waits "
        "until the sessions of the old members have timed out (session.timeout.ms, 45 s). The worker's part of the ids "
        "is kept beside the offsets file. A group.instance.id of the user's own counts instead; where tasks.max is "
        "above 1, the number of the task is added to it.",
    ),
)

_STANDALONE = (
    _Row(
        "offset.storage.file.filename",
        _TEXT,
        NO_DEFAULT,
        _HIGH,
        "The file in which the offsets of source connectors are kept.",
    ),
    _Row(
        "config.storage.file.filename",
        _TEXT,
        None,
        _LOW,
        "Penstock's own: the file in which configurations and target states of connectors made over REST outlive the "
        "worker; unset for the name of the offsets file with .connectors.json added; empty to forget them, as Kafka "
        "Connect does.",
    ),
)

WORKER: Final = _define(_BASICS + _REST + _TLS + _OWN)
STANDALONE: Final = ConfigDef(WORKER, _define(_STANDALONE))
