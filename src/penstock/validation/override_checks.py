"""Checks the client settings that a connector overrides: the policy must allow them, the client must take them.

Main functions: ``check_overrides``, ``check_group``, ``clients_of``. Names are looked at before values, see
``penstock.kafka.override_policy``; no client is made. Pure, but that key stores are read.

Source: org.apache.kafka.connect.runtime.AbstractHerder.validateClientOverrides; KIP-458.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.config import ConfigType, ConfigValue, Importance, Width
from penstock.config.definition import ConfigKey
from penstock.errors import ConfigException
from penstock.kafka.client_table import ClientKind, is_client_secret, setting_for
from penstock.kafka.override_policy import OverridePolicy, overrides_of
from penstock.model import ConnectorType
from penstock.settings import with_prefix
from penstock.validation.config_infos import Finding

_GROUP: Final = "consumer.override.group.id"


def check_overrides(
    config: Mapping[str, str], connector_type: ConnectorType, policy: OverridePolicy, worker: Mapping[str, str]
) -> list[Finding]:
    """Returns the findings about ``producer.override.*``, ``consumer.override.*`` and ``admin.override.*``.

    Values and the policy count only for the clients that such a connector uses, as in Kafka Connect. What no connector
    may set is refused for all of them.
    """
    # Imported here: a command that only lists connectors does without it.
    from penstock.kafka.client_settings import refused_overrides

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
        # A setting that was not given can be at fault too: what another one needs.
        for fault in refused_overrides(kind, worker, config, policy) if given else ():
            if fault.name in forbidden:
                continue
            text = str(ConfigException(prefix + fault.name, fault.value, fault.reason))
            values.setdefault(fault.name, ConfigValue(fault.name)).add_error_message(text)
        findings += [Finding(_key(kind, name), value, prefix, given.get(name)) for name, value in values.items()]
    return findings


def _kept(kind: ClientKind, prefix: str, config: Mapping[str, str]) -> list[Finding]:
    """Returns the findings about settings that no connector may set, of a client that it does not use."""
    found = []
    for name, reason in overrides_of(kind, config, OverridePolicy())[1].items():
        value = ConfigValue(name, config[prefix + name])
        value.add_error_message(reason)
        found.append(Finding(_key(kind, name), value, prefix, config[prefix + name]))
    return found


def check_group(
    config: Mapping[str, str], found: Mapping[str, ConfigValue], overrides: Sequence[Finding], workers: str
) -> None:
    """Adds an error where the consumers of a sink would join the group of the workers, which Kafka refuses both."""
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
    return ConfigKey(
        name=name,
        type=ConfigType.PASSWORD if secret else ConfigType.STRING,
        default=None,
        validator=None,
        importance=Importance.LOW,
        doc=f"A setting of the connector's {kind.value}.",
        group=None,
        order=-1,
        width=Width.NONE,
        display_name=name,
        dependents=(),
        recommender=None,
    )
