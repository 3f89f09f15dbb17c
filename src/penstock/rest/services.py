"""The objects that routes share, and the requests between the workers of a group.

A request that this worker cannot serve raises ``NotHereException`` with the address of the worker that can. A request
is passed on at most twice: the first worker sends it to the leader or to the worker of a task, with ``forward=true``;
that worker may pass it on once more, with ``forward=false``.

Thread: the REST server's. ``WorkerClient`` and ``SignedRequests`` block, on any thread but the REST server's and the
herder's. Source: RestClient and HerderRequestHandler of Kafka Connect; KIP-507.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from penstock.errors import BadRequestException, ConflictException, ConnectException, ForbiddenException
from penstock.herder import Herder
from penstock.herder.cluster.session_keys import Signer
from penstock.herder.control_plane import NotHereException
from penstock.model import ConnectorTaskId
from penstock.model.cluster_config import SessionKey
from penstock.model.payloads import ConnectorView
from penstock.telemetry import Metrics
from penstock.telemetry.logs import Loggers
from penstock.threads import in_own_thread
from penstock.validation.plugin_checks import PluginCatalog
from penstock.worker.task.waiting import because


def raw_path(scope: Scope) -> str:
    """The path as sent, without the query, even if the request names the whole address, as to a proxy."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    if path.startswith("/"):
        return path
    try:
        return urlsplit(path).path or path
    except ValueError:
        return path


#: The time limit of a user's request, and of a request to another worker that it waits for.
REQUEST_TIMEOUT_S: Final = 90.0
_CONNECT_S: Final = 10.0
#: The bytes of an answer that are read; no worker's answer is this large.
_LARGEST_ANSWER: Final = 64 << 20


@dataclass(frozen=True)
class WorkerResponse:
    """The answer of a worker."""

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
    """Sends requests to other workers.

    Args:
        tls: The TLS context for https addresses; None if there are none.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
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
            body: The bytes of the body: JSON, or empty.
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
        key: The group's key; None while this worker has read none.
    """

    def __init__(self, client: WorkerClient, signer: Signer, key: Callable[[], SessionKey | None]) -> None:
        self._client = client
        self._signer = signer
        self._key = key

    def put_task_configs(self, url: str, connector: str, configs: Sequence[dict[str, str]]) -> None:
        body = json.dumps(list(configs), ensure_ascii=False, separators=(",", ":")).encode()
        self._ask("POST", url, f"/connectors/{quote(connector, safe='')}/tasks", body)

    def fence(self, url: str, connector: str) -> None:
        self._ask("PUT", url, f"/connectors/{quote(connector, safe='')}/fence")

    def restart_task(self, url: str, task: ConnectorTaskId) -> None:
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
    """Returns the error that another worker's refusal means for the worker that sent the request.

    Args:
        signed: True if the request was signed, or needs no signature.

    Returns:
        A ``ConflictException`` if a retry may succeed: a worker may send requests to a new leader before it has read
        the leader's session key.
    """
    text = f"Another worker refuses to {what}: {message} (HTTP {status})"
    if status in _PASSING or (status == 400 and not signed):
        return ConflictException(text)
    return {400: BadRequestException, 403: ForbiddenException}.get(status, ConnectException)(text)


T = TypeVar("T")

#: Seconds that a read waits until classes have declared their secret settings; before that, answers show less.
_LOOK_S: Final = 2.0


class RequestTimeout(Exception):
    """A request took too long; its work continues, and the caller gets this error."""


@dataclass(frozen=True)
class Services:
    """The services that routes work with.

    Attributes:
        plugins: The catalog of plugins; it may import them, so its calls run on other threads.
        topic_tracking: True if the topics of connectors are tracked.
        topic_reset: True if users may reset them.
        workers: Sends requests to other workers of the group; None if there is no group.
        own_paths: The worker's files and directories by the settings that name them: no answer shows them.
    """

    herder: Herder
    version: str
    commit: str
    plugins: PluginCatalog
    loggers: Loggers = field(default_factory=Loggers)
    metrics: Metrics = field(default_factory=Metrics)
    topic_tracking: bool = True
    topic_reset: bool = True
    request_timeout_s: float = REQUEST_TIMEOUT_S
    workers: WorkerClient | None = None
    scheme: str = "http"
    own_paths: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def answer(self, future: Future[T], name: str | None = None, *, ends: bool = False) -> T:
        """Awaits a request.

        Args:
            name: The connector that it is about, to name its present step after a timeout.
            ends: True for a read, whose work ends after a timeout. A change continues.

        Raises:
            RequestTimeout: it took too long.
        """
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self.request_timeout_s)
        if not done:
            then = "The request continues; look at the status of the connector later"
            # Before the end of the work, which forgets its step.
            doing = None if name is None else self.herder.busy_with(name)
            if ends:
                waiting.cancel()
                then = "What was begun for it is ended"
            raise RequestTimeout(
                "Request timed out. The worker is currently "
                + (doing or f"busy with {'other work' if name is None else f'connector {name}'}")
                + f". {then}"
            )
        return waiting.result()

    async def look_at(self, names: Iterable[str]) -> None:
        """Waits a moment for the facts of the classes of connectors: the secret settings, source or sink."""
        if (looking := self.herder.look_at(names)) is not None:
            await asyncio.wait({asyncio.wrap_future(looking)}, timeout=_LOOK_S)

    async def on_thread(self, name: str, call: Callable[[], T], *, ends: bool = False) -> T:
        """Runs a call that may block on a separate thread; see ``answer`` for ``ends``."""
        future, thread = in_own_thread(name, call)
        try:
            return await self.answer(future, ends=ends)
        except RequestTimeout:
            if ends:
                thread.end_work()
            raise


def services(request: Request) -> Services:
    """The services of the application that got this request."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


def flag(request: Request, name: str, default: bool) -> bool:
    """A boolean query parameter; any text other than ``true`` means false."""
    text = request.query_params.get(name)
    return default if text is None else text.strip().lower() == "true"


_FORWARD: Final = "forward"
_CONFLICT: Final = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
#: Headers of the connection, and headers that this worker sets itself.
_NOT_PASSED_ON: Final = ("connection", "content-length", "date", "server", "transfer-encoding", "keep-alive")


async def forward(request: Request, elsewhere: NotHereException) -> Response:
    """The answer of the worker that can serve a request."""
    s = services(request)
    passed_on = request.query_params.get(_FORWARD)
    if passed_on is not None and passed_on.strip().lower() != "true":
        raise ConflictException(_CONFLICT)
    if elsewhere.url is None or s.workers is None:
        raise ConflictException(str(elsewhere))
    workers, url = s.workers, elsewhere.url
    query = [(name, value) for name, value in request.query_params.multi_items() if name != _FORWARD]
    path = f"{raw_path(request.scope)}?{urlencode([*query, (_FORWARD, 'true' if passed_on is None else 'false')])}"
    body = _body(request, elsewhere)
    headers = {}
    if (login := request.headers.get("authorization")) is not None:
        headers["Authorization"] = login
    method = request.method
    answer = await s.on_thread("forward", lambda: workers.ask(method, url, path, body, headers))
    passed = {name: value for name, value in answer.headers.items() if name not in _NOT_PASSED_ON}
    if (location := passed.get("location")) is not None:
        # The client knows this worker's address; it may not be able to reach other workers.
        passed["location"] = f"{str(request.base_url).rstrip('/')}/connectors/{location.rpartition('/')[2]}"
    return Response(answer.body, answer.status, passed)


def _body(request: Request, elsewhere: NotHereException) -> bytes:
    """The body as received, or with the complete configuration if the request has only a part of it."""
    body: bytes = getattr(request.state, "body", b"")
    if elsewhere.config is None:
        return body
    config = dict(elsewhere.config)
    whole = json.loads(body)
    if isinstance(whole, Mapping) and isinstance(whole.get("config"), Mapping) and request.method == "POST":
        return _json({**whole, "name": whole.get("name", config.get("name")), "config": config})
    return _json(config)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


#: The fields of a task or connector that only its own worker knows.
_THEIRS: Final = ("waiting_for", "progress", "backfill")
#: The time limit of another worker's answer in seconds; slower workers are left out.
_TIMEOUT_S: Final = 5.0


async def with_other_workers(request: Request, name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """An explanation in which each part comes from the worker that runs it.

    Args:
        request: The request for the explanation; with ``forward=false`` it comes from another worker, which completes
            it.
    """
    s = services(request)
    view = s.herder.connectors().get(name)
    if s.workers is None or view is None or request.query_params.get("forward") == "false":
        return found
    places = _places(view, s.herder.worker_id)
    asked = sorted(set(places.values()))
    answers = dict(zip(asked, await asyncio.gather(*(_ask(s, request, one) for one in asked)), strict=True))
    tasks = [_part(places.get(task["id"]), answers, task, task["id"]) for task in found["tasks"]]
    whole = {"waiting_for": found["waiting_for"]}
    roads = _summed([found, *(answer for answer in answers.values() if not isinstance(answer, str))])
    return {**found, **_part(places.get(None), answers, whole, None), "tasks": tasks, "roads": roads}


def _summed(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sums the counts of a connector's records by path over all workers, most first."""
    found: Counter[tuple[str, str | None]] = Counter()
    for part in parts:
        for one in part.get("roads", ()):
            found[one["road"], one["why"]] += one["records"]
    return [{"road": road, "why": why, "records": count} for (road, why), count in found.most_common()]


def _places(view: ConnectorView, here: str) -> dict[int | None, str]:
    """The addresses of other workers, by the task that they run; None is the key of the connector's worker."""
    places: dict[int | None, str] = {status.id.task: status.worker_id for status in view.tasks}
    if view.status is not None:
        places[None] = view.status.worker_id
    return {part: worker_id for part, worker_id in places.items() if worker_id != here}


async def _ask(s: Services, request: Request, worker_id: str) -> Mapping[str, Any] | str:
    """Calls another worker; returns an error text if its answer cannot be used."""
    assert s.workers is not None
    workers, path = s.workers, f"{raw_path(request.scope)}?forward=false"
    login = request.headers.get("authorization")
    headers = {} if login is None else {"Authorization": login}
    try:
        answer = await s.on_thread(
            "explain-elsewhere",
            lambda: workers.ask("GET", f"{s.scheme}://{worker_id}", path, headers=headers, timeout_s=_TIMEOUT_S),
        )
        body = json.loads(answer.body)
    except (UnreachableWorkerException, ValueError, RecursionError) as error:
        return str(error)
    return body if answer.status == 200 and isinstance(body, dict) else answer.message


def _part(
    worker_id: str | None, answers: Mapping[str, Mapping[str, Any] | str], here: Mapping[str, Any], task: int | None
) -> Mapping[str, Any]:
    if worker_id is None:
        return here
    answer = answers[worker_id]
    if isinstance(answer, str):
        return {**here, "waiting_for": because("worker_away").because(f"{worker_id}: {answer}").to_json()}
    parts = [answer] if task is None else [one for one in answer.get("tasks", ()) if one.get("id") == task]
    return {**here, **{field: parts[0][field] for field in _THEIRS if field in parts[0]}} if parts else here
