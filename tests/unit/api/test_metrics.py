"""What plugins measure themselves with: names and stats."""

import math
from collections.abc import Mapping

import pytest
from testkit.connectors.probes import ProbeSink

from penstock.api import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    MetricName,
    Rate,
    SampleWindow,
    SinkTaskContext,
    SourceTaskContext,
    Stat,
    Value,
)

WINDOW = SampleWindow(seconds=30, samples=2)


def measured(stat: Stat, *recorded: tuple[float, float], at: float) -> float:
    """What a stat says after these moments and values."""
    for now, value in recorded:
        stat.record(value, now, WINDOW)
    return stat.measure(at, WINDOW)


@pytest.mark.parametrize(
    ("stat", "shown"),
    [
        (Value(), 3.0),
        (CumulativeSum(), 12.0),
        (CumulativeCount(), 3.0),
        (Max(), 7.0),
        (Avg(), 4.0),
        (Rate(), 12.0 / 40),
    ],
)
def test_stats_of_three_values(stat: Stat, shown: float) -> None:
    assert measured(stat, (0.0, 2.0), (31.0, 7.0), (32.0, 3.0), at=40.0) == shown


def test_values_leave_the_window_a_sample_at_a_time() -> None:
    recorded = ((0.0, 8.0), (29.0, 4.0), (45.0, 1.0))
    assert [measured(Max(), *recorded, at=at) for at in (59.0, 60.0)] == [8.0, 1.0]
    assert measured(Rate(), *recorded, at=60.0) == 1.0 / 30
    assert measured(CumulativeSum(), *recorded, at=1000.0) == 13.0


def test_an_empty_window_is_no_number_or_zero() -> None:
    assert math.isnan(measured(Max(), (0.0, 5.0), at=100.0))
    assert math.isnan(measured(Avg(), at=0.0))
    assert measured(Rate(), (0.0, 5.0), at=100.0) == 0.0
    assert measured(Value(), at=0.0) == 0.0


def test_a_window_of_one_sample_has_a_rate_at_once() -> None:
    rate, window = Rate(), SampleWindow(seconds=10, samples=1)
    rate.record(5.0, 0.0, window)
    assert rate.measure(0.0, window) == 0.5


def test_names_are_equal_whatever_their_descriptions_and_do_not_change() -> None:
    tags = {"table": "a"}
    name = MetricName("rows", "Rows read.", tags)
    tags["table"] = "b"
    assert name == MetricName("rows", "", {"table": "a"})
    assert len({name, MetricName("rows", "other words", {"table": "a"}), MetricName("rows")}) == 2
    with pytest.raises(TypeError):
        name.tags["table"] = "c"  # type: ignore[index]


def test_a_context_of_a_test_may_be_without_metrics_until_they_are_used() -> None:
    for context in (SourceTaskContext, SinkTaskContext):
        own = type("Own", (context,), dict.fromkeys(context.__abstractmethods__))
        with pytest.raises(NotImplementedError, match=r"Own has no plugin metrics: override plugin_metrics\(\)"):
            own().plugin_metrics()


def test_reconfigure_stops_and_starts_and_may_be_overridden() -> None:
    calls: list[object] = []

    class Restarted(ProbeSink):
        def start(self, props: Mapping[str, str]) -> None:
            calls.append(dict(props))

        def stop(self) -> None:
            calls.append("stop")

    Restarted().reconfigure({"name": "a", "must": "now"})
    assert calls == ["stop", {"name": "a", "must": "now"}]
