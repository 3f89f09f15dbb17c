"""JSON texts as trees of Python values, and Jackson's names for the kinds of nodes.

Main functions: ``parse_json`` (strict JSON), ``first_json`` (as Jackson reads a message). ``MISSING`` marks absent
JSON. Numbers with fraction or exponent are ``Decimal``, as Java's tree holds them.

Thread: pure functions.
Source: com.fasterxml.jackson.databind.JsonNode, org.apache.kafka.connect.json.JsonDeserializer.
"""

from __future__ import annotations

import decimal
import json
import re
from typing import Any, Final


class _Missing:
    """A marker for missing JSON."""


MISSING: Final = _Missing()
#: Java's names for kinds of JSON nodes, for messages.
_NODE_KINDS: Final[dict[type, str]] = {
    dict: "OBJECT",
    list: "ARRAY",
    str: "STRING",
    bool: "BOOLEAN",
    int: "NUMBER",
    decimal.Decimal: "NUMBER",
    type(None): "NULL",
    _Missing: "MISSING",
}
_LEADING_ZEROS: Final = re.compile(r"(?<![\d.eE+\-])(-?)0+(?=\d)")
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]+|"')


def parse_json(text: str) -> Any:
    """One JSON value; numbers with fraction or exponent are ``Decimal``, as Java's tree holds them.

    Raises:
        ValueError: It is not JSON.
    """
    return json.loads(text, parse_float=decimal.Decimal, parse_constant=_no_constant)


def first_json(data: bytes) -> Any:
    """The first JSON value in the bytes, as Jackson reads it: the rest is ignored, leading zeros are allowed, blank is
    null.

    Args:
        data: Plain JSON (``penstock.converters.json.arrow.bytes``).

    Raises:
        ValueError: The bytes do not begin with a JSON value.
    """
    text = data.decode("utf-8").lstrip(" \t\r\n")
    if not text:
        return None
    decoder = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_no_constant)
    cleaned = without_leading_zeros(text)
    node, end = decoder.raw_decode(cleaned)
    following = cleaned[end : end + 1]
    if _goes_on(cleaned[end - 1], following):
        raise ValueError(f"a number or word goes on with {following!r}")
    return node


def without_leading_zeros(text: str) -> str:
    """Removes leading zeros from numbers, which Jackson is configured to accept.

    >>> without_leading_zeros('{"a 01": [-007, 0.10]}')
    '{"a 01": [-7, 0.10]}'
    """
    return "".join(one if one[0] == '"' else _LEADING_ZEROS.sub(r"\1", one) for one in _STRINGS.findall(text))


def _goes_on(last: str, following: str) -> bool:
    """True if a number or word continues: white space ends a number, a character outside of names ends a word."""
    if not following or following in " \t\r\n" or not last.isalnum():
        return False
    return last.isdigit() or (following >= "0" and (f"_{following}".isidentifier() or following == "$"))


def is_blank(data: bytes) -> bool:
    """True if there is no JSON value in the bytes."""
    return not data.strip(b" \t\r\n")


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def node_kind(node: Any) -> str:
    """Returns Java's name of this kind of JSON node."""
    return _NODE_KINDS.get(type(node), "NULL")
