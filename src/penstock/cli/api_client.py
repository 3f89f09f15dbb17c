"""A client for a worker's REST API, for the commands: blocking, without dependencies.

Main types: ``ApiClient``, ``ApiError`` (the worker refused), ``Unreachable`` (nobody answered). Main thread.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit, urlunsplit

from penstock.errors import ConfigException

_WARNING = re.compile(r'299 \S+ "([^"]*)"')


class ApiError(Exception):
    """The worker answered with an error.

    Attributes:
        status: The HTTP status code.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(Exception):
    """No worker answered.

    Attributes:
        reason: Why, for a text of somebody else's.
    """

    def __init__(self, url: str, reason: object) -> None:
        super().__init__(
            f"No worker answers at {url}: {reason}. Is it running? Another one is asked with --url or PENSTOCK_URL"
        )
        self.reason = str(reason)


class ApiClient:
    """Asks one worker.

    Args:
        url: Of the worker; may hold ``user:password@``.
        timeout_s: How long one answer may take; the worker itself gives up after 90 seconds.
        ca_file: Certificates to trust instead of the system's.
        certificate: A PEM file with key and certificate, for workers that ask for one.

    Attributes:
        warnings: What answers have warned of so far.

    Raises:
        ConfigException: the address is none, or a file of certificates cannot be used.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 100.0, ca_file: str | None = None, certificate: str | None = None
    ) -> None:
        parts = _worker_url(url)
        host = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        self.warnings: list[str] = []
        self._files = ca_file, certificate
        self._tls = _context(ca_file, certificate) if parts.scheme == "https" else None

    def at(self, url: str, timeout_s: float) -> ApiClient:
        """The same user's client of another worker.

        A login that was given for https is not sent over http.

        Args:
            url: Of the other worker, as a worker names it.
            timeout_s: How long one answer may take.

        Raises:
            ConfigException: the address is none, or a file of certificates cannot be used.
        """
        ca_file, certificate = self._files
        other = ApiClient(url, timeout_s=timeout_s, ca_file=ca_file, certificate=certificate)
        if self._tls is None or other._tls is not None:
            other._headers = dict(self._headers)
        return other

    def call(
        self,
        method: str,
        path: Sequence[str],
        *,
        body: object = None,
        query: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Any:
        """Makes one request.

        Args:
            method: GET, POST, ...
            path: Its segments, not escaped.
            body: Sent as JSON; None for none.
            query: Parameters.

        Returns:
            The answer's JSON; None for an empty one.

        Raises:
            ApiError: the worker refused.
            Unreachable: nobody answered, or not with HTTP.
        """
        url = "/".join([self.url, *(quote(segment, safe="") for segment in path)])
        if query:
            url += "?" + urlencode(query, doseq=True)
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._tls) as answer:
                self.warnings += _WARNING.findall(answer.headers.get("Warning", ""))
                return _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _message(error)) from error
        except (OSError, ValueError) as error:
            raise Unreachable(self.url, getattr(error, "reason", None) or error) from error


def _context(ca_file: str | None, certificate: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate)
    except OSError as error:
        named = " and ".join(name for name in (ca_file, certificate) if name)
        raise ConfigException(f"The certificates of {named} cannot be used: {error}") from error
    return context


def _worker_url(url: str) -> SplitResult:
    """The parts of a worker's address; ``http://`` may be left out.

    >>> _worker_url("worker:8083").geturl()
    'http://worker:8083'

    Raises:
        ConfigException: it is none.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ConfigException(f"{url} is no address of a worker: {error}; write http://HOST:PORT") from error
    if not usable:
        raise ConfigException(f"{url} is no address of a worker; write http://HOST:PORT or https://HOST:PORT")
    return parts


def _decoded(content: bytes) -> Any:
    return json.loads(content) if content.strip() else None


def _message(error: urllib.error.HTTPError) -> str:
    content = error.read()
    try:
        found = json.loads(content)
        message = found.get("message") if isinstance(found, dict) else None
    except ValueError:
        message = content.decode("utf-8", "replace").strip()
    return str(message or f"HTTP {error.code} {error.reason}")
