"""The secrets of each connector, which must not be shown: secret settings, and values from config providers.

Main type: ``KnownSecrets``. Main function: ``still_secret``, the settings that stay secrets after a change of the
configuration. The values of placeholders are noted when connectors and tasks start, so that their errors do not reveal
them.

Thread: any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from penstock.herder.connector_facts import ConnectorFacts
from penstock.model import ConnectorType
from penstock.model.cluster_config import ConfiguredConnector
from penstock.validation.config_infos import Redaction, is_secret_name, provided_values
from penstock.validation.validator import Checked

#: The number of kept placeholder values of one connector; providers may return another value each time.
_MOST_VALUES: Final = 1_000
#: The number of kept names of former settings of one connector.
_MOST_NAMES: Final = 1_000


def still_secret(before: ConfiguredConnector, then: Checked, now: Checked) -> frozenset[str]:
    """The settings that were secrets of a connector and would be visible after the change.

    Args:
        before: The present connector, with its kept secret names.
        then: The facts of its present configuration.
        now: The facts of the next configuration.
    """
    given = {name for name, text in before.config.items() if text}
    lost = (given & then.secrets) - now.secrets
    if then.type is ConnectorType.UNKNOWN:
        # All were hidden because the secrets were unknown; a setting with a definition now is no secret.
        lost -= now.defined
    found = {name for name in before.secrets | lost if not is_secret_name(name)}
    return frozenset(sorted(found, key=lambda name: (name not in given, name))[:_MOST_NAMES])


class KnownSecrets:
    """The known secrets of all connectors.

    Args:
        facts: The facts of their classes.
    """

    def __init__(self, facts: ConnectorFacts) -> None:
        self._facts = facts
        self._lock = threading.Lock()
        self._provided: dict[str, dict[str, str]] = {}

    def names(self, name: str, known: ConfiguredConnector) -> frozenset[str]:
        """The secret settings of a connector, in addition to those with a secret's name."""
        return self._facts.known(name, known.config).secrets | known.secrets

    def note(self, name: str, given: Mapping[str, str], resolved: Mapping[str, str]) -> None:
        """Notes the values of the placeholders of a connector or one of its tasks."""
        values = provided_values(given, resolved)
        if not values:
            return
        with self._lock:
            found = {**self._provided.get(name, {})}
            for value, placeholder in values.items():
                found.pop(value, None)
                found[value] = placeholder
            self._provided[name] = dict(list(found.items())[-_MOST_VALUES:])

    def forget(self, name: str) -> None:
        """Forgets a deleted connector."""
        with self._lock:
            self._provided.pop(name, None)

    def redaction(self, name: str, known: ConfiguredConnector | None) -> Redaction:
        """Removes a connector's secrets, and the values of its placeholders, from texts."""
        with self._lock:
            provided = self._provided.get(name, {})
        if known is None:
            return Redaction(provided)
        # If the class has not answered yet, a setting is hidden by its name; a value in a text could be any word.
        checked = self._facts.known(name, known.config)
        names = known.secrets if checked.type is ConnectorType.UNKNOWN else known.secrets | checked.secrets
        values = [text for key, text in known.config.items() if text and (key in names or is_secret_name(key))]
        return Redaction(provided, values)
