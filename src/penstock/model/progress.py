"""The progress of a task, as it reports it itself.

Main type: `Progress`. A value; any thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Work that has an end, or at least a measure.

    Attributes:
        done: The amount that is done.
        total: The whole amount; None if unknown. May grow.
        unit: The unit: ``rows``, ``bytes``, ``files``.
        text: A further description; may be empty.

    Raises:
        ValueError: One of the numbers is none, or negative.
    """

    done: float
    total: float | None = None
    unit: str = "records"
    text: str = ""

    def __post_init__(self) -> None:
        for name, value in (("done", self.done), ("total", self.total)):
            if value is None and name == "total":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise ValueError(f"progress: {name} is a number, 0 or more, not {value!r}")
        if not isinstance(self.unit, str) or not self.unit:
            raise ValueError(f"progress: unit is a word such as 'rows', not {self.unit!r}")

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        told: dict[str, object] = {"done": self.done, "total": self.total, "unit": self.unit}
        return {**told, "text": self.text} if self.text else told
