"""HTTP requests with credentials for one origin only, and responses with limits of size and time.

Main types: ``Client``, ``HttpResponse``. Main function: ``expand`` (a URL with values in it). Needs httpx.
Thread: the task's; ``Client.close`` from any.
Source: RFC 9110 (redirects), RFC 6749, section 4.4 (client credentials).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from penstock.connectors.http.settings import PLACE, AuthType, HttpConfig
from penstock.errors import ConnectException, DataException, RetriableException

if TYPE_CHECKING:
    import httpx

_MOST_REDIRECTS: Final = 5
#: A token is renewed so long before it ends.
_EARLY_S: Final = 30.0


def expand(url: str, values: Mapping[str, str | None]) -> str:
    """A URL with values in its places ``${name}``, percent-encoded, so that none of them leads to another path or host.

    Raises:
        DataException: A value is missing, empty in a path, or ``.`` or ``..``.

    >>> expand("http://h/${topic}?after=${offset}", {"topic": "a/b", "offset": "1&x=2"})
    'http://h/a%2Fb?after=1%26x%3D2'
    """

    def filled(match: re.Match[str]) -> str:
        value, in_path = values.get(match[1]), "?" not in url[: match.start()]
        if value is None or (in_path and value in ("", ".", "..")):
            raise DataException(f"${{{match[1]}}} of the URL {url} cannot be filled in with {value!r}")
        return quote(value, safe="")

    return PLACE.sub(filled, url)


@dataclass(frozen=True)
class HttpResponse:
    """An answer: its status, headers and body, and where it is from after redirects."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    next_link: str | None = None

    @property
    def text(self) -> str:
        """The beginning of the body, for messages."""
        return self.body[:200].decode("utf-8", "replace")


class Client:
    """Sends requests. Credentials and configured headers go to the origin of ``http.api.url`` only."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._origin = _origin(config.http_api_url)
        self._clients: dict[str, httpx.Client] = {}
        self._closed = False
        self._token, self._token_until = "", 0.0

    def close(self) -> None:
        """Closes the client; a request in flight fails."""
        self._closed = True
        for client in list(self._clients.values()):
            client.close()

    def send(
        self, method: str, url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Sends a request. Redirects are followed for GET only.

        Raises:
            RetriableException: No answer came, or not in time.
            ConnectException: The answer is too large, leads astray, or no token can be had.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._once(method, url, body, headers or {})
            if answer.status == 401 and self._token and _origin(url) == self._origin:
                self._token = ""  # it may have been withdrawn
                answer = self._once(method, url, body, headers or {})
            target = answer.headers.get("location")
            if method != "GET" or answer.status not in (301, 302, 303, 307, 308) or not target:
                return answer
            url = self.absolute(url, target)
        raise ConnectException(f"{shown(url)} leads on more than {_MOST_REDIRECTS} times: give the address at its end")

    def absolute(self, url: str, target: str) -> str:
        """Resolves a link in the answer of a URL to an absolute URL.

        Raises:
            ConnectException: To no http or https address.
        """
        import httpx

        try:
            found = str(httpx.URL(url).join(target))
        except (httpx.InvalidURL, ValueError) as error:
            raise ConnectException(f"The answer of {shown(url)} has a link that is no URL: {target!r:.100}") from error
        if urlsplit(found).scheme not in ("http", "https"):
            raise ConnectException(f"The answer of {shown(url)} leads to {target!r:.100}, which is not http or https")
        return found

    def _once(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        own = {**self._config.header_pairs(), **self._login()} if _origin(url) == self._origin else {}
        return self._exchange(method, url, body, {**headers, **own})

    def _client(self, url: str) -> httpx.Client:
        """The client for the scheme of a URL. Only https reads the trusted authorities, which takes time and may fail.

        Raises:
            ConnectException: The authorities of the environment cannot be read.
        """
        import httpx

        scheme = urlsplit(url).scheme
        if scheme not in self._clients:
            try:
                timeout, verify = self._config.request_timeout_ms / 1000, scheme == "https"
                self._clients[scheme] = httpx.Client(timeout=timeout, follow_redirects=False, verify=verify)
            except (OSError, ValueError) as error:
                raise ConnectException(
                    f"No request to {shown(url)} can be made: {error}. Check SSL_CERT_FILE, SSL_CERT_DIR and the "
                    "proxies in the environment of the worker"
                ) from error
            if self._closed:
                self._clients[scheme].close()
        return self._clients[scheme]

    def _exchange(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        import httpx

        client = self._client(url)
        ends = time.monotonic() + self._config.request_timeout_ms / 1000
        found = bytearray()
        try:
            with client.stream(method, url, content=body, headers=dict(headers)) as response:
                for part in response.iter_bytes(65_536):
                    found += part
                    if len(found) > self._config.response_max_bytes:
                        most = self._config.response_max_bytes
                        raise ConnectException(f"The answer of {shown(url)} is larger than response.max.bytes={most}")
                    if time.monotonic() > ends:
                        raise RetriableException(f"{shown(url)} did not answer within request.timeout.ms")
                link = response.links.get("next", {}).get("url")
                return HttpResponse(url, response.status_code, response.headers, bytes(found), link)
        except httpx.InvalidURL as error:
            raise ConnectException(f"{shown(url)} is no URL: {error}") from error
        except UnicodeError as error:
            raise ConnectException(f"A header of the request to {shown(url)} is not ASCII: {error.reason}") from error  # type: ignore[attr-defined]
        except (httpx.HTTPError, RuntimeError) as error:
            raise RetriableException(f"{method} {shown(url)}: {type(error).__name__}: {error}") from error

    def _login(self) -> dict[str, str]:
        import httpx

        config = self._config
        match config.auth_type:
            case AuthType.BASIC:
                auth = httpx.BasicAuth(config.connection_user, config.connection_password.value)
                request = next(auth.auth_flow(httpx.Request("GET", config.http_api_url)))
                return {"authorization": request.headers["authorization"]}
            case AuthType.BEARER:
                return {"authorization": f"Bearer {config.bearer_token.value}"}
            case AuthType.OAUTH2:
                return {"authorization": f"Bearer {self._access_token()}"}
            case _:
                return {}

    def _access_token(self) -> str:
        if self._token and time.monotonic() < self._token_until:
            return self._token
        import json
        from urllib.parse import urlencode

        config, url = self._config, self._config.oauth2_token_url
        form = {"grant_type": "client_credentials", "client_id": config.oauth2_client_id}
        form |= {"client_secret": config.oauth2_client_secret.value}
        form |= {"scope": config.oauth2_client_scope} if config.oauth2_client_scope else {}
        kind = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        answer = self._exchange("POST", url, urlencode(form).encode(), kind)
        if answer.status >= 500 or answer.status == 429:
            raise RetriableException(f"{shown(url)} gives out no token now: status {answer.status}")
        try:
            found = json.loads(answer.body)
            self._token, lasts = str(found["access_token"]), float(found.get("expires_in", 300))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # The response may contain secrets: only the status is reported.
            raise ConnectException(
                f"{shown(url)} gave no token (status {answer.status}): check oauth2.client.id, .secret and .scope"
            ) from error
        self._token_until = time.monotonic() + max(1.0, lasts - _EARLY_S)
        return self._token


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def shown(url: str) -> str:
    """A URL for messages: its query may hold secrets."""
    return url.partition("?")[0]
