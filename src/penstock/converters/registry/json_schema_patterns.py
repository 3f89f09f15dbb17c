"""JSON Schemas' patterns, run in linear time or with a limit, as Java has them.

The library searches with Python's ``re``, which holds the interpreter for as long as a pattern takes.

Main function: ``with_limits``. Thread: any.
Source: org.everit.json.schema.regexp.JavaUtilRegexpFactory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs
from jsonschema import validators
from jsonschema.exceptions import ValidationError

from penstock.config.java_regex import compile_java

_MARK: Final = "penstock_limits"


@lru_cache(maxsize=16)
def with_limits(kind: Any) -> Any:
    """A class of validators that does what another one does, but for how it searches for patterns."""
    keywords = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    limited: Any = validators.extend(kind, {name: one for name, one in keywords.items() if name in kind.VALIDATORS})
    plain = limited.evolve

    def evolve(self: Any, **changes: Any) -> Any:
        evolved = plain(self, **changes)
        own: Any = type(evolved)
        if hasattr(own, _MARK):
            return evolved
        # A part that says of which version it is, is given that version's own class.
        return with_limits(own)(**{one.alias: getattr(evolved, one.name) for one in attrs.fields(own) if one.init})

    limited.evolve = evolve
    setattr(limited, _MARK, True)
    return limited


def found_in(pattern: str, text: str) -> bool:
    """Whether a part of a text matches a pattern.

    Raises:
        ConfigException: The pattern is none.
        PatternTimeoutException: It takes too long.
    """
    return compile_java(pattern, name="pattern").found_in(text)


def _pattern(validator: Any, pattern: str, instance: object, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not found_in(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    for name, value in instance.items() if isinstance(instance, dict) else ():
        for pattern, part in patterns.items():
            if found_in(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    known = schema.get("properties", {})
    others = [
        name for name in instance if name not in known and not any(found_in(pattern, name) for pattern in patterns)
    ]
    if isinstance(additional, dict):
        for name in others:
            yield from validator.descend(instance[name], additional, path=name)
    elif not additional and others:
        shown = ", ".join(map(repr, sorted(others)))
        allowed = f", nor do they match {', '.join(map(repr, sorted(patterns)))}" if patterns else ""
        yield ValidationError(f"Additional properties are not allowed ({shown}){allowed}")
