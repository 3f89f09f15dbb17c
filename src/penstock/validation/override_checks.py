"""Checks the client settings that a connector overrides: the policy must allow them, the client must take them.

Main types: ``OverridePolicy``. Main functions: ``check_overrides``, ``check_group``, ``parse_policy``. Pure.

Source: org.apache.kafka.connect.runtime.AbstractHerder.validateClientOverrides; KIP-458.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.config import ConfigType, ConfigValue, Importance, Width
from penstock.config.definition import ConfigKey
from penstock.errors import ConfigException
from penstock.kafka.client_table import ClientKind, setting_for
from penstock.model import ConnectorType
from penstock.settings import with_prefix
from penstock.validation.config_infos import Finding

_PACKAGE: Final = "org.apache.kafka.connect.connector.policy."
_SUFFIX: Final = "ConnectorClientConfigOverridePolicy"
_PRINCIPAL: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_GROUP: Final = "consumer.override.group.id"
_KNOWN: Final = ("All", "None", "Principal", "Allowlist")


@dataclass(frozen=True)
class OverridePolicy:
    """Which client settings connectors may override.

    Attributes:
        name: All, None, Principal or Allowlist.
        allowed: The settings that are allowed; None for all.
    """

    name: str = "All"
    allowed: frozenset[str] | None = None

    def allows(self, setting: str) -> bool:
        """Whether a client setting, without prefix, may be overridden."""
        return self.allowed is None or setting in self.allowed


def parse_policy(text: str, allowlist: Sequence[str]) -> OverridePolicy:
    """The policy that a worker's file names, by its short name or Java's class name.

    >>> parse_policy("org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy", ()).name
    'None'

    Raises:
        ConfigException: there is no such policy.
    """
    name = text.strip().removeprefix(_PACKAGE).removesuffix(_SUFFIX)
    allowed = {
        "All": None,
        "None": frozenset[str](),
        "Principal": _PRINCIPAL,
        "Allowlist": frozenset(allowlist),
    }
    if name not in allowed:
        raise ConfigException(
            "connector.client.config.override.policy", text, f"There is no such policy; choose {', '.join(_KNOWN)}"
        )
    return OverridePolicy(name, allowed[name])


def check_overrides(
    config: Mapping[str, str], connector_type: ConnectorType, policy: OverridePolicy, worker: Mapping[str, str]
) -> list[Finding]:
    """What is found about ``producer.override.*``, ``consumer.override.*`` and ``admin.override.*``.

    Only the clients that such a connector uses are looked at, as in Kafka Connect.
    """
    # Imported here: it brings the Kafka client, and the command imports this module before the REST server listens.
    from penstock.kafka.client_settings import refused_overrides

    findings = []
    for kind in clients_of(connector_type, config):
        prefix = f"{kind.value}.override."
        given = with_prefix(config, prefix)
        values = {name: ConfigValue(name, text) for name, text in given.items()}
        forbidden = {name for name in given if not policy.allows(name)}
        for name in forbidden:
            values[name].add_error_message(
                f"The '{policy.name}' policy does not allow '{name}' to be overridden in the connector configuration."
            )
        # A setting that was not given can be at fault too: what another one needs.
        for fault in refused_overrides(kind, worker, config) if given else ():
            if fault.name not in forbidden:
                text = str(ConfigException(prefix + fault.name, fault.value, fault.reason))
                values.setdefault(fault.name, ConfigValue(fault.name)).add_error_message(text)
        findings += [Finding(_key(kind, name), value, prefix, given.get(name)) for name, value in values.items()]
    return findings


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


def is_client_secret(name: str) -> bool:
    """Whether a setting of a connector is a secret of a Kafka client.

    >>> is_client_secret("producer.override.sasl.jaas.config"), is_client_secret("producer.override.acks")
    (True, False)
    """
    for kind in ClientKind:
        prefix = f"{kind.value}.override."
        if name.startswith(prefix):
            row = setting_for(kind, name.removeprefix(prefix))
            return row is not None and row.secret
    return False


def _key(kind: ClientKind, name: str) -> ConfigKey | None:
    row = setting_for(kind, name)
    if row is None:
        return None
    return ConfigKey(
        name=name,
        type=ConfigType.PASSWORD if row.secret else ConfigType.STRING,
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
