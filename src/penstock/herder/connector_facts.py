"""The facts from connector classes: source or sink, the most tasks, the secret settings.

Main type: ``ConnectorFacts``. A configuration comes checked from a request to this worker, or unchecked from a store.
Finding the facts runs users' code, so it happens on separate threads, once for each configuration; before that, and if
a class is missing, all settings other than Connect's own are hidden.

Thread: ``find`` and ``learn`` are called on the herder's thread; ``known`` from any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from penstock.errors import ConnectException, KafkaException
from penstock.herder.loop import HerderLoop
from penstock.model import ConnectorType
from penstock.model.cluster_config import Properties
from penstock.settings import CONNECTOR, SINK, SOURCE
from penstock.validation.validator import Checked, ConfigurationValidator

#: Settings of Connect itself, none of which is a secret.
_OPEN: Final = CONNECTOR.keys.keys() | SOURCE.keys.keys() | SINK.keys.keys()

#: The number of configurations that are examined at the same time: each takes a thread.
_AT_ONCE: Final = 4
#: The number of configurations of one connector whose facts are kept.
_REMEMBERED: Final = 4


def unknown(config: Mapping[str, str | None]) -> Checked:
    """Returns the facts about a configuration that are known without its class.

    >>> sorted(unknown({"name": "a", "connector.class": "Gone", "url": "x"}).secrets)
    ['url']
    """
    return Checked(ConnectorType.UNKNOWN, secrets=frozenset(config.keys() - _OPEN))


class ConnectorFacts:
    """The known facts of each connector.

    Args:
        loop: The herder's thread.
        validator: Knows the classes.
        resolve: Resolves the placeholders of a configuration, as far as they have values; may read files.
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

    def known(self, name: str, config: Properties) -> Checked:
        """Returns the facts about a configuration that are known now; never waits. Thread: any."""
        return self._found(name, config) or unknown(config)

    def looked_at(self, name: str, config: Properties) -> bool:
        """True if the class of a configuration was called, even if that failed. Thread: any."""
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
            given = {key: value for key, value in config.items() if value is not None}

            def ask() -> Checked:
                try:
                    resolved = self._resolve(given)
                except (ConnectException, KafkaException):
                    # The class, and its setting definitions, rarely depend on a secret that cannot be read.
                    resolved = given
                return self._validator.facts(resolved)

            asked = self._asked[name] = (config, asyncio.ensure_future(self._ask(name, ask)))
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

    async def _ask(self, name: str, ask: Callable[[], Checked]) -> Checked:
        async with self._asking:
            return await self._loop.off_loop(f"facts-{name}", ask)
