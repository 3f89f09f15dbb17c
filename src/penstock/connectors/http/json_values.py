"""Connect values as JSON, and access to parts of a JSON value.

Main functions: ``at`` (a JSON pointer), ``text_of``, ``plain``. Pure; any thread. Source: RFC 6901.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from penstock.data import Struct
from penstock.errors import ConnectException

_REFUSE: Final = object()


def at(value: Any, pointer: str | None, where: str, *, missing: Any = _REFUSE) -> Any:
    """Returns the value that a JSON pointer refers to.

    Args:
        value: The JSON value.
        pointer: The pointer; empty: all of it.
        where: What the value is, for the message.
        missing: The result if the pointer leads to no value; without it that is an error.

    Raises:
        ConnectException: The pointer leads to no value.

    >>> at({"a/b": [1, {"c": 2}]}, "/a~1b/1/c", "")
    2
    """
    found = value
    for step in (pointer or "").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif missing is not _REFUSE:
            return missing
        else:
            kind = (
                f"an object with {', '.join(map(repr, list(found)[:10]))}"
                if isinstance(found, dict)
                else f"{found!r:.80}"
            )
            raise ConnectException(f"There is nothing at {pointer} in {where}: {name!r} is not in {kind}")
    return found


def text_of(value: Any) -> str:
    """A value as text for a URL: text unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def body_of(value: Any) -> str:
    """A value for a request body: text unchanged, all other values as JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """A value of Connect in JSON's types: bytes are Base64, decimals, dates and times are text."""
    match value:
        case Struct():
            return {field.name: plain(value.get(field.name)) for field in value.schema.fields}
        case dict():
            return {key if isinstance(key, str) else json.dumps(plain(key)): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return value
