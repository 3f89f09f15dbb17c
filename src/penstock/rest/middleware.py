"""The processing around every request: headers of answers, calls from browsers.

Main types: ``ResponseHeaders`` (``response.http.headers.config``), ``CrossOrigin`` (``access.control.*``). Runs on the
REST thread.

Source: Jetty's HeaderFilter and CrossOriginHandler, as Kafka Connect 4.3 sets them up.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final

import re2
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SIMPLE_METHODS: Final = ("GET", "POST", "HEAD")
_ALLOWED_HEADERS: Final = "Content-Type"
_MAX_AGE_S: Final = "60"


@dataclass(frozen=True)
class HeaderRule:
    """A rule for one header of each answer.

    Attributes:
        action: set, add, setDate or addDate.
        name: The header.
        value: Its text; for dates how many milliseconds from now.
    """

    action: str
    name: str
    value: str


def parse_header_rules(text: str) -> list[HeaderRule]:
    """Reads ``response.http.headers.config``; the setting's validator has checked its form.

    >>> parse_header_rules('set X-A: b, "add Cache-Control: no-cache, no-store"')[1]
    HeaderRule(action='add', name='Cache-Control', value='no-cache, no-store')
    """
    rules = []
    for rule in next(csv.reader([text], skipinitialspace=True), []):
        action, _, header = rule.strip().partition(" ")
        name, _, value = header.partition(":")
        if action:
            rules.append(HeaderRule(action, name.strip(), value.strip()))
    return rules


class ResponseHeaders:
    """Adds headers to every answer, errors too.

    Args:
        app: Answers.
        rules: What to add.
        now_s: The time of day.
    """

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule], now_s: Callable[[], float] = time.time) -> None:
        self._app = app
        self._rules = tuple(rules)
        self._now_s = now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for rule in self._rules:
                    self._apply(rule, headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _apply(self, rule: HeaderRule, headers: MutableHeaders) -> None:
        value = rule.value
        if rule.action.endswith("Date"):
            try:
                value = formatdate(self._now_s() + int(value) / 1000, usegmt=True)
            except (ValueError, OverflowError):
                return
        if rule.action.startswith("set"):
            headers[rule.name] = value
        else:
            headers.append(rule.name, value)


def origin_pattern(origins: str) -> Any:
    """A pattern for the origins of ``access.control.allow.origin``, separated by commas; ``*`` stands for anything."""
    patterns = [re.escape(origin.strip()).replace(r"\*", ".*") for origin in origins.split(",") if origin.strip()]
    # In linear time: whoever calls chooses the text.
    return re2.compile(f"(?i:{'|'.join(patterns)})")


class CrossOrigin:
    """Lets browsers call from other origins.

    Args:
        app: Answers.
        origins: Those that may call, separated by commas; ``*`` stands for anything.
        methods: Those that they may use, separated by commas; empty for GET, POST, HEAD.
    """

    def __init__(self, app: ASGIApp, origins: str, methods: str) -> None:
        self._app = app
        self._origins = origin_pattern(origins)
        self._methods = [name.strip().upper() for name in methods.split(",") if name.strip()] or list(_SIMPLE_METHODS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        origin = asked.get("origin")
        allowed = origin if origin is not None and self._origins.fullmatch(origin) else None
        wanted = asked.get("access-control-request-method") if scope["method"] == "OPTIONS" else None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("Vary", "Origin")
                if allowed is not None and (wanted is None or wanted.upper() in self._methods):
                    headers["Access-Control-Allow-Origin"] = allowed
                    if wanted is not None:
                        headers["Access-Control-Allow-Methods"] = ",".join(self._methods)
                        headers["Access-Control-Allow-Headers"] = _ALLOWED_HEADERS
                        headers["Access-Control-Max-Age"] = _MAX_AGE_S
            await send(message)

        await self._app(scope, receive, send_with_headers)
