"""Decides whether our outcome is what Java's class did.

Main function: ``judge``. Values are compared as the codec says: maps without order, no widths of schemaless numbers.

Owning thread: none; pure functions.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

from conformance.vectors.codec import equal_values
from conformance.vectors.model import Failure, Outcome, Success, Vector, Verdict, simple_name
from penstock import errors

#: Simple names of the errors of Kafka and Connect: with these the class must be the same; for all others (a
#: NullPointerException, say) any error will do.
KNOWN_ERRORS: Final = frozenset(
    simple_name(cls.java_name)
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, Exception) and hasattr(cls, "java_name")
)
_SHOWN: Final = 300


def judge(vector: Vector, outcome: Outcome) -> Verdict:
    """Compares an outcome with what the vector recorded."""
    if isinstance(outcome, Failure) and outcome.unusable is not None:
        return Verdict(vector, outcome.unusable, unusable=True)
    if vector.error is not None:
        return _judge_error(vector, vector.error, outcome)
    if isinstance(outcome, Failure):
        text = f"{outcome.error} at {outcome.phase}: {outcome.message}"
        return Verdict(vector, _cut(f"failed with {text}, expected {_shown(vector.expect)}"))
    assert vector.expect is not None, f"vector {vector.id} has neither expect nor error"
    return Verdict(vector, _difference(vector, vector.expect, outcome.data))


def _judge_error(vector: Vector, expected: Mapping[str, Any], outcome: Outcome) -> Verdict:
    if isinstance(outcome, Success):
        text = f"{expected['class']}: {expected.get('message')}"
        return Verdict(vector, _cut(f"gave {_shown(outcome.data)}, expected {text}"))
    name, phase = expected["class"], expected.get("phase")
    if phase is not None and outcome.phase != phase:
        reason = f"{outcome.error} came at {outcome.phase}, expected {name} at {phase}: {outcome.message}"
        return Verdict(vector, _cut(reason))
    if name in KNOWN_ERRORS and outcome.error != name:
        return Verdict(vector, _cut(f"failed with {outcome.error} ({outcome.message}), expected {name}"))
    same = None if expected.get("javaText") else outcome.message == expected.get("message")
    return Verdict(vector, None, same)


def _difference(vector: Vector, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str | None:
    """Describes the difference, or returns None if there is none."""
    if expected.get("null"):
        # The call returned null; for the runtime that is a null value without schema.
        expected = {"schema": None, "value": None}
    for name, wanted in expected.items():
        if name == "text" and "base64" in expected:
            continue
        found = actual.get(name)
        if name == "base64":
            same = _same_bytes(wanted, found, vector.input.get("value"))
        elif name == "record" and isinstance(wanted, dict) and isinstance(found, dict):
            different = [key for key in wanted if not equal_values(wanted[key], found.get(key))]
            if different:
                key = different[0]
                return _cut(f"{key} is {_shown(found.get(key))}, expected {_shown(wanted[key])}")
            same = True
        else:
            same = equal_values(wanted, found)
        if not same:
            return _cut(f"{name} is {_bytes_shown(name, found)}, expected {_bytes_shown(name, wanted)}")
    return None


def _same_bytes(wanted: str | None, found: str | None, value: Any) -> bool:
    if wanted == found or wanted is None or found is None:
        return wanted == found
    if not _has_map(value):
        return False
    # The order of a schemaless map is that of a HashMap in Java.
    first, second = _unordered(wanted), _unordered(found)
    return first is not None and first == second


def _has_map(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_map, value))
    if not isinstance(value, dict):
        return False
    return "$map" in value or len(value) > 1 or any(map(_has_map, value.values()))


def _unordered(data: str) -> object:
    """The parsed JSON with every number as its text, or the sorted entries of Java's text of a map."""
    raw = base64.b64decode(data)
    try:
        return json.loads(raw, parse_float=lambda text: ("float", text), parse_int=lambda text: ("int", text))
    except ValueError:
        text = raw.decode("utf-8", "replace")
        return sorted(text.strip("{}").split(", ")) if text.startswith("{") and text.endswith("}") else None


def _bytes_shown(name: str, value: Any) -> str:
    if name == "base64" and isinstance(value, str):
        return repr(base64.b64decode(value))
    return _shown(value)


def _shown(value: object) -> str:
    return json.dumps(value, default=repr)


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}"
