"""The rules on which settings of its Kafka clients a connector may override: fixed ones, and the worker's policy.

Main types: `OverridePolicy`. Main functions: `parse_policy`, `policy_of`, `overrides_of`, which checks only names,
before any value is used.

Thread: any; pure.
Source: KIP-458; org.apache.kafka.connect.connector.policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import ConfigException
from penstock.kafka.settings.librdkafka_table import reason_kept_from_connectors
from penstock.kafka.settings.table import ClientKind

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
        """The reason why a client setting, without prefix, may not be overridden; None where it may.

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
        raise ConfigException(_POLICY, text, f"There is no such policy; choose {', '.join(_KNOWN)}")
    return OverridePolicy(name, allowed[name])


def policy_of(worker: Mapping[str, str]) -> OverridePolicy:
    """The policy of a worker with these properties.

    Raises:
        ConfigException: there is no such policy.
    """
    allowlist = [part.strip() for part in worker.get(_ALLOWLIST, "").split(",")]
    return parse_policy(worker.get(_POLICY, "All"), [part for part in allowlist if part])


def overrides_of(
    kind: ClientKind, connector: Mapping[str, str], policy: OverridePolicy
) -> tuple[dict[str, str], dict[str, str]]:
    """The client settings that a connector gives and may give, and the reasons against the others, by name.

    Names are without the prefix; nothing is done with the values.

    >>> given = {"consumer.override.client.rack": "a", "consumer.override.plugin.library.paths": "b"}
    >>> allowed, refused = overrides_of(ClientKind.CONSUMER, given, OverridePolicy())
    >>> allowed, list(refused)
    ({'client.rack': 'a'}, ['plugin.library.paths'])
    """
    prefix = f"{kind.value}.override."
    given = {name.removeprefix(prefix): text for name, text in connector.items() if name.startswith(prefix)}
    refused = {name: reason for name in given if (reason := policy.refusal(name)) is not None}
    return {name: text for name, text in given.items() if name not in refused}, refused
