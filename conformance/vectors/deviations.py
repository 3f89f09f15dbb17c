"""The intended differences from Java, by behaviour: reads ``deviations.toml``.

Main types: ``Deviation`` (a rule with its reason), ``load_deviations``. A rule is only asked about vectors that failed.

Owning thread: none; values.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from conformance.vectors.model import Vector, Verdict


@dataclass(frozen=True)
class Deviation:
    """One behaviour that differs on purpose. All conditions that are given must hold.

    Attributes:
        behaviour: A short name.
        reason: Why it differs.
        kinds: Kinds of vectors; none = all.
        classes: Patterns of class names (``Cast$*``); none = all.
        tags: One of these stands somewhere in the input (``$bigint``).
        config: Settings, each with a regular expression its text must match somewhere.
        input: A regular expression that must match somewhere in the input, written as JSON.
        error: Class of the error Java gave; ``none`` = it gave none.
        phase: Where Java gave the error.
        found: A regular expression that must match somewhere in what our failure is described with.
    """

    behaviour: str
    reason: str
    kinds: Sequence[str] = ()
    classes: Sequence[str] = ()
    tags: Sequence[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    input: str | None = None
    error: str | None = None
    phase: str | None = None
    found: str | None = None

    def covers(self, verdict: Verdict) -> bool:
        """True if a failed vector failed because of this."""
        if verdict.unusable:
            return False
        vector = verdict.vector
        written = json.dumps(vector.input)
        return (
            (not self.kinds or vector.kind in self.kinds)
            and (not self.classes or any(fnmatch.fnmatchcase(vector.cls, one) for one in self.classes))
            and (not self.tags or any(f'"{tag}"' in written for tag in self.tags))
            and all(re.search(text, str(vector.config.get(name, ""))) for name, text in self.config.items())
            and (self.input is None or re.search(self.input, written) is not None)
            and self._right_error(vector)
            and (self.found is None or re.search(self.found, verdict.reason or "") is not None)
        )

    def _right_error(self, vector: Vector) -> bool:
        error = vector.error or {}
        return (self.error is None or error.get("class", "none") == self.error) and (
            self.phase is None or error.get("phase") == self.phase
        )


def load_deviations(text: str | None = None) -> list[Deviation]:
    """The rules of ``deviations.toml`` (or of a text in its place).

    Raises:
        TypeError: a rule has a key that is no condition.
        ValueError: a rule without conditions, which would cover everything.
    """
    source = text if text is not None else resources.files(__package__).joinpath("deviations.toml").read_text("utf-8")
    rules = [Deviation(**table) for table in tomllib.loads(source).get("deviation", [])]
    for rule in rules:
        if not (rule.classes or rule.tags or rule.config or rule.input or rule.found):
            raise ValueError(f"the deviation {rule.behaviour} has no condition that narrows it")
    return rules
