"""Loads REST extensions and serves what they add.

Main types: ``Extensions``, ``ExtensionFilters`` (the part around the application). Filters and handlers run on threads
of their own, because they may block.

Source: org.apache.kafka.connect.runtime.rest.RestServer.registerRestExtensions; KIP-285.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api.rest import ClusterState, RestExtension, RestFilter, RestHandler, RestRequest, RestResponse
from penstock.config import import_class
from penstock.errors import ConfigException, NotFoundException
from penstock.herder import Herder
from penstock.plugins.signatures import SignatureError, check_methods
from penstock.rest.basic_auth import JAVA_NAME, READ_ONLY, USERS_FILE, BasicAuthExtension
from penstock.rest.bodies import read_body
from penstock.rest.errors import on_error
from penstock.rest.other_workers import raw_path
from penstock.rest.routing import Entry, not_json
from penstock.rest.services import Services, services

_BASIC_AUTH: Final = (JAVA_NAME, JAVA_NAME.rpartition(".")[2])


class HerderState:
    """The state of the cluster for extensions, from the herder's snapshot."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def connectors(self) -> list[str]:
        """See ``ClusterState``."""
        return list(self._herder.connectors())

    def connector_config(self, name: str) -> Mapping[str, str]:
        """See ``ClusterState``."""
        view = self._herder.connectors().get(name)
        if view is None:
            raise NotFoundException(f"Connector {name} not found")
        return view.config

    def connector_status(self, name: str) -> Mapping[str, object]:
        """See ``ClusterState``."""
        view = self._herder.connectors().get(name)
        status = None if view is None else view.status_json()
        if status is None:
            raise NotFoundException(f"No status found for connector {name}")
        return status

    def kafka_cluster_id(self) -> str | None:
        """See ``ClusterState``."""
        return self._herder.kafka_cluster_id


class Extensions:
    """The extensions of one worker, registered.

    Args:
        classes: ``rest.extension.classes``.
        settings: The worker's; ``rest.basic.auth.file`` adds the stock extension, before all others.
        state: What extensions may know.

    Raises:
        ConfigException: one cannot be found, made or configured.
    """

    def __init__(self, classes: Sequence[str], settings: Mapping[str, str], state: ClusterState) -> None:
        self.filters: list[RestFilter] = []
        self.entries: list[Entry] = []
        self._state = state
        self._extensions: list[RestExtension] = []
        try:
            for text in _wanted(classes, settings):
                extension = _made(text)
                self._extensions.append(extension)
                extension.configure(dict(settings))
                extension.register(self)
        except BaseException:
            self.close()
            raise

    @property
    def cluster_state(self) -> ClusterState:
        """See ``RestExtensionContext``."""
        return self._state

    @property
    def admin_filters(self) -> list[RestFilter]:
        """The filters for requests to admin listeners of their own."""
        guards = [one for one in self._extensions if isinstance(one, BasicAuthExtension)]
        return [guard.check for guard in guards if guard.guards_admin]

    def add_filter(self, request_filter: RestFilter) -> None:
        """See ``RestExtensionContext``."""
        self.filters.append(request_filter)

    def add_route(self, method: str, path: str, handler: RestHandler) -> None:
        """See ``RestExtensionContext``."""

        @not_json
        async def endpoint(request: Request) -> Response:
            asked = _request(request, await read_body(request))
            return _response(await services(request).on_thread("rest-extension", lambda: handler(asked)))

        self.entries.append((method.upper(), path, endpoint))

    def close(self) -> None:
        """Closes all, in reverse order."""
        while self._extensions:
            self._extensions.pop().close()


class ExtensionFilters:
    """Asks the filters before each request.

    Args:
        app: Answers what they let pass.
        filters: In order.
        shared: Runs them.
    """

    def __init__(self, app: ASGIApp, filters: Sequence[RestFilter], shared: Services) -> None:
        self._app = app
        self._filters = tuple(filters)
        self._services = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            asked = Request(scope)
            plain = _request(asked, b"")

            def first_answer() -> RestResponse | None:
                return next(filter(None, (check(plain) for check in self._filters)), None)

            try:
                answer = await self._services.on_thread("rest-filter", first_answer)
            except Exception as error:
                await on_error(asked, error, self._services.own_paths)(scope, receive, send)
                return
            if answer is not None:
                await _response(answer)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _wanted(classes: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    named = [name for name in (text.strip() for text in classes) if name]
    if settings.get(USERS_FILE, "").strip() and not any(name in _BASIC_AUTH for name in named):
        named.insert(0, JAVA_NAME)
    if settings.get(READ_ONLY, "").strip() and not any(name in _BASIC_AUTH for name in named):
        raise ConfigException(READ_ONLY, settings[READ_ONLY], f"No user is asked for; set {USERS_FILE} too")
    return named


def _made(text: str) -> RestExtension:
    if text in _BASIC_AUTH:
        return BasicAuthExtension()
    try:
        cls = import_class(text)
        check_methods(cls)
        extension: object = cls()
    except LookupError as error:
        raise ConfigException("rest.extension.classes", text, str(error)) from error
    except SignatureError as error:
        raise ConfigException("rest.extension.classes", text, f"It cannot be used: {error}") from error
    except BaseException as error:
        raise ConfigException("rest.extension.classes", text, f"It cannot be made: {error}") from error
    if not isinstance(extension, RestExtension):
        raise ConfigException("rest.extension.classes", text, "It does not extend penstock.api.RestExtension")
    return extension


def _request(request: Request, body: bytes) -> RestRequest:
    query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    headers = {name.lower(): text for name, text in request.headers.items()}
    return RestRequest(request.method, raw_path(request.scope), query, headers, body)


def _response(answer: RestResponse) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers))
