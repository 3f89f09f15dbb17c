"""The checks of single worker settings that no general validator does.

Main functions: `check_listeners`, `check_admin_listeners`, `check_response_headers`. Pure functions; any thread.

Source: RestServerConfig of Kafka 4.3.
"""

from __future__ import annotations

import csv
from typing import Final
from urllib.parse import urlsplit

from penstock.config.parse import invalid, java_trim
from penstock.errors import ConfigException

_EXAMPLE: Final = "ex: http://localhost:8080,https://localhost:8443"
_ACTIONS: Final = ("set", "add", "setDate", "addDate")


def check_listeners(name: str, value: object) -> None:
    """Refuses a list without URLs, and URLs that are not http or https with a port."""
    if not isinstance(value, list):
        raise ConfigException(f"Invalid value type for listeners (expected list of URLs , {_EXAMPLE}).")
    if not value:
        raise ConfigException(f"Invalid value for listeners, at least one URL is expected, {_EXAMPLE}.")
    _check_urls(name, value)


def check_admin_listeners(name: str, value: object) -> None:
    """As `check_listeners`; null (the same as the API's) and an empty list (none) pass."""
    if value is None or value in ([], [""]):
        return
    if not isinstance(value, list):
        raise ConfigException(f"Invalid value type for admin.listeners (expected list of URLs , {_EXAMPLE}).")
    _check_urls(name, value)


def check_response_headers(name: str, value: object) -> None:
    """Refuses header rules that are not `[action] [header name]:[header value]`, separated by commas."""
    text = "" if value is None else str(value)
    if not java_trim(text):
        return
    for rule in next(csv.reader([text], skipinitialspace=True)):
        action, _, header = rule.strip().partition(" ")
        if action not in _ACTIONS:
            raise invalid(
                name, value, f"Invalid action in header rule '{rule.strip()}'; expected one of {', '.join(_ACTIONS)}"
            )
        header_name, colon, _ = header.partition(":")
        if not colon or not header_name.strip() or " " in header_name.strip():
            raise invalid(
                name, value, f"Invalid header rule '{rule.strip()}'; expected '[action] [header name]:[header value]'"
            )


def _check_urls(name: str, urls: list[object]) -> None:
    for url in urls:
        if not isinstance(url, str):
            raise ConfigException(f"Invalid type for {name} (expected String).")
        if not java_trim(url):
            raise ConfigException(f"Empty URL found when parsing {name} list.")
        _check_url(name, url)


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme.lower() in ("http", "https") and parts.port is not None
    except ValueError:
        good = False
    if not good:
        raise invalid(name, url, f"Expected a URL of http or https with a port, {_EXAMPLE}")
