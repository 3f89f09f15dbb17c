"""Metrics as text for Prometheus and for people.

Main function: ``metrics_text``. Thread: any; pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(
    metrics: Iterable[tuple[str, Mapping[str, str], float]], descriptions: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Metrics ordered by name in Prometheus' text format; names that end in ``_total`` are counters.

    Args:
        metrics: Name, tags and value of each.
        descriptions: By name, where there is one.

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
            if name in descriptions:
                lines.append(f"# HELP {name} {_one_line(descriptions[name])}")
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            last = name
        labels = ",".join(f'{tag}="{_escaped(text)}"' for tag, text in tags.items())
        lines.append(f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value) if value == int(value) else value)


def _escaped(text: str) -> str:
    return _one_line(text).replace('"', '\\"')


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
