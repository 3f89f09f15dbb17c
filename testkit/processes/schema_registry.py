"""A schema registry in memory, over HTTP: the part of Confluent's REST API that converters and serializers use.

For tests of what a real registry cannot be asked for: outages, server errors, slow answers, refused credentials; and
in place of a real one: the one on Maven Central (Apicurio's) needs Java 21, and tests get along with 17.

Main types: ``RegistryStandIn`` (the server), ``Judge`` (whether a schema is one, and fits older ones; one for each
format).

Thread: ``RegistryStandIn`` owns one thread that serves, and one for each connection; its methods may be called from
any.
Source: Confluent's "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

_BACKWARD: Final = ("BACKWARD", "FULL")
_FORWARD: Final = ("FORWARD", "FULL")


class Judge(Protocol):
    """A registry's rules for one format. A schema is its text and the texts of what it refers to, by name."""

    def check(self, text: str, references: Mapping[str, str]) -> str | None:
        """Returns why it is no schema, or None if it is one."""

    def can_read(self, reader: str, writer: str, references: Mapping[str, str]) -> bool:
        """True if data of the one schema can be read with the other."""


class _Anything:
    """Takes every text, and finds all compatible."""

    def check(self, text: str, references: Mapping[str, str]) -> str | None:
        return None

    def can_read(self, reader: str, writer: str, references: Mapping[str, str]) -> bool:
        return True


class AvroJudge:
    """Asks Apache's own Avro library."""

    def check(self, text: str, references: Mapping[str, str]) -> str | None:
        try:
            self._parse(text, references)
        except Exception as error:
            return str(error)
        return None

    def can_read(self, reader: str, writer: str, references: Mapping[str, str]) -> bool:
        from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

        checker: Any = ReaderWriterCompatibilityChecker
        found = checker().get_compatibility(self._parse(reader, references), self._parse(writer, references))
        return bool(found.compatibility is SchemaCompatibilityType.compatible)

    def _parse(self, text: str, references: Mapping[str, str]) -> Any:
        from avro.name import Names
        from avro.schema import make_avsc_object

        names = Names()
        for one in references.values():
            make_avsc_object(json.loads(one), names)
        return make_avsc_object(json.loads(text), names)


@dataclass(frozen=True)
class _Stored:
    """A schema with its id."""

    id: int
    body: Mapping[str, Any]

    @property
    def format(self) -> str:
        return str(self.body.get("schemaType", "AVRO"))


class _Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class _Subjects:
    """The registered subjects."""

    judges: Mapping[str, Judge]
    schemas: list[_Stored] = field(default_factory=list)
    versions: dict[str, list[_Stored]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    level: str = "BACKWARD"
    forms: dict[str, Callable[[str], str]] = field(default_factory=dict)

    def shown(self, body: Mapping[str, Any], query: Mapping[str, str]) -> Mapping[str, Any]:
        """A schema in the form that is asked for, if there is such a form."""
        form = self.forms.get(query.get("format", ""))
        return body if form is None else {**body, "schema": form(body["schema"])}

    def register(self, subject: str, body: Mapping[str, Any]) -> _Stored:
        known = self.find(subject, body)
        if known is not None:
            return known
        self.check(body)
        if not self.fits(subject, body, self.versions.get(subject, [])[-1:]):
            raise _Refusal(409, 409, f"Schema being registered is incompatible with an earlier schema for {subject}")
        content = _content(body)
        stored = next((one for one in self.schemas if _content(one.body) == content), None)
        if stored is None:
            stored = _Stored(len(self.schemas) + 1, dict(body))
            self.schemas.append(stored)
        self.versions.setdefault(subject, []).append(stored)
        return stored

    def find(self, subject: str, body: Mapping[str, Any]) -> _Stored | None:
        content = _content(body)
        return next((one for one in self.versions.get(subject, []) if _content(one.body) == content), None)

    def check(self, body: Mapping[str, Any]) -> None:
        reason = self._judge(body).check(body["schema"], self._texts(body))
        if reason is not None:
            raise _Refusal(422, 42201, f"Invalid schema {body['schema']}: {reason}")

    def fits(self, subject: str, body: Mapping[str, Any], older: Sequence[_Stored]) -> bool:
        level = self.levels.get(subject, self.level).removesuffix("_TRANSITIVE")
        judge, texts = self._judge(body), self._texts(body)
        for one in older:
            if level in _BACKWARD and not judge.can_read(body["schema"], one.body["schema"], texts):
                return False
            if level in _FORWARD and not judge.can_read(one.body["schema"], body["schema"], texts):
                return False
        return True

    def version(self, subject: str, text: str) -> tuple[int, _Stored]:
        if subject not in self.versions:
            raise _Refusal(404, 40401, f"Subject '{subject}' not found.")
        found = self.versions[subject]
        number = len(found) if text in ("latest", "-1") else int(text)
        if not 1 <= number <= len(found):
            raise _Refusal(404, 40402, f"Version {text} not found.")
        return number, found[number - 1]

    def _judge(self, body: Mapping[str, Any]) -> Judge:
        return self.judges.get(body.get("schemaType", "AVRO"), _Anything())

    def _texts(self, body: Mapping[str, Any]) -> dict[str, str]:
        """The texts of all that is referred to, what is needed first first."""
        found: dict[str, str] = {}
        for one in body.get("references") or ():
            _, stored = self.version(one["subject"], str(one["version"]))
            found |= self._texts(stored.body)
            found[one["name"]] = stored.body["schema"]
        return found


def _content(body: Mapping[str, Any]) -> tuple[str, str, str]:
    references = json.dumps(body.get("references") or [], sort_keys=True)
    text = body["schema"]
    if body.get("schemaType", "AVRO") != "PROTOBUF":
        try:
            text = json.dumps(json.loads(text))
        except ValueError:
            pass
    return body.get("schemaType", "AVRO"), text, references


class RegistryStandIn:
    """A registry that can be told to misbehave. A context manager.

    Args:
        judges: What it knows of formats, by their names; Avro when None. It takes any text of others.
        tls: Serves https with this.

    Attributes:
        requests: Methods and paths that were asked for, in order.
        status: When set, every answer is this error.
        delay_s: For how long every answer waits; ended by ``close``.
        user_info: When set, ``user:password`` that requests must carry.
    """

    def __init__(self, judges: Mapping[str, Judge] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[str] = []
        self.status: int | None = None
        self.delay_s = 0.0
        self.user_info: str | None = None
        self._subjects = _Subjects({"AVRO": AvroJudge()} if judges is None else judges)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        """Its address, the same after an outage."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Serves, again after ``stop``, with what was registered."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one packet: the second of two waits for the client's word about the first.
            wbufsize = -1

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

            def do_GET(self) -> None:
                registry._serve(self)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the base's names

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="registry-stand-in")
        self._thread.start()

    def stop(self) -> None:
        """Ends serving, and every connection: nobody listens any more."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.cut_connections()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None

    def close(self) -> None:
        """Ends all."""
        self._closing.set()
        self.stop()

    def __enter__(self) -> RegistryStandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_level(self, subject: str, level: str) -> None:
        """Sets the compatibility level of a subject, such as ``FULL``."""
        with self._lock:
            self._subjects.levels[subject] = level

    def set_form(self, name: str, form: Callable[[str], str] | None) -> None:
        """Sets the form of the texts of schemas where ``format=name`` is asked for; None: an error of the server."""

        def fail(text: str) -> str:
            raise _Refusal(500, 500, "The stand-in was told that it cannot make this form")

        with self._lock:
            self._subjects.forms[name] = fail if form is None else form

    # ------------------------------------------------------------------ requests
    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(length)
        self.requests.append(f"{request.command} {request.path.partition('?')[0]}")
        if self.delay_s:
            self._closing.wait(self.delay_s)
        try:
            status, answer = 200, self._answer(request, body)
        except _Refusal as refusal:
            status, answer = refusal.status, {"error_code": refusal.code, "message": str(refusal)}
        content = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def _answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Any:
        if self.status is not None:
            raise _Refusal(self.status, self.status * 100 + 1, "The stand-in was told to answer so")
        wanted = None if self.user_info is None else "Basic " + base64.b64encode(self.user_info.encode()).decode()
        if wanted is not None and request.headers.get("Authorization") != wanted:
            raise _Refusal(401, 401, "Unauthorized")
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        for method, pattern, answer in _ROUTES:
            match = re.fullmatch(pattern, parts.path)
            if match is not None and method == request.command:
                with self._lock:
                    arguments = [unquote(text) for text in match.groups() if text is not None]
                    return answer(self._subjects, arguments, json.loads(body) if body else {}, query)
        raise _Refusal(404, 404, f"HTTP 404 Not Found: {request.command} {parts.path}")


class _Server(ThreadingHTTPServer):
    """A server whose open connections can be ended, as those of a killed process are."""

    daemon_threads = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error."""

    def cut_connections(self) -> None:
        import socket

        for one in list(self._open):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


_Answer = Callable[[_Subjects, list[str], dict[str, Any], dict[str, str]], Any]


def _register(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    return {"id": subjects.register(path[0], body).id}


def _look_up(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    subject = path[0]
    if subject not in subjects.versions:
        raise _Refusal(404, 40401, f"Subject '{subject}' not found.")
    found = subjects.find(subject, body)
    if found is None:
        raise _Refusal(404, 40403, "Schema not found")
    return {**found.body, "subject": subject, "id": found.id, "version": subjects.versions[subject].index(found) + 1}


def _by_id(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    number = int(path[0])
    if not 1 <= number <= len(subjects.schemas):
        raise _Refusal(404, 40403, f"Schema {number} not found")
    return subjects.shown(subjects.schemas[number - 1].body, query)


def _versions_of_id(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    _by_id(subjects, path, body, query)
    return [
        {"subject": subject, "version": place}
        for subject, versions in subjects.versions.items()
        for place, one in enumerate(versions, 1)
        if one.id == int(path[0])
    ]


def _version(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    number, found = subjects.version(path[0], path[1])
    return {**subjects.shown(found.body, query), "subject": path[0], "id": found.id, "version": number}


def _versions(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    if path[0] not in subjects.versions:
        raise _Refusal(404, 40401, f"Subject '{path[0]}' not found.")
    return list(range(1, len(subjects.versions[path[0]]) + 1))


def _compatible(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    _, older = subjects.version(path[0], path[1])
    subjects.check(body)
    return {"is_compatible": subjects.fits(path[0], body, [older])}


def _set_config(subjects: _Subjects, path: list[str], body: dict[str, Any], query: dict[str, str]) -> Any:
    subjects.levels[path[0]] = body["compatibility"]
    return body


_ROUTES: Final[tuple[tuple[str, str, _Answer], ...]] = (
    ("POST", "/subjects/([^/]+)/versions", _register),
    ("POST", "/subjects/([^/]+)", _look_up),
    ("GET", "/subjects", lambda subjects, path, body, query: sorted(subjects.versions)),
    ("GET", "/subjects/([^/]+)/versions", _versions),
    ("GET", "/subjects/([^/]+)/versions/([^/]+)", _version),
    ("GET", "/schemas/ids/([0-9]+)", _by_id),
    ("GET", "/schemas/ids/([0-9]+)/versions", _versions_of_id),
    ("POST", "/compatibility/subjects/([^/]+)/versions/([^/]+)", _compatible),
    ("PUT", "/config/([^/]+)", _set_config),
)
