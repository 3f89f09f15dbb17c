"""Counters and gauges."""

import pytest

from penstock.telemetry import Metrics


def test_removed_tags_leave_nothing_behind() -> None:
    metrics = Metrics()
    metrics.counter("n_total", connector="a", task="0").add(2)
    metrics.counter("n_total", connector="b", task="0").add(3)
    metrics.gauge("depth", lambda: 5, connector="a")
    assert metrics.total("n_total", connector="a") == 2
    metrics.remove(connector="a")
    assert list(metrics.read()) == [("n_total", {"connector": "b", "task": "0"}, 3.0)]


def test_a_counter_does_not_go_down() -> None:
    with pytest.raises(ValueError, match="cannot go down"):
        Metrics().counter("n_total").add(-1)
