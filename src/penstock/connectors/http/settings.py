"""Settings: `HttpSourceConfig`, `HttpSinkConfig`; `HttpConfig` has the common ones. Values; any thread.

Source: the settings of Confluent's HTTP connectors, where those have the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from penstock.config import (
    AbsentSetting,
    AbstractConfig,
    CaseInsensitiveValidString,
    ConfigType,
    Importance,
    Password,
    Range,
    setting,
)
from penstock.errors import ConfigException

PLACE: Final = re.compile(r"\$\{(\w+)\}")
#: The places that a sink fills in.
_PLACES: Final = frozenset({"topic", "key"})


class AuthType(Enum):
    """The login of requests: the values of ``auth.type``."""

    NONE = "none"
    BASIC = "basic"
    BEARER = "bearer"
    OAUTH2 = "oauth2"


def _any_case(kind: type[Enum]) -> CaseInsensitiveValidString:
    return CaseInsensitiveValidString(*(member.value for member in kind))


_TLS: Final = AbsentSetting("authorities that httpx trusts are those of the environment: SSL_CERT_FILE or SSL_CERT_DIR")
_PROXY: Final = AbsentSetting("a proxy is taken from the environment: HTTP_PROXY, HTTPS_PROXY, NO_PROXY")
_REPORTER: Final = AbsentSetting(
    "what is refused goes to the dead letter queue: errors.tolerance=all, errors.deadletterqueue.topic.name"
)


class HttpConfig(AbstractConfig):
    """The settings of both."""

    absent = {
        "http.proxy.host": _PROXY,
        "https.ssl.truststore.location": _TLS,
        "https.ssl.keystore.location": AbsentSetting("there are no certificates of clients: log in with auth.type"),
        "oauth2.token.property": AbsentSetting("the token is the access_token of the answer", ("", "access_token")),
        "oauth2.client.auth.mode": AbsentSetting("client and secret go in the body of the request", ("", "url")),
        "oauth2.client.headers": AbsentSetting("requests for a token have no headers of their own"),
        "oauth2.client.scope.list": AbsentSetting("write the scope in oauth2.client.scope"),
    }

    http_api_url: str = setting(importance=Importance.HIGH, doc="The address, http or https, with places to fill in.")
    headers: Password = setting(
        default=Password(""), doc="Headers of each request, as NAME:VALUE; several with header.separator between them."
    )
    header_separator: str = setting(default="|", importance=Importance.LOW, doc="What separates headers.")
    auth_type: AuthType = setting(
        default=AuthType.NONE,
        validator=_any_case(AuthType),
        doc="How to log in. basic: connection.user and connection.password. bearer: bearer.token. oauth2: client "
        "credentials (oauth2.*).",
    )
    connection_user: str = setting(default="", doc="The user, for basic.")
    connection_password: Password = setting(default=Password(""), doc="The password, for basic.")
    bearer_token: Password = setting(default=Password(""), doc="The token, for bearer.")
    oauth2_token_url: str = setting(default="", doc="Where tokens are given out, for oauth2.")
    oauth2_client_id: str = setting(default="", doc="The client, for oauth2.")
    oauth2_client_secret: Password = setting(default=Password(""), doc="The client's secret, for oauth2.")
    oauth2_client_scope: str = setting(default="", doc="The scope to ask for, for oauth2; left out: none.")
    request_timeout_ms: int = setting(
        type=ConfigType.LONG, default=30_000, validator=Range.at_least(1), doc="How long a request may take in all."
    )
    response_max_bytes: int = setting(
        default=16 << 20, validator=Range.at_least(1), doc="A larger answer is refused, unpacked if it is compressed."
    )

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``AbstractConfig``."""
        found = [("http.api.url", text) for text in [_fault_of_url(self.http_api_url)] if text]
        needed = {
            AuthType.BASIC: {"connection.user": self.connection_user},
            AuthType.BEARER: {"bearer.token": self.bearer_token.value},
            AuthType.OAUTH2: {
                "oauth2.token.url": self.oauth2_token_url,
                "oauth2.client.id": self.oauth2_client_id,
                "oauth2.client.secret": self.oauth2_client_secret.value,
            },
        }.get(self.auth_type, {})
        found += [(name, f"auth.type={self.auth_type.value} needs it") for name, value in needed.items() if not value]
        if not self.bearer_token.value.isascii() or not self.bearer_token.value.isprintable():
            found.append(("bearer.token", "must be of printable ASCII characters: it is sent in a header"))
        if self.oauth2_token_url and (text := _fault_of_url(self.oauth2_token_url)):
            found.append(("oauth2.token.url", text))
        if any(not _is_header(one) for one in self._header_texts()):
            found.append(("headers", f"each must be NAME:VALUE, separated by {self.header_separator!r}"))
        if find_spec("httpx") is None:
            found.append(("http.api.url", "needs the library httpx: pip install 'penstock[http]' on each worker"))
        return found

    def header_pairs(self) -> dict[str, str]:
        """The headers."""
        pairs = (one.split(":", 1) for one in self._header_texts())
        return {name.strip(): value.strip() for name, value in pairs}

    def _header_texts(self) -> list[str]:
        texts = self.headers.value.split(self.header_separator or "|")
        return [one for one in texts if one.strip()]


def _is_header(text: str) -> bool:
    name, colon, value = text.partition(":")
    fits = re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip())
    return bool(colon and fits) and value.isprintable() and value.isascii()


def _fault_of_url(url: str) -> str:
    # The start must be fixed: inserted values must not change scheme, host or port.
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"{url!r} is no URL: {error}"
    if parts.scheme not in ("http", "https") or not host:
        return "must be a URL that begins with http:// or https:// and has a host"
    if parts.username or parts.password is not None:
        return "must not hold a user or a password: set auth.type=basic, connection.user and connection.password"
    return "the host must not have places to fill in" if "$" in parts.netloc else ""


def places(url: str) -> set[str]:
    """The names of the places of a URL."""
    return set(PLACE.findall(url))


class Paging(Enum):
    """The way to the next page: the values of ``page.mode``."""

    NONE = "none"
    LINK = "link"
    NUMBER = "number"
    CURSOR = "cursor"


class HttpSourceConfig(HttpConfig):
    """The settings of the source."""

    absent = {
        **HttpConfig.absent,
        "http.request.method": AbsentSetting("items are asked for with GET", ("", "get")),
        "http.request.body": AbsentSetting("a GET has no body: write parameters into http.api.url"),
        "http.request.parameters": AbsentSetting("write them into http.api.url, behind a question mark"),
        "http.offset.mode": AbsentSetting("set offset.pointer, or page.mode=number or cursor"),
        "http.offset.json.pointer": AbsentSetting("set offset.pointer: the offset in an item"),
        "http.initial.offset": AbsentSetting("set offset.initial"),
        "http.next.page.json.pointer": AbsentSetting("set page.mode=cursor or link, and page.pointer"),
        "http.response.data.json.pointer": AbsentSetting("set response.pointer"),
        "http.response.parser": AbsentSetting("answers are JSON; response.pointer says where the items are"),
        "topic.name.pattern": AbsentSetting("set topic"),
        "entity.names": AbsentSetting("make a connector for each: it has an address and a topic of its own"),
    }

    topic: str = setting(importance=Importance.HIGH, doc="The topic of the records.")
    request_interval_ms: int = setting(
        type=ConfigType.LONG,
        default=60_000,
        validator=Range.at_least(0),
        doc="How long to wait after the last page before the first one is asked for again.",
    )
    response_pointer: str = setting(
        default="", doc="Where the items are in an answer, as a JSON pointer (/data/items). No array: the one item."
    )
    key_pointer: str | None = setting(default=None, doc="Where the key is in an item; left out: no key.")
    offset_pointer: str | None = setting(
        default=None, doc="Where the offset is in an item: the largest one takes the place ${offset} of the URL."
    )
    offset_initial: str = setting(default="0", doc="What takes the place ${offset} at first.")
    page_mode: Paging = setting(
        default=Paging.NONE,
        doc="How the next page is found. link: by the header Link (rel=next), or the URL at page.pointer. number: "
        "${page} of the URL counts up until a page has no items. cursor: what is at page.pointer takes the place "
        "${cursor}, which is empty at first.",
    )
    page_pointer: str | None = setting(default=None, doc="Where the next URL, or the cursor, is in an answer.")
    page_first: int = setting(default=1, doc="The number of the first page.")

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``HttpConfig``."""
        found = super().faults(properties)
        wanted = {"offset": self.offset_pointer, "page": self.page_mode is Paging.NUMBER or None}
        wanted |= {"cursor": self.page_mode is Paging.CURSOR or None}
        unknown = places(self.http_api_url) - {name for name, used in wanted.items() if used is not None}
        if unknown:
            text = (
                f"${{{min(unknown)}}} has no value: ${{offset}} needs offset.pointer, ${{page}}, ${{cursor}} page.mode"
            )
            found.append(("http.api.url", text))
        if self.page_mode in (Paging.NUMBER, Paging.CURSOR) and not places(self.http_api_url) & {"page", "cursor"}:
            found.append(("http.api.url", f"page.mode={self.page_mode.value} needs a place for it in the URL"))
        if self.page_mode is Paging.CURSOR and not self.page_pointer:
            found.append(("page.pointer", "page.mode=cursor needs it"))
        for name in ("response_pointer", "key_pointer", "offset_pointer", "page_pointer"):
            if getattr(self, name) and not getattr(self, name).startswith("/"):
                found.append((name.replace("_", "."), "a JSON pointer begins with /"))
        return found


class Method(Enum):
    """The values of ``request.method``."""

    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"


class NullValues(Enum):
    """The values of ``behavior.on.null.values``."""

    IGNORE = "ignore"
    DELETE = "delete"
    FAIL = "fail"


class HttpSinkConfig(HttpConfig):
    """The settings of the sink."""

    absent = {
        **HttpConfig.absent,
        "batch.key.pattern": AbsentSetting("a batch has one address: what http.api.url makes of topic and key"),
        "regex.patterns": AbsentSetting("change the value with transforms in front of the sink"),
        "behavior.on.error": AbsentSetting(
            "errors.tolerance says what becomes of a record that is refused", ("", "fail")
        ),
        "request.body.format": AbsentSetting("values are sent as JSON, and text as it is", ("", "json", "string")),
        "retry.backoff.policy": AbsentSetting("each pause is twice the one before", ("", "exponential_with_jitter")),
        "reporter.result.topic.name": _REPORTER,
        "reporter.error.topic.name": _REPORTER,
    }

    request_method: Method = setting(
        default=Method.POST, validator=_any_case(Method), importance=Importance.HIGH, doc="The method of requests."
    )
    content_type: str = setting(default="application/json", doc="The header Content-Type.")
    batch_max_size: int = setting(
        default=1, validator=Range.at_least(1), doc="The most values of a request. A batch has one address."
    )
    batch_json_as_array: bool = setting(
        default=False, doc="Requests are arrays of JSON: batch.prefix=[, batch.suffix=] and a comma between values."
    )
    batch_prefix: str = setting(default="", doc="What a request with a batch begins with: [ for an array.")
    batch_suffix: str = setting(default="", doc="What it ends with: ] for an array.")
    batch_separator: str = setting(default=",", doc="What is between two values.")
    behavior_on_null_values: NullValues = setting(
        default=NullValues.IGNORE,
        validator=_any_case(NullValues),
        doc="A record without a value. ignore: it is skipped. delete: a DELETE is sent to its address. fail: it is "
        "reported as a record that cannot be sent.",
    )
    retry_on_status_codes: tuple[str, ...] = setting(
        default=("408", "425", "429", "500-"),
        doc="After these a request is sent again: 429, 500-599, or 500- and above.",
    )
    max_retries: int = setting(
        default=10, validator=Range.at_least(-1), doc="How often, before the task fails; -1: for ever."
    )
    retry_backoff_ms: int = setting(
        type=ConfigType.LONG,
        default=1000,
        validator=Range.at_least(1),
        doc="How long to wait before the first retry, twice as long before each other, a minute at most. An answer "
        "with Retry-After says it itself.",
    )

    def faults(self, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """See ``HttpConfig``."""
        found = super().faults(properties)
        unknown = places(self.http_api_url) - _PLACES
        if unknown:
            found.append(("http.api.url", f"${{{min(unknown)}}} is not known; there are ${{topic}} and ${{key}}"))
        if self.behavior_on_null_values is NullValues.DELETE and "key" not in places(self.http_api_url):
            text = "delete needs ${key} in http.api.url: a DELETE would be sent to the address of all records"
            found.append(("behavior.on.null.values", text))
        if not self.content_type.isascii() or not self.content_type.isprintable():
            found.append(("content.type", "must be of printable ASCII characters: it is sent in a header"))
        try:
            self.retries(0)
        except ConfigException as error:
            found.append(("retry.on.status.codes", str(error)))
        return found

    def joined(self, bodies: Iterable[str]) -> str:
        """The body of a request with these values."""
        if self.batch_json_as_array:
            return f"[{','.join(bodies)}]"
        return f"{self.batch_prefix}{self.batch_separator.join(bodies)}{self.batch_suffix}"

    def retries(self, status: int) -> bool:
        """True if a request is sent again after a status.

        Raises:
            ConfigException: An entry is no status and no range.
        """
        found = False
        for one in self.retry_on_status_codes:
            low, dash, high = one.partition("-")
            if not low.isdecimal() or (high and not high.isdecimal()):
                raise ConfigException(f"an entry is 429, 500-599 or 500-, not {one!r}")
            found |= int(low) <= status <= (int(high or 999) if dash else int(low))
        return found
