"""The alarms that a page proposes are about metrics that there are."""

from __future__ import annotations

import re

from tests.unit.docs.pages import ROOT

from penstock.herder.cluster.group_metrics import COORDINATOR, REBALANCE
from penstock.worker.task_metrics import ERRORS, SINK, SOURCE
from penstock.worker.worker import _COUNTED, PREFIX

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
ALARMS = PAGE.partition("### Alarms")[2].partition("\n## ")[0]
CODE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/penstock").rglob("*.py"))


def is_published(name: str) -> bool:
    """Whether code puts such a name together of the part that several share and its own."""
    own = {
        name.removeprefix(prefix)
        for prefix in (COORDINATOR, REBALANCE, ERRORS, SINK, SOURCE)
        if name.startswith(prefix)
    }
    starts = {f"{PREFIX}task_startup_{what}_total" for what in _COUNTED}
    return name in starts or any(f'"{one}"' in CODE or f"}}{one}" in CODE for one in own)


def test_every_metric_of_an_alarm_is_published() -> None:
    named = set(re.findall(r"kafka_connect_\w+", ALARMS))

    assert len(named) > 5
    assert {name for name in named if not is_published(name)} == set()
