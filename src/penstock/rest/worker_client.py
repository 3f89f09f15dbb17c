"""Requests of a worker to other workers of its group.

Main types: ``WorkerClient``; ``WorkerResponse``; ``SignedRequests``, which makes the signed requests between workers.

Thread: any but the REST server's and the herder's: every call blocks.
Source: org.apache.kafka.connect.runtime.rest.RestClient; KIP-507.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

from penstock.errors import BadRequestException, ConflictException, ConnectException, ForbiddenException
from penstock.herder.cluster.session_keys import Signer
from penstock.model import ConnectorTaskId
from penstock.model.cluster_config import SessionKey

#: The same as the time limit of the user's request that waits for it.
TIMEOUT_S: Final = 90.0
_CONNECT_S: Final = 10.0
#: No answer of a worker is that large.
_LARGEST_ANSWER: Final = 64 << 20


@dataclass(frozen=True)
class WorkerResponse:
    """The answer of a worker.

    Attributes:
        status: The HTTP status code.
        headers: By lower-case name.
        body: As it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def message(self) -> str:
        """The message of an error."""
        try:
            return str(json.loads(self.body)["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return self.body[:200].decode("utf-8", "replace")


class UnreachableWorkerException(ConflictException):
    """Another worker does not answer: it may have ended, and the group will soon assign its work again."""


class WorkerClient:
    """Asks other workers.

    Args:
        tls: The TLS context for https addresses; None if there are none.
        timeout_s: The time limit of an answer.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._tls = tls
        self._timeout_s = timeout_s

    def ask(
        self,
        method: str,
        base_url: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> WorkerResponse:
        """Makes one request.

        Args:
            method: The HTTP method.
            base_url: The worker's address.
            path: The encoded path with the query.
            body: Its bytes, JSON unless empty.
            headers: Further headers.
            timeout_s: The time limit of this answer; None for the default.

        Raises:
            UnreachableWorkerException: no answer came.
        """
        sent = {"Accept": "application/json", **(headers or {})}
        if body:
            sent["Content-Type"] = "application/json"
        try:
            connection = self._connection(base_url)
            try:
                connection.connect()
                connection.sock.settimeout(self._timeout_s if timeout_s is None else timeout_s)
                connection.request(method, path, body or None, sent)
                answer = connection.getresponse()
                return WorkerResponse(
                    answer.status,
                    {name.lower(): value for name, value in answer.getheaders()},
                    answer.read(_LARGEST_ANSWER),
                )
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            raise UnreachableWorkerException(
                f"IO Error trying to forward REST request: the worker at {base_url} does not answer ({why}). It may "
                "have ended, and a rebalance will follow; try again. If it runs, other workers must be able to reach "
                "it at the address that rest.advertised.host.name and rest.advertised.port give"
            ) from error

    def _connection(self, base_url: str) -> http.client.HTTPConnection:
        parts = urlsplit(base_url)
        if not parts.hostname:
            raise ValueError(f"{base_url!r} is no address")
        if parts.scheme == "https":
            context = ssl.create_default_context() if self._tls is None else self._tls()
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_CONNECT_S, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_CONNECT_S)


class SignedRequests:
    """The requests between workers, signed with the key of their group.

    Args:
        client: Makes the requests.
        signer: Signs them.
        key: The group's key; None while this worker has read none.
    """

    def __init__(self, client: WorkerClient, signer: Signer, key: Callable[[], SessionKey | None]) -> None:
        self._client = client
        self._signer = signer
        self._key = key

    def put_task_configs(self, url: str, connector: str, configs: Sequence[dict[str, str]]) -> None:
        """See ``OtherWorkers``."""
        body = json.dumps(list(configs), ensure_ascii=False, separators=(",", ":")).encode()
        self._ask("POST", url, f"/connectors/{quote(connector, safe='')}/tasks", body)

    def fence(self, url: str, connector: str) -> None:
        """See ``OtherWorkers``."""
        self._ask("PUT", url, f"/connectors/{quote(connector, safe='')}/fence")

    def restart_task(self, url: str, task: ConnectorTaskId) -> None:
        """See ``OtherWorkers``."""
        path = f"/connectors/{quote(task.connector, safe='')}/tasks/{task.task}/restart?forward=true"
        self._ask("POST", url, path, sign=False, what=f"restart task {task}")

    def _ask(
        self, method: str, url: str, path: str, body: bytes = b"", *, sign: bool = True, what: str | None = None
    ) -> None:
        key = self._key() if sign else None
        headers = {} if key is None else self._signer.headers(key, method, path, body)
        answer = self._client.ask(method, url, path, body, headers)
        if answer.status >= 300:
            what = what or f"{method} {path}"
            raise refusal(answer.status, answer.message, what, signed=key is not None or not sign)


#: The group is assigning its work, or a resource of the worker is not ready yet: the same request may succeed a little
#: later.
_PASSING: Final = (409, 503)


def refusal(status: int, message: str, what: str, *, signed: bool = True) -> ConnectException:
    """Returns the error that the refusal of another worker means for the one that has asked.

    Args:
        status: The HTTP status code.
        message: The message of the other worker.
        what: The action that it refused.
        signed: True if the request was signed, or needs no signature.

    Returns:
        A ``ConflictException`` where the same may be asked again a little later: a worker reads the session key of a
        new leader only after it may have work for it.
    """
    text = f"Another worker refuses to {what}: {message} (HTTP {status})"
    if status in _PASSING or (status == 400 and not signed):
        return ConflictException(text)
    return {400: BadRequestException, 403: ForbiddenException}.get(status, ConnectException)(text)
