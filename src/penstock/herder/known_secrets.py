"""The secrets of each connector, which must not be shown: settings that are secrets, and what config providers gave.

Main type: ``KnownSecrets``. Main function: ``still_secret``, which settings stay secrets when others are configured.
What placeholders stand for is noted where connectors and tasks begin, so that their errors do not tell it.

Thread: any.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from penstock.herder.connector_facts import ConnectorFacts
from penstock.model import ConnectorType
from penstock.model.cluster_config import ConfiguredConnector
from penstock.validation.config_infos import is_secret_name
from penstock.validation.redaction import Redaction, provided_values
from penstock.validation.validator import Checked

#: Of how many values of one connector the placeholders are known; providers may give another one each time.
_MOST_VALUES: Final = 1_000
#: How many settings of one connector are remembered that it has not any more.
_MOST_NAMES: Final = 1_000


def still_secret(before: ConfiguredConnector, then: Checked, now: Checked) -> frozenset[str]:
    """The settings that were secrets of a connector and would be shown from now on.

    Args:
        before: The connector as it is, with the settings that are remembered already.
        then: What was known of its present configuration.
        now: The same of the next one.
    """
    given = {name for name, text in before.config.items() if text}
    lost = (given & then.secrets) - now.secrets
    if then.type is ConnectorType.UNKNOWN:
        # All were hidden because nobody could say which are secrets; what is defined now is said to be none.
        lost -= now.defined
    found = {name for name in before.secrets | lost if not is_secret_name(name)}
    return frozenset(sorted(found, key=lambda name: (name not in given, name))[:_MOST_NAMES])


class KnownSecrets:
    """The known secrets of all connectors.

    Args:
        facts: Knows what their classes say.
    """

    def __init__(self, facts: ConnectorFacts) -> None:
        self._facts = facts
        self._lock = threading.Lock()
        self._provided: dict[str, dict[str, str]] = {}

    def names(self, name: str, known: ConfiguredConnector) -> frozenset[str]:
        """The settings of a connector that are secrets, whatever their names say."""
        return self._facts.known(name, known.config).secrets | known.secrets

    def note(self, name: str, given: Mapping[str, str], resolved: Mapping[str, str]) -> None:
        """Notes what the placeholders of a connector, or of a task of it, stand for."""
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
        """The connector is not configured any more."""
        with self._lock:
            self._provided.pop(name, None)

    def redaction(self, name: str, known: ConfiguredConnector | None) -> Redaction:
        """Takes a connector's secrets, and what its placeholders stand for, out of texts."""
        with self._lock:
            provided = self._provided.get(name, {})
        if known is None:
            return Redaction(provided)
        # What nobody could be asked for yet is hidden where it is a setting; in a text it may be any word.
        checked = self._facts.known(name, known.config)
        names = known.secrets if checked.type is ConnectorType.UNKNOWN else known.secrets | checked.secrets
        values = [text for key, text in known.config.items() if text and (key in names or is_secret_name(key))]
        return Redaction(provided, values)
