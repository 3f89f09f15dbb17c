"""``KafkaCluster``: a Kafka cluster that a connector uses, and its clients.

Thread: any; a cluster holds only settings; each client documents its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka as ck

from penstock.clients.admin import ClusterAdmin
from penstock.clients.reader import RecordReader, RecordWriter
from penstock.clients.trouble import Trouble
from penstock.errors import ConfigException
from penstock.kafka.settings.client import CLIENT_LOG, ClientSettings, client_knows, translate
from penstock.kafka.settings.librdkafka import reason_kept_from_connectors
from penstock.kafka.settings.table import ClientKind, setting_names

#: Idempotence allows no more, and keeps order and number of records over lost connections.
_WRITER: Final = {"enable.idempotence": "true", "acks": "all"}
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class KafkaCluster:
    """A cluster, defined by settings of Kafka's Java clients.

    Args:
        settings: Java's names (``bootstrap.servers``, ``security.protocol``, ``sasl.jaas.config``, ``ssl.*`` ..) and
            librdkafka's. Each client gets only the settings that its kind has.
        name: The name of the cluster in messages, for example ``the source cluster east``.

    Source: org.apache.kafka.clients, the configurations of consumer, producer and admin client.
    """

    def __init__(self, settings: Mapping[str, str], *, name: str) -> None:
        self.name = name
        self._settings = dict(settings)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers, as configured."""
        return self._settings.get("bootstrap.servers", "")

    @staticmethod
    def knows(name: str) -> bool:
        """True if a client of any kind has a setting of this name: Kafka's or librdkafka's."""
        return any(name in setting_names(kind) or client_knows(kind, name) for kind in ClientKind)

    def faults(self, *, consumer: Mapping[str, str] = _NONE, admin: Mapping[str, str] = _NONE) -> list[tuple[str, str]]:
        """Names and reasons of the settings with which a client cannot be created; does not call the cluster.

        Args:
            consumer: Further settings of a consumer.
            admin: Further settings of an admin client.
        """
        found: dict[str, str] = {}
        if not self.bootstrap_servers.strip():
            found["bootstrap.servers"] = f"{self.name} has no bootstrap.servers: name its brokers, as host:port"
        for kind, further in ((ClientKind.CONSUMER, consumer), (ClientKind.ADMIN, admin)):
            for name in (*self._settings, *further):
                if kept := reason_kept_from_connectors(name):
                    found[name] = f"a connector may not set it: {kept}"
            for fault in self._translated(kind, further).refused:
                found.setdefault(fault.name, fault.reason)
        return list(found.items())

    def reader(self, settings: Mapping[str, str] = _NONE) -> RecordReader:
        """A reader of partitions, without a consumer group.

        Args:
            settings: Further settings of a consumer; ``isolation.level`` for example.
        """
        made = self._made(ClientKind.CONSUMER, settings)
        return RecordReader(made, name=self.name)

    def admin(
        self, settings: Mapping[str, str] = _NONE, *, timeout_s: float = 60.0, read_only: bool = False
    ) -> ClusterAdmin:
        """An admin client.

        Args:
            settings: Further settings of an admin client.
            timeout_s: The time limit of each call, in seconds.
            read_only: True if calls must not change the cluster, as in previews; see ``ClusterAdmin``.

        Raises:
            ConfigException: A setting is refused, or the client does not take it.
        """
        made = self._made(ClientKind.ADMIN, settings)
        return ClusterAdmin(made, name=self.name, timeout_s=timeout_s, read_only=read_only)

    def writer(self, settings: Mapping[str, str] = _NONE) -> RecordWriter:
        """A writer of single records.

        Args:
            settings: Further settings of a producer. Those of connections and logins apply; batching is fixed.
        """
        common = {name: text for name, text in settings.items() if name in setting_names(ClientKind.ADMIN)}
        made = {**self._made(ClientKind.ADMIN, common), **_WRITER}
        trouble = Trouble()
        client = self._client(lambda: ck.Producer({**made, "error_cb": trouble.told}, logger=CLIENT_LOG))
        return RecordWriter(client, trouble, name=self.name)

    def _made(self, kind: ClientKind, further: Mapping[str, str]) -> dict[str, Any]:
        for name in (*self._settings, *further):
            if kept := reason_kept_from_connectors(name):
                raise ConfigException(f"{self.name}: a connector may not set {name}: {kept}")
        return dict(self._translated(kind, further).checked().librdkafka)

    def _translated(self, kind: ClientKind, further: Mapping[str, str]) -> ClientSettings:
        known = frozenset[str]().union(*map(setting_names, ClientKind))
        own = setting_names(kind)
        common = {name: text for name, text in self._settings.items() if name in own or name not in known}
        return translate(kind, {**common, **further})

    def _client(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (ck.KafkaException, ValueError, TypeError) as error:
            raise ConfigException(f"No client of {self.name} can be made: {error}") from error
