"""Invalid Unicode, treated as in Java: invalid bytes are read as U+FFFD, half a surrogate pair is written as ``?``.

Main constant: ``REPLACE``, the name of an error handler for decoding UTF-8. Main function: ``without_halves``.

Thread: pure functions; the handler is registered when the module is imported.
Source: java.lang.String, the constructor from bytes and getBytes with StandardCharsets.UTF_8.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

from penstock.data import Struct

REPLACE: Final = "penstock-java"
_HALF: Final = re.compile("[\ud800-\udfff]")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    start = error.start
    half = error.object[start : start + 3]
    # The three bytes of half a pair are one invalid character in Java, and three in Python.
    whole = len(half) == 3 and half[0] == 0xED and half[1] >= 0xA0 and 0x80 <= half[1] <= 0xBF and half[2] >> 6 == 2
    return "\ufffd", start + 3 if whole else error.end


codecs.register_error(REPLACE, _replace)


def without_halves(node: Any) -> Any:
    """Replaces halves of surrogate pairs by ``?`` in all texts of a value, at every depth.

    >>> without_halves({"a": ["x\\ud800y"]})
    {'a': ['x?y']}
    """
    if isinstance(node, str):
        return _HALF.sub("?", node)
    if isinstance(node, Struct):
        return Struct.unchecked(node.schema, [without_halves(one) for one in node.values])
    if isinstance(node, dict):
        return {without_halves(name): without_halves(one) for name, one in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(map(without_halves, node))
    return node
