"""Finds settings that no class reads, and checks the client settings that a connector overrides.

Users' connectors, transforms and converters may read settings that they do not define. For them only a name close to
that of a setting is reported; for Penstock's own classes every unknown name is.

Pure, except that it asks the worker's converters for their settings, and reads key stores; no client is made.
Source: org.apache.kafka.connect.runtime.AbstractHerder.validateClientOverrides; KIP-458.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef, ConfigKey, ConfigType, ConfigValue, Importance
from penstock.config.properties import NamesByPrefix
from penstock.config.providers import Unresolved
from penstock.config.suggestions import candidates, nearest
from penstock.errors import ConfigException
from penstock.kafka.settings.table import (
    ClientKind,
    OverridePolicy,
    is_client_secret,
    java_name_of,
    overrides_of,
    setting_for,
    setting_names,
)
from penstock.model import ConnectorType
from penstock.plugins import PluginKind, Plugins
from penstock.settings import STANDALONE, with_prefix
from penstock.settings.plugin_classes import CONVERTERS
from penstock.validation.config_infos import Finding, SettingWarning

_OURS: Final = ("penstock.connectors.", "penstock.transforms.", "penstock.converters.")
#: Settings of a worker's file whose names other programs define.
_FREE: Final = ("spark.", "metrics.context.", "listeners.https.", "admin.listeners.https.")
#: Settings whose classes read further settings from the worker's file.
_READERS: Final = ("rest.extension.classes", "metric.reporters")
#: Settings of distributed workers only; a file may be used for both kinds.
_DISTRIBUTED: Final = re.compile(
    r"group\.id|(config|offset|status)\.storage\.(topic|replication\.factor|partitions)|exactly\.once\.source\.support"
    r"|(worker|scheduled\.rebalance|rebalance|session|heartbeat|inter\.worker|connect\.protocol)\..*|connect\.protocol"
)


def placeholder_warnings(unresolved: Iterable[Unresolved]) -> list[SettingWarning]:
    """Warnings about placeholders that no provider resolves."""
    ends = {True: "it cannot be started so", False: "it is taken as it stands"}
    return [SettingWarning(one.setting, f"{one}; {ends[one.known]}") for one in unresolved]


def connector_warnings(
    config: Mapping[str, str], connector: type, findings: Sequence[Finding], values: Mapping[str, ConfigValue]
) -> list[SettingWarning]:
    """Warnings about settings of a connector that no code reads; ``values`` are those of the framework."""
    known = _Known(findings, values)
    undefined = [name for name in config if name not in known.names]
    found = []
    for name in undefined[:_MOST_LOOKED_AT]:
        message = _fault_of(name, config, connector, known)
        if message is not None:
            found.append(SettingWarning(name, message))
    if more := undefined[_MOST_LOOKED_AT:]:
        message = f"Nothing defines it, nor {len(more) - 1} others after it; they were not examined"
        found.append(SettingWarning(more[0], message))
    return found


#: A configuration with more undefined settings than this was generated.
_MOST_LOOKED_AT: Final = 1_000


class _Known:
    """The settings that some class defines, prepared for many lookups."""

    def __init__(self, findings: Sequence[Finding], values: Mapping[str, ConfigValue]) -> None:
        self.names = {one.name for one in findings if one.key is not None or ".override." not in one.name}
        self.values = values
        self.below = lru_cache(maxsize=None)(NamesByPrefix(self.names).below)
        self.aliases = lru_cache(maxsize=None)(self._aliases)
        self.lengths = lru_cache(maxsize=None)(self._lengths)

    @cached_property
    def own(self) -> list[str]:
        """The settings of Connect and of the connector itself."""
        others = ("transforms.", "predicates.", *CONVERTERS)
        return [*sorted(name for name in self.names if not name.startswith(others)), *CONVERTERS]

    def _aliases(self, setting: str) -> dict[str, None]:
        """Returns the entries of a list of aliases, in its order."""
        listed = self.values[setting].value if setting in self.values else None
        return dict.fromkeys(map(str, listed)) if isinstance(listed, list) else {}

    def alias_of(self, setting: str, below: str) -> str | None:
        """The longest alias of a list with which a name, without its first part, begins; it may have dots."""
        aliases, lengths = self.aliases(setting), self.lengths(setting)
        # Not cut at each dot of the name: a name of only dots would be cut once for each character.
        return next((below[:end] for end in lengths if below[end : end + 1] == "." and below[:end] in aliases), None)

    def _lengths(self, setting: str) -> list[int]:
        return sorted({len(alias) for alias in self.aliases(setting)}, reverse=True)


def _fault_of(name: str, config: Mapping[str, str], connector: type, known: _Known) -> str | None:
    """Returns the fault of a name that no definition has, or None if some code may still read it."""
    for kind in ClientKind:
        prefix = f"{kind.value}.override."
        if name.startswith(prefix):
            return _client_fault(kind, prefix, name)
    for setting in CONVERTERS:
        if name.startswith(f"{setting}."):
            if not config.get(setting):
                return f"it changes nothing, because the connector has no {setting} of its own: the worker's is used"
            return _plugin_fault(name, f"{setting}.", known, known.values.get(setting))
    for aliases in ("transforms", "predicates"):
        if name.startswith(f"{aliases}."):
            return _alias_fault(name, aliases, known)
    if name.startswith("topic.creation."):
        return _group_fault(name, known)
    if name in STANDALONE.keys:
        return "it is a setting of the worker and changes nothing here: it belongs into the worker's file"
    return _unknown(name, known.own, f"{connector.__name__} and Kafka Connect have", _is_ours(connector))


def _client_fault(kind: ClientKind, prefix: str, name: str) -> str | None:
    # Imported here, because it loads the Kafka client, and the command imports this module before REST listens.
    from penstock.kafka.settings.client import client_knows

    own, names = name.removeprefix(prefix), setting_names(kind)
    if own in names or own.startswith("metrics.context.") or client_knows(kind, own):
        return None
    near = java_name_of(kind, own)
    if near is not None:
        return f"Kafka's {kind.value} has no setting of this name; it changes nothing. Did you mean {prefix}{near}?"
    return _unknown(name, [prefix + one for one in names], f"Kafka's {kind.value} has", True, prefix)


def _plugin_fault(name: str, prefix: str, known: _Known, value: ConfigValue | None) -> str | None:
    """Returns the fault of a setting of a converter, transform or predicate."""
    cls = None if value is None else value.value
    if value is None or value.error_messages or not isinstance(cls, type):
        return None
    return _unknown(name, known.below(prefix), f"{cls.__name__} has", _is_ours(cls), prefix)


def _alias_fault(name: str, setting: str, known: _Known) -> str | None:
    """Returns the fault of a setting below ``transforms.`` or ``predicates.``."""
    if setting not in known.values or known.values[setting].value is None:
        # The list itself is invalid, which its own error reports.
        return None
    alias = known.alias_of(setting, name.removeprefix(f"{setting}."))
    if alias is not None:
        prefix = f"{setting}.{alias}."
        return _plugin_fault(name, prefix, known, known.values.get(f"{prefix}type"))
    given = name.split(".", 2)[1]
    near = closest(given, known.aliases(setting))
    meant = f"; did you mean {near}?" if near else ""
    return f"it changes nothing, because {setting} does not list {given}{meant}"


def _group_fault(name: str, known: _Known) -> str | None:
    """Returns the fault of a rule for the creation of topics; a group takes any setting of a topic."""
    setting = "topic.creation.groups"
    if setting not in known.values:
        return "it changes nothing: topics are created for source connectors only"
    below = name.removeprefix("topic.creation.")
    group = "default" if below.startswith("default.") else known.alias_of(setting, below)
    if group is None:
        given = below.split(".", 1)[0]
        near = closest(given, ["default", *known.aliases(setting)])
        meant = f"; did you mean {near}?" if near else ""
        return f"it changes nothing, because {setting} does not list {given}{meant}"
    prefix = f"topic.creation.{group}."
    rules = ["partitions", "replication.factor", *(["include", "exclude"] if group != "default" else [])]
    if name.removeprefix(prefix) in (*rules, *_TOPIC_SETTINGS):
        return None
    own = [prefix + one for one in (*rules, *_TOPIC_SETTINGS)]
    return _unknown(name, own, "a topic has", False)


def worker_warnings(properties: Mapping[str, str], plugins: Plugins) -> list[SettingWarning]:
    """Returns warnings about settings of a worker's file that no code reads."""
    clients = frozenset[str]().union(*(setting_names(kind) for kind in ClientKind))
    known = {*STANDALONE.keys, *clients}
    always = not any((properties.get(name) or "").strip() for name in _READERS)
    found = []
    for name in properties:
        if name in known or name.startswith(_FREE) or _DISTRIBUTED.fullmatch(name):
            continue
        message = _fault_in_worker(name, properties, plugins, always)
        if message is not None:
            found.append(SettingWarning(name, message))
    return found


def _fault_in_worker(name: str, properties: Mapping[str, str], plugins: Plugins, always: bool) -> str | None:
    for kind in ClientKind:
        if name.startswith(f"{kind.value}."):
            return _client_fault(kind, f"{kind.value}.", name)
    for setting, plugin_kind in CONVERTERS.items():
        if name.startswith(f"{setting}."):
            return _converter_fault(name, setting, properties.get(setting), plugin_kind, plugins)
    if name.startswith("config.providers."):
        alias, _, rest = name.removeprefix("config.providers.").partition(".")
        listed = [one.strip() for one in (properties.get("config.providers") or "").split(",")]
        if alias not in listed:
            return f"it changes nothing, because config.providers does not list {alias}"
        if rest == "class" or rest.startswith("param."):
            return None
        names = [f"config.providers.{alias}.{one}" for one in ("class", "param")]
        return _unknown(name, names, "a config provider has", True)
    return _unknown(name, STANDALONE.keys, "a worker has", always)


def _converter_fault(name: str, setting: str, text: str | None, kind: PluginKind, plugins: Plugins) -> str | None:
    """Returns the fault of a setting of a worker's converter; faults of the class itself are reported elsewhere."""
    try:
        converter = plugins.new(kind, text or STANDALONE.keys[setting].default_text() or "")
        assert isinstance(converter, (Converter, HeaderConverter))
        names = [f"{setting}.{key}" for key in converter.config().keys]
    except BaseException:  # of a user's class, too
        return None
    if name in names:
        return None
    return _unknown(name, names, f"{type(converter).__name__} has", _is_ours(type(converter)), f"{setting}.")


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith(_OURS)


def _unknown(name: str, known: Iterable[str], who: str, always: bool, prefix: str = "") -> str | None:
    """The warning about an unknown name; None if some class may read it without a definition."""
    names = list(known)
    near = closest(name, names)
    if near is None and always:
        own = [one.removeprefix(prefix) for one in names]
        like = nearest(name.removeprefix(prefix), own, 0.75)
        near = None if like is None else prefix + like
    elif near is None:
        return None
    said = f"{who} no setting of this name" + ("; it changes nothing" if always else "")
    return said + (f". Did you mean {near}?" if near else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one means: it differs in a letter or two of a word, or in the separators.

    >>> closest("errors.tolerence", ["errors.tolerance", "errors.log.enable"])
    'errors.tolerance'
    >>> closest("tasksMax", ["tasks.max"])
    'tasks.max'
    >>> closest("connection.url", ["connection.user"])
    """
    best: tuple[int, str] | None = None
    for one in candidates(name, known):
        distance = _distance(name, one)
        if distance is not None and (best is None or distance < best[0]):
            best = distance, one
    return None if best is None else best[1]


def _distance(name: str, other: str) -> int | None:
    """Counts the different letters; None if the names are unrelated."""
    if _plain(name) == _plain(other):
        return 0
    words, others = name.lower().split("."), other.lower().split(".")
    if len(words) != len(others) or re.sub(r"\d", "", name) == re.sub(r"\d", "", other):
        return None
    total = 0
    for word, meant in zip(words, others, strict=True):
        if abs(len(word) - len(meant)) > _MOST_EDITS:
            return None
        wrong = _edits(word, meant)
        length = min(len(word), len(meant))
        if wrong > (2 if length > _SHORT else 1 if length > _ABBREVIATION else 0):
            return None
        total += wrong
    return total if total <= _MOST_EDITS else None


_SHORT: Final = 5
_ABBREVIATION: Final = 2
_MOST_EDITS: Final = 2


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return re.sub(r"[._\-\s]", "", name).lower()


def _edits(word: str, other: str) -> int:
    """The number of letters to insert, remove, replace or swap with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        two_before, before, row = before, row, [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
    return row[-1]


#: Source: org.apache.kafka.common.config.TopicConfig of Kafka 4.3.
_TOPIC_SETTINGS: Final = (
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)


_GROUP: Final = "consumer.override.group.id"


def check_overrides(
    config: Mapping[str, str], connector_type: ConnectorType, policy: OverridePolicy, worker: Mapping[str, str]
) -> list[Finding]:
    """Returns the findings about ``producer.override.*``, ``consumer.override.*`` and ``admin.override.*``.

    Values and the policy are checked only for the clients that such a connector uses, as in Kafka Connect. A setting
    that no connector may set is refused for all clients.
    """
    # Imported here, because a command that only lists connectors does not need it.
    from penstock.kafka.settings.client import refused_overrides

    findings = []
    used = clients_of(connector_type, config)
    for kind in ClientKind:
        prefix = f"{kind.value}.override."
        if kind not in used:
            findings += _kept(kind, prefix, config)
            continue
        given = with_prefix(config, prefix)
        values = {name: ConfigValue(name, text) for name, text in given.items()}
        _, forbidden = overrides_of(kind, config, policy)
        for name, reason in forbidden.items():
            values[name].add_error_message(reason)
        # A missing setting can be at fault too, if another setting requires it.
        for fault in refused_overrides(kind, worker, config, policy) if given else ():
            if fault.name in forbidden:
                continue
            text = str(ConfigException(prefix + fault.name, fault.value, fault.reason))
            values.setdefault(fault.name, ConfigValue(fault.name)).add_error_message(text)
        findings += [Finding(_key(kind, name), value, prefix, given.get(name)) for name, value in values.items()]
    return findings


def _kept(kind: ClientKind, prefix: str, config: Mapping[str, str]) -> list[Finding]:
    """Returns the findings about settings that no connector may set, for a client that it does not use."""
    found = []
    for name, reason in overrides_of(kind, config, OverridePolicy())[1].items():
        value = ConfigValue(name, config[prefix + name])
        value.add_error_message(reason)
        found.append(Finding(_key(kind, name), value, prefix, config[prefix + name]))
    return found


def check_group(
    config: Mapping[str, str], found: Mapping[str, ConfigValue], overrides: Sequence[Finding], workers: str
) -> None:
    """Adds an error if the consumers of a sink would join the workers' group; Kafka refuses a group of both."""
    name, given = config.get("name"), config.get(_GROUP)
    if (f"connect-{name}" if given is None else given) != workers:
        return
    value = found["name"] if given is None else next(one.value for one in overrides if one.name == _GROUP)
    value.add_error_message(
        f"Consumer group for sink connector named {name} conflicts with Connect worker group {workers}; choose another "
        f"{'name, or set ' if given is None else ''}{_GROUP}"
    )


def clients_of(connector_type: ConnectorType, config: Mapping[str, str]) -> list[ClientKind]:
    """The clients that a connector of this configuration uses."""
    source = connector_type is ConnectorType.SOURCE
    letters = bool((config.get("errors.deadletterqueue.topic.name") or "").strip())
    creates = any(name.startswith("topic.creation.") for name in config)
    used = []
    if source or letters:
        used.append(ClientKind.PRODUCER)
    if not source:
        used.append(ClientKind.CONSUMER)
    if (source and creates) or (not source and letters):
        used.append(ClientKind.ADMIN)
    return used


def _key(kind: ClientKind, name: str) -> ConfigKey | None:
    secret = is_client_secret(name)
    if setting_for(kind, name) is None and not secret:
        return None
    kind_of_value = ConfigType.PASSWORD if secret else ConfigType.STRING
    doc = f"A setting of the connector's {kind.value}."
    return ConfigDef().define(name, kind_of_value, default=None, importance=Importance.LOW, doc=doc).keys[name]
