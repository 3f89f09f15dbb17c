"""Metrics as text for Prometheus and for people.

Main function: ``metrics_text``. Thread: any; pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(metrics: Iterable[tuple[str, Mapping[str, str], float]]) -> str:
    """Metrics ordered by name in Prometheus' text format; names that end in ``_total`` are counters.

    >>> print(metrics_text([("a_total", {"connector": "x", "task": "0"}, 3.0), ("b", {}, 0.5)]), end="")
    # TYPE a_total counter
    a_total{connector="x",task="0"} 3
    # TYPE b gauge
    b 0.5
    """
    lines: list[str] = []
    last = None
    for name, tags, value in metrics:
        if name != last:
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            last = name
        labels = ",".join(f'{tag}="{_escaped(text)}"' for tag, text in tags.items())
        number = int(value) if value == int(value) else value
        lines.append(f"{name}{{{labels}}} {number}" if labels else f"{name} {number}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
