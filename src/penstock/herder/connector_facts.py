"""The facts from connector classes (source or sink, the most tasks, the secret settings), and each connector's secrets.

Finding facts runs users' code, so it happens on separate threads, once for each configuration; before that, and if a
class is missing, all settings other than Connect's own are hidden. The values of placeholders are noted when connectors
and tasks start, so that their errors do not reveal them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final

from penstock.errors import ConnectException, KafkaException
from penstock.herder.loop import HerderLoop
from penstock.model import ConnectorType
from penstock.model.cluster_config import ConfiguredConnector, Properties, plain
from penstock.settings import CONNECTOR, SINK, SOURCE
from penstock.validation.config_infos import Redaction, is_secret_name, provided_values
from penstock.validation.validator import Checked, ConfigurationValidator

#: Settings of Connect itself, none of which is a secret.
_OPEN: Final = CONNECTOR.keys.keys() | SOURCE.keys.keys() | SINK.keys.keys()
#: The number of configurations that are examined at the same time: each takes a thread.
_AT_ONCE: Final = 4
#: The number of configurations of one connector whose facts are kept.
_REMEMBERED: Final = 4
#: The number of kept placeholder values of one connector; providers may return another value each time.
_MOST_VALUES: Final = 1_000
#: The number of kept names of former settings of one connector.
_MOST_NAMES: Final = 1_000


def unknown(config: Mapping[str, str | None]) -> Checked:
    """The facts about a configuration that are known without its class.

    >>> sorted(unknown({"name": "a", "connector.class": "Gone", "url": "x"}).secrets)
    ['url']
    """
    return Checked(ConnectorType.UNKNOWN, secrets=frozenset(config.keys() - _OPEN))


class ConnectorFacts:
    """The known facts and secrets of each connector.

    Args:
        loop: The herder's thread.
        validator: Knows the classes.
        resolve: Resolves the placeholders of a configuration, as far as they have values; may read files.

    Thread: ``find`` and ``learn`` are called on the herder's thread, the other methods on any.
    """

    def __init__(
        self,
        loop: HerderLoop,
        validator: ConfigurationValidator,
        resolve: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> None:
        self._loop = loop
        self._validator = validator
        self._resolve = resolve
        # The last configurations of each connector, and their facts; None if the class did not answer. Several are
        # kept, because the newest configuration may never be stored, or the answer for an older one may come last.
        self._known: dict[str, tuple[tuple[Properties, Checked | None], ...]] = {}
        self._asked: dict[str, tuple[Properties, asyncio.Future[Checked]]] = {}
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._lock = threading.Lock()
        # The placeholders of each connector's known secret values.
        self._provided: dict[str, dict[str, str]] = {}

    def known(self, name: str, config: Properties) -> Checked:
        """The facts about a configuration that are known now; never waits."""
        return self._found(name, config) or unknown(config)

    def looked_at(self, name: str, config: Properties) -> bool:
        """True if the class of a configuration was called, even if that failed."""
        return any(one == config for one, _ in self._known.get(name, ()))

    def learn(self, name: str, config: Properties, checked: Checked | None) -> None:
        """Notes the facts that a check has found; None if the class did not answer."""
        others = [entry for entry in self._known.get(name, ()) if entry[0] != config]
        self._known[name] = (*others[1 - _REMEMBERED :], (config, checked))

    def _found(self, name: str, config: Properties) -> Checked | None:
        return next((checked for one, checked in self._known.get(name, ()) if one == config), None)

    def forget(self, name: str) -> None:
        """Forgets a deleted connector."""
        self._known.pop(name, None)
        with self._lock:
            self._provided.pop(name, None)

    async def find(self, name: str, config: Properties) -> Checked:
        """The facts of a configuration; asks its class if they are not known yet.

        Raises:
            BadRequestException: its class is missing, cannot be made, or its number of tasks is wrong.
        """
        found = self._found(name, config)
        if found is not None:
            return found
        asked = self._asked.get(name)
        if asked is None or asked[0] != config:
            asked = self._asked[name] = (config, asyncio.ensure_future(self._ask(name, plain(config))))
        try:
            checked = await asyncio.shield(asked[1])
        except Exception:
            self.learn(name, config, None)
            raise
        finally:
            if self._asked.get(name) is asked:
                del self._asked[name]
        self.learn(name, config, checked)
        return checked

    async def _ask(self, name: str, given: Mapping[str, str]) -> Checked:
        def ask() -> Checked:
            try:
                resolved = self._resolve(given)
            except (ConnectException, KafkaException):
                # The class, and its setting definitions, rarely depend on a secret that cannot be read.
                resolved = given
            return self._validator.facts(resolved)

        async with self._asking:
            return await self._loop.off_loop(f"facts-{name}", ask)

    # ------------------------------------------------------------------ secrets
    def secrets(self, name: str, known: ConfiguredConnector) -> frozenset[str]:
        """The secret settings of a connector, in addition to those with a secret's name."""
        return self.known(name, known.config).secrets | known.secrets

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

    def redaction(self, name: str, known: ConfiguredConnector | None) -> Redaction:
        """Removes a connector's secrets, and the values of its placeholders, from texts."""
        with self._lock:
            provided = self._provided.get(name, {})
        if known is None:
            return Redaction(provided)
        # If the class has not answered yet, a setting is hidden by its name; a value in a text could be any word.
        checked = self.known(name, known.config)
        names = known.secrets if checked.type is ConnectorType.UNKNOWN else known.secrets | checked.secrets
        values = [text for key, text in known.config.items() if text and (key in names or is_secret_name(key))]
        return Redaction(provided, values)


def still_secret(before: ConfiguredConnector, then: Checked, now: Checked) -> frozenset[str]:
    """The settings that were secrets of a connector and would be visible after a change.

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
