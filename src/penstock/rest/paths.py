"""The path of a request as it was sent.

Main function: ``raw_path``. Pure; any thread.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import Scope


def raw_path(scope: Scope) -> str:
    """The path as it was sent, without the query; also where the request named the whole address, as to a proxy."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    if path.startswith("/"):
        return path
    try:
        return urlsplit(path).path or path
    except ValueError:
        return path
