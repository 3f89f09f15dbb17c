"""Extensions of a worker's REST API: filters and additional paths, called on one thread for each request.

Source: org.apache.kafka.connect.rest.ConnectRestExtension; KIP-285.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class RestRequest:
    """A request. Source: Penstock's own.

    Attributes:
        method: In upper case.
        path: Without the query, as it was sent.
        query: The values of each parameter.
        headers: By name in lower case.
        body: The bytes of the body; always empty for filters.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class RestResponse:
    """A response. Source: Penstock's own."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class ClusterState(Protocol):
    """The state of the cluster, as far as an extension may read it. Any thread; never blocks.

    Source: org.apache.kafka.connect.health.ConnectClusterState.
    """

    def connectors(self) -> list[str]:
        """The names of all connectors."""

    def connector_config(self, name: str) -> Mapping[str, str]:
        """The configuration of a connector, without secrets.

        Raises:
            NotFoundException: No connector has this name.
        """

    def connector_status(self, name: str) -> Mapping[str, object]:
        """The state of a connector and its tasks, as in ``GET /connectors/{name}/status``.

        Raises:
            NotFoundException: No connector has this name.
        """

    def kafka_cluster_id(self) -> str | None:
        """The id of the Kafka cluster; None while it is not known."""


RestFilter = Callable[[RestRequest], "RestResponse | None"]
RestHandler = Callable[[RestRequest], RestResponse]


class RestExtensionContext(Protocol):
    """The registry for the filters and paths of an extension. Source: ConnectRestExtensionContext, KIP-285."""

    @property
    def cluster_state(self) -> ClusterState:
        """The state of the cluster, to read."""

    def add_filter(self, request_filter: RestFilter) -> None:
        """Adds a filter that is called before every request; a response ends the request, None lets it pass."""

    def add_route(self, method: str, path: str, handler: RestHandler) -> None:
        """Adds a path, which must not be one of the worker's."""


class RestExtension(ABC):
    """Extends the REST API. Made with no arguments; ``configure``, ``register`` and ``close`` are called once each.

    Source: org.apache.kafka.connect.rest.ConnectRestExtension.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Receives the worker's settings.

        Raises:
            ConfigException: The settings are wrong: the worker does not start.
        """

    @abstractmethod
    def register(self, context: RestExtensionContext) -> None:
        """Adds filters and routes. Must not block."""

    def close(self) -> None:
        """Releases resources, after the last request."""

    def version(self) -> str:
        """The version."""
        return "undefined"
