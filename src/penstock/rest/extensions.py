"""REST extensions of users, and the stock extension for basic authentication.

Filters and handlers run on separate threads, because they may block. Files of users are read once, at the start of the
worker: ``rest.basic.auth.file`` names a file of ``user=password`` lines, and is enough to turn the stock extension on.
Without it the file is named as in Java: ``KAFKA_OPTS`` has ``-Djava.security.auth.login.config=FILE``, and the entry
``KafkaConnect`` of that JAAS file names the users' file.

Source: org.apache.kafka.connect.runtime.rest.RestServer.registerRestExtensions; KIP-285;
    org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api.rest import (
    ClusterState,
    RestExtension,
    RestExtensionContext,
    RestFilter,
    RestHandler,
    RestRequest,
    RestResponse,
)
from penstock.config import import_class
from penstock.config.properties import parse_properties
from penstock.errors import ConfigException, NotFoundException
from penstock.herder import Herder
from penstock.plugins.kinds import SignatureError, check_methods
from penstock.rest.bodies import read_body
from penstock.rest.errors import Entry, error_body, not_json, on_error
from penstock.rest.services import Services, raw_path, services

log = logging.getLogger(__name__)

#: The worker's setting that names the users' file.
USERS_FILE: Final = "rest.basic.auth.file"
#: The worker's setting that names the users who may only read.
READ_ONLY: Final = "rest.basic.auth.read.only.users"
JAVA_NAME: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
ENTRY: Final = "KafkaConnect"

_OPTION: Final = "-Djava.security.auth.login.config="
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*|(?m:^\s*#[^\n]*)", re.DOTALL)
_FILE_OPTION: Final = re.compile(r"""\bfile\s*=\s*(?:"([^"]*)"|([^\s;]+))""")
#: Requests between workers; they carry their own signature.
_INTERNAL: Final = re.compile(r"(?:POST /connectors/[^/]+/tasks|PUT /connectors/[^/]+/fence)/?")
#: The methods that change nothing and run no code with a client's settings.
_READING: Final = ("GET", "HEAD", "OPTIONS")
_REFUSED: Final = RestResponse(401, b"User cannot access the resource.", {"Content-Type": "application/json"})


class BasicAuthExtension(RestExtension):
    """Admits only requests of known users.

    Attributes:
        guards_admin: True if separate admin listeners require authentication, too; with Java's way of naming the file
            they stay open.
    """

    def __init__(self) -> None:
        self._passwords: dict[str, str] = {}
        self._read_only: frozenset[str] = frozenset()
        self.guards_admin = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """Reads the users."""
        own = configs.get(USERS_FILE, "").strip()
        self.guards_admin = bool(own)
        path = own or users_file(login_file(os.environ))
        self._passwords = read_users(path)
        self._read_only = frozenset(filter(None, map(str.strip, configs.get(READ_ONLY, "").split(","))))
        if unknown := sorted(self._read_only - self._passwords.keys()):
            # A misspelt name would leave the intended user with all rights.
            raise ConfigException(READ_ONLY, ", ".join(unknown), f"The file {path} has no such user")

    def register(self, context: RestExtensionContext) -> None:
        """Adds the filter."""
        context.add_filter(self.check)

    def check(self, request: RestRequest) -> RestResponse | None:
        """The refusal of a request, or None to admit it."""
        if _INTERNAL.fullmatch(f"{request.method} {request.path}"):
            return None
        user, _, password = _credentials(request.headers.get("authorization", "")).partition(":")
        expected = self._passwords.get(user)
        same = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not same:
            return _REFUSED
        if user in self._read_only and request.method not in _READING:
            message = f"User {user} may only read ({READ_ONLY}): {request.method} {request.path} is not allowed"
            return RestResponse(403, error_body(403, message), {"Content-Type": "application/json"})
        return None


def login_file(environment: Mapping[str, str]) -> str:
    """The JAAS file that the environment names.

    >>> login_file({"KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config=/etc/jaas.conf"})
    '/etc/jaas.conf'
    """
    for word in shlex.split(environment.get("KAFKA_OPTS", "")):
        if word.startswith(_OPTION):
            return word.removeprefix(_OPTION)
    raise ConfigException(
        f"The REST extension for basic authentication needs a file of user=password lines: name it in {USERS_FILE}, or "
        f"as Java does, with KAFKA_OPTS={_OPTION}FILE, where the entry {ENTRY} of that JAAS file names it"
    )


def users_file(path: str) -> str:
    """The file of users that the entry ``KafkaConnect`` of a JAAS file names."""
    text = _COMMENT.sub("", _read(path))
    entry = re.search(rf"\b{ENTRY}\s*\{{(.*?)\}}\s*;", text, re.DOTALL)
    if entry is None:
        raise ConfigException(f"The JAAS file {path} has no entry {ENTRY} {{ ... }};")
    option = _FILE_OPTION.search(entry[1])
    if option is None:
        raise ConfigException(f'The entry {ENTRY} of the JAAS file {path} has no option file="..."')
    return option[1] or option[2]


def read_users(path: str) -> dict[str, str]:
    """The users of a file of ``user=password`` lines, with their passwords; warns if all users may read it."""
    users = parse_properties(_read(path))
    if not users:
        raise ConfigException(f"The file {path} has no user; write lines of the form user=password")
    if os.stat(path).st_mode & stat.S_IROTH:
        log.warning("Everybody on this machine may read %s, which holds passwords: chmod 600 %s", path, path)
    return users


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"The file {path} cannot be read: {error}") from error


def _credentials(header: str) -> str:
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""


_BASIC_AUTH: Final = (JAVA_NAME, JAVA_NAME.rpartition(".")[2])


class HerderState:
    """The state of the cluster for extensions, from the herder's snapshot."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def connectors(self) -> list[str]:
        return list(self._herder.connectors())

    def connector_config(self, name: str) -> Mapping[str, str]:
        view = self._herder.connectors().get(name)
        if view is None:
            raise NotFoundException(f"Connector {name} not found")
        return view.config

    def connector_status(self, name: str) -> Mapping[str, object]:
        view = self._herder.connectors().get(name)
        status = None if view is None else view.status_json()
        if status is None:
            raise NotFoundException(f"No status found for connector {name}")
        return status

    def kafka_cluster_id(self) -> str | None:
        return self._herder.kafka_cluster_id


class Extensions:
    """The extensions of one worker, registered.

    Args:
        classes: ``rest.extension.classes``.
        settings: The worker's settings; ``rest.basic.auth.file`` adds the stock extension, before all others.
        state: The cluster state that extensions may read.
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
        return self._state

    @property
    def admin_filters(self) -> list[RestFilter]:
        """The filters for requests to separate admin listeners."""
        guards = [one for one in self._extensions if isinstance(one, BasicAuthExtension)]
        return [guard.check for guard in guards if guard.guards_admin]

    def add_filter(self, request_filter: RestFilter) -> None:
        self.filters.append(request_filter)

    def add_route(self, method: str, path: str, handler: RestHandler) -> None:
        @not_json
        async def endpoint(request: Request) -> Response:
            asked = _request(request, await read_body(request))
            return _response(await services(request).on_thread("rest-extension", lambda: handler(asked)))

        self.entries.append((method.upper(), path, endpoint))

    def close(self) -> None:
        """Closes all extensions, in reverse order."""
        while self._extensions:
            self._extensions.pop().close()


class ExtensionFilters:
    """Runs the filters before each request.

    Args:
        filters: The filters, in their order.
    """

    def __init__(self, app: ASGIApp, filters: Sequence[RestFilter], shared: Services) -> None:
        self._app = app
        self._filters = tuple(filters)
        self._services = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
