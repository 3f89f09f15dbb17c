"""How the cycle collector is set up for a worker."""

from __future__ import annotations

import gc
import subprocess
import sys


def test_a_worker_looks_through_young_objects_seldom() -> None:
    code = (
        "import gc; from penstock.kafka.consumer.gc_tuning import collect_rarely; collect_rarely(); "
        "print(gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count() > 0)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == ["True", "300000", "True"]
    assert gc.get_threshold()[0] != 300_000, "the tests' own process keeps Python's settings"
