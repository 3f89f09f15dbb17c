"""What the parts of the vector runner hand to each other: vectors, outcomes, verdicts.

Main types: ``Vector`` (one line of a file), ``Success`` and ``Failure`` (what our code made of it), ``Verdict``.

Owning thread: none; values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.errors import java_class_name

Phase = Literal["configure", "apply"]


@dataclass(frozen=True)
class Vector:
    """One recorded run of a Java class.

    Attributes:
        id: Its name.
        kind: transform, predicate, from_connect, to_connect, header, data or config.
        cls: The class, without its package.
        config: Settings given to ``configure``.
        input: What the class was given.
        expect: What came out; None when it failed.
        error: How it failed (class, message, phase, cause, javaText); None when it did not.
    """

    id: str
    kind: str
    cls: str
    config: Mapping[str, Any]
    input: Any
    expect: Mapping[str, Any] | None
    error: Mapping[str, Any] | None

    @property
    def setup(self) -> tuple[str, str, str]:
        """What vectors have in common that can share a batch: kind, class, configuration (and direction)."""
        extra = self.input if isinstance(self.input, dict) else {}
        parts = [self.config, extra.get("op"), extra.get("isKey"), extra.get("recordType"), extra.get("negate")]
        return self.kind, self.cls, json.dumps(parts, sort_keys=True)


@dataclass(frozen=True)
class Success:
    """Our code answered; ``data`` is the answer as the vector's ``expect`` would write it."""

    data: Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """Our code raised.

    Attributes:
        phase: Where.
        error: Simple name of the exception's class, Java's when it has one.
        message: Its text.
        unusable: Why this is no answer at all (there is no such class of ours, the whole batch failed), even where Java
            failed too.
    """

    phase: Phase
    error: str
    message: str | None
    unusable: str | None = None

    @classmethod
    def of(cls, phase: Phase, error: BaseException) -> Failure:
        """The failure of an exception."""
        return cls(phase, simple_name(java_class_name(error)), str(error))


Outcome = Success | Failure


@dataclass(frozen=True)
class Verdict:
    """Whether an outcome is what Java did.

    Attributes:
        vector: The vector.
        reason: Why it is not; None = it is.
        unusable: There was no answer at all (no such class, the whole batch failed): never a deviation on purpose.
        same_message: For errors whose text may be compared: whether the texts are equal.
    """

    vector: Vector
    reason: str | None
    same_message: bool | None = None
    unusable: bool = False

    @property
    def passed(self) -> bool:
        """Whether it is."""
        return self.reason is None


def simple_name(class_name: str) -> str:
    """The last part of a class name."""
    return class_name.rpartition(".")[2]


def load_vectors(path: Path, classes: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[Vector]:
    """The vectors of a file, or those of some classes (``Cast$Value``, or ``Cast`` for both) or kinds."""
    found: list[Vector] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        data = json.loads(line)
        name = data["class"]
        if classes and name not in classes and name.partition("$")[0] not in classes:
            continue
        if kinds and data["kind"] not in kinds:
            continue
        config, expect, error = data.get("config") or {}, data.get("expect"), data.get("error")
        found.append(Vector(data["id"], data["kind"], name, config, data["input"], expect, error))
    return found
