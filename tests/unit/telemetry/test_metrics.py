"""Counters, gauges, families of gauges, and their text."""

import pytest

from penstock.telemetry import Metrics
from penstock.telemetry.metrics import metrics_text


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


def test_a_family_shows_what_there_is_when_it_is_read() -> None:
    metrics = Metrics()
    lags = {"0": 5.0}
    metrics.family("lag", lambda: [({"partition": p}, lag) for p, lag in lags.items()], "How far behind.", task="1")
    metrics.gauge("depth", lambda: 1, task="1")
    metrics.counter("n_total", task="1")
    lags["1"] = 0.5
    assert metrics_text(metrics.read(), metrics.descriptions()) == (
        "# TYPE depth gauge\n"
        'depth{task="1"} 1\n'
        "# HELP lag How far behind.\n"
        "# TYPE lag gauge\n"
        'lag{task="1",partition="0"} 5\n'
        'lag{task="1",partition="1"} 0.5\n'
        "# TYPE n_total counter\n"
        'n_total{task="1"} 0\n'
    )
    assert metrics.total("lag", task="1") == 5.5
    metrics.remove(task="1")
    assert (list(metrics.read()), metrics.descriptions()) == ([], {})


def test_the_first_description_of_a_name_is_the_one_that_is_shown() -> None:
    metrics = Metrics()
    for connector in ("b", "a", "c"):
        metrics.family("rows", lambda: [({}, 1.0)], f"Of {connector}.", connector=connector)
    assert metrics.descriptions() == {"rows": "Of a."}


def test_a_family_that_was_replaced_is_not_dropped_with_the_old_one() -> None:
    metrics = Metrics()
    old = metrics.family("rows", lambda: [({}, 1.0)], connector="a")
    new = metrics.family("rows", lambda: [({}, 2.0)], connector="a")
    metrics.drop(old)
    assert metrics.total("rows") == 2
    metrics.drop(new)
    assert list(metrics.read()) == []
