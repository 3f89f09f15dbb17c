"""The values that the parts of the vector runner exchange: vectors, outcomes, verdicts.

Main types: ``Vector`` (one line of a file), ``Success`` and ``Failure`` (what our code made of it), ``Verdict``.
``load_vectors`` and ``choose`` read files.

Owning thread: none; values.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from penstock.errors import java_class_name

Phase = Literal["configure", "apply"]

KINDS: Final = ("transform", "predicate", "from_connect", "to_connect", "header", "data", "config")

#: Transforms that are not Kafka's own.
_DEBEZIUM: Final = frozenset({"ExtractNewRecordState"})


def transform_class(cls: str) -> str:
    """The full name of a transform, by the name that vectors have for its class."""
    package = "io.debezium" if cls in _DEBEZIUM else "org.apache.kafka.connect"
    return f"{package}.transforms.{cls}"


@dataclass(frozen=True)
class Vector:
    """One recorded run of a Java class.

    Attributes:
        id: Its name.
        kind: One of ``KINDS``.
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
        """The common properties of vectors that can share a batch: kind, class, configuration (and direction)."""
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
    """The verdict on whether an outcome is what Java did.

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
        """True if the outcome is what Java did."""
        return self.reason is None


def simple_name(class_name: str) -> str:
    """The last part of a class name."""
    return class_name.rpartition(".")[2]


class UnusableVectorsError(ValueError):
    """A file of vectors that cannot be read, or a choice among them that leaves none; the text says which and why."""


def load_vectors(path: Path) -> list[Vector]:
    """The vectors of a file: one JSON object a line.

    Raises:
        UnusableVectorsError: The file cannot be read, or a line of it is no vector.
    """
    try:
        # Not splitlines, which knows more ends of lines than JSON does.
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UnusableVectorsError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnusableVectorsError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    found: list[Vector] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_vector(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise UnusableVectorsError(f"{path}, line {number}: not a vector: {error}") from error
    return found


def _vector(data: object) -> Vector:
    if not isinstance(data, dict):
        raise ValueError(f"a JSON object is needed, this is {type(data).__name__}")
    missing = [name for name in ("id", "kind", "class", "input") if name not in data]
    if missing:
        raise ValueError(f"there is no {', '.join(missing)}")
    wrong = [name for name in ("id", "kind", "class") if not isinstance(data[name], str)]
    wrong += [name for name in ("config", "expect", "error") if not isinstance(data.get(name) or {}, dict)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} of another type than it must be: names are text, the others objects")
    if data["kind"] not in KINDS:
        raise ValueError(f"its kind is {data['kind']}, which is none of {', '.join(KINDS)}")
    config, expect, error = data.get("config") or {}, data.get("expect"), data.get("error")
    return Vector(data["id"], data["kind"], data["class"], config, data["input"], expect, error)


def choose(vectors: Sequence[Vector], classes: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[Vector]:
    """The vectors of some classes (``Cast$Value``, or ``Cast`` for both) and kinds; without any named, of all.

    Raises:
        UnusableVectorsError: A class or kind is of no vector, or no vector is left.
    """
    named = {name for one in vectors for name in (one.cls, one.cls.partition("$")[0])}
    _check_known("class", classes, named)
    _check_known("kind", kinds, {one.kind for one in vectors})
    found = [
        one
        for one in vectors
        if (not classes or one.cls in classes or one.cls.partition("$")[0] in classes)
        and (not kinds or one.kind in kinds)
    ]
    if not found:
        chosen = f" of class {' or '.join(classes)} is of kind {' or '.join(kinds)}" if vectors else " is in the files"
        raise UnusableVectorsError(f"no vector{chosen}")
    return found


def _check_known(what: str, wanted: Sequence[str], known: Set[str]) -> None:
    sides = {name for name in known if "$" in name}
    for name in wanted:
        if known and name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(known - sides))}"
            raise UnusableVectorsError(f"no vector is of {what} {name}: {hint}")
