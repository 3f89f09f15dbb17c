"""Metrics that plugins add: what is shown of them, and that they go."""

import logging
import math
import threading
from collections.abc import Callable

import pytest

from penstock.api import Avg, CumulativeCount, CumulativeSum, MetricName, PluginMetrics, SampleWindow, Sensor, Value
from penstock.errors import IllegalWorkerStateException
from penstock.telemetry import Metrics
from penstock.telemetry.metrics import metrics_text
from penstock.worker.task import plugin_metrics
from penstock.worker.task.plugin_metrics import InstanceMetrics

TASK = {"connector": "files", "task": "0"}


class Shown:
    """A task's metrics and what is shown of them."""

    def __init__(self) -> None:
        self.registry = Metrics()
        self.now = 0.0
        self.instance = InstanceMetrics(self.registry, TASK, window=SampleWindow(10, 2), clock=lambda: self.now)
        self.task = self.instance.plugin()

    def text(self) -> str:
        return metrics_text(self.registry.read(), self.registry.descriptions())

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text().splitlines() if not line.startswith("#")]


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_a_metric_has_the_labels_of_its_task_and_its_own(shown: Shown) -> None:
    name = shown.task.metric_name("rows-read-total", "Rows\nof a table.", {"table.name": 'a "b"\\c\nd'})
    shown.task.add_metric(name, lambda: 7)
    assert shown.text() == (
        "# HELP kafka_connect_plugins_rows_read_total Rows\\nof a table.\n"
        "# TYPE kafka_connect_plugins_rows_read_total counter\n"
        'kafka_connect_plugins_rows_read_total{connector="files",table_name="a \\"b\\"\\\\c\\nd",task="0"} 7\n'
    )
    assert name.tags == {"table.name": 'a "b"\\c\nd', "connector": "files", "task": "0"}


def test_plugins_of_one_task_may_use_the_same_names(shown: Shown) -> None:
    for plugin in (shown.task, shown.instance.plugin(converter="key"), shown.instance.plugin(converter="value")):
        plugin.add_metric(plugin.metric_name("seen"), lambda: 1)
    assert shown.lines == [
        'kafka_connect_plugins_seen{connector="files",converter="key",task="0"} 1',
        'kafka_connect_plugins_seen{connector="files",converter="value",task="0"} 1',
        'kafka_connect_plugins_seen{connector="files",task="0"} 1',
    ]


def test_tags_may_have_the_names_of_pythons_arguments(shown: Shown) -> None:
    tags = {"self": "a", "name": "b", "read": "c", "description": "d"}
    shown.task.add_metric(shown.task.metric_name("seen", tags=tags), lambda: 1)
    shown.registry.remove(name="b")
    assert shown.lines == []


def test_a_sensor_feeds_its_metrics(shown: Shown) -> None:
    sensor = shown.task.add_sensor("batches")
    sensor.add(shown.task.metric_name("batches-total"), CumulativeCount())
    sensor.add(shown.task.metric_name("rows-total"), CumulativeSum())
    sensor.add(shown.task.metric_name("rows-avg"), Avg())
    for rows in (10, 20.5):
        sensor.record(rows)
    sensor.record()
    labels = '{connector="files",task="0"}'
    assert (sensor.name, shown.lines) == (
        "batches",
        [
            f"kafka_connect_plugins_batches_total{labels} 3",
            f"kafka_connect_plugins_rows_avg{labels} 10.5",
            f"kafka_connect_plugins_rows_total{labels} 31.5",
        ],
    )
    shown.now = 20.0  # The window of the worker's settings is over.
    assert shown.lines[1] == f"kafka_connect_plugins_rows_avg{labels} NaN"


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (True, "1"), (1e300, str(int(1e300)))],
)
def test_every_number_has_a_text(shown: Shown, value: float, text: str) -> None:
    shown.task.add_metric(shown.task.metric_name("odd"), lambda: value)
    assert shown.lines == [f'kafka_connect_plugins_odd{{connector="files",task="0"}} {text}']


@pytest.mark.parametrize(
    ("name", "tags", "words"),
    [
        ("", {}, r"task=0 cannot call a metric '': a name is letters, digits, hyphens"),
        ("rows read", {}, "cannot call a metric 'rows read'"),
        ("1st", {}, "a letter first"),
        ("rows\n", {}, "cannot call a metric"),
        (None, {}, "cannot call a metric None"),
        ("rows", {"task": "9"}, "the metric rows the tag 'task': the worker's own tags are connector, converter,"),
        ("rows", {"predicate": "p"}, "choose another name"),
        ("rows", {"__name__": "x"}, "a tag's name is letters"),
        ("rows", {"a b": "x"}, "a tag's name is letters"),
        ("rows", {"n": 1}, "its value must be text, not int"),
        ("rows", {"a-b": "x", "a.b": "y"}, "it is shown as a_b, as is the tag 'a-b'"),
    ],
)
def test_names_that_cannot_be_shown_are_refused(shown: Shown, name: str, tags: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shown.task.metric_name(name, "", tags)


def test_a_metric_is_there_once(shown: Shown) -> None:
    shown.task.add_metric(shown.task.metric_name("rows-read"), lambda: 1)
    for name in ("rows-read", "rows.read"):
        with pytest.raises(
            ValueError, match=r"has a metric rows.read .*already \(as kafka_connect_plugins_rows_read\)"
        ):
            shown.task.add_metric(shown.task.metric_name(name), lambda: 2)
    with pytest.raises(ValueError, match="already"):
        shown.task.add_sensor("s").add(shown.task.metric_name("rows-read"), Value())
    with pytest.raises(ValueError, match="has a sensor s already"):
        shown.task.add_sensor("s")
    assert shown.lines == ['kafka_connect_plugins_rows_read{connector="files",task="0"} 1']


def test_names_of_others_and_things_that_do_not_measure_are_refused(shown: Shown) -> None:
    name = shown.task.metric_name("rows")
    for foreign in (MetricName("rows"), shown.instance.plugin(converter="key").metric_name("rows")):
        with pytest.raises(ValueError, match=r"metric_name\(\) of the same plugin|the worker's own tags"):
            shown.task.add_metric(foreign, lambda: 1)
    with pytest.raises(ValueError, match="int cannot be called"):
        shown.task.add_metric(name, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float is no Stat; sensor s needs one"):
        shown.task.add_sensor("s").add(name, 1.0)  # type: ignore[arg-type]
    assert shown.lines == []


def test_what_was_removed_is_gone_and_may_come_again(shown: Shown) -> None:
    rows, sums = shown.task.metric_name("rows"), shown.task.metric_name("sum")
    for _ in range(2):
        shown.task.add_metric(rows, lambda: 1)
        sensor = shown.task.add_sensor("s")
        sensor.add(sums, Value())
        assert len(shown.lines) == 2
        with pytest.raises(ValueError, match=r"added no metric sum .*those of a sensor are removed with it"):
            shown.task.remove_metric(sums)
        shown.task.remove_metric(rows)
        shown.task.remove_sensor("s")
        assert shown.lines == []
    with pytest.raises(ValueError, match="added no metric rows"):
        shown.task.remove_metric(rows)
    with pytest.raises(ValueError, match="has no sensor s"):
        shown.task.remove_sensor("s")
    with pytest.raises(ValueError, match="sensor s was removed"):
        sensor.add(sums, Value())
    sensor.record(1)


def test_one_that_raises_is_left_out_and_logged_once_until_it_works(
    shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[object] = [5]

    def measure() -> float:
        return 1 / len(answers) if answers[0] is None else answers[0]  # type: ignore[return-value]

    shown.task.add_metric(shown.task.metric_name("bad"), measure)
    shown.task.add_metric(shown.task.metric_name("good"), lambda: 1)
    good = ['kafka_connect_plugins_good{connector="files",task="0"} 1']
    with caplog.at_level(logging.WARNING):
        for answer in ("5", None, 10**400, object()):
            answers[:] = [answer] if answer is not None else []
            assert shown.lines == good
    assert [record.getMessage() for record in caplog.records] == [
        "The plugin connector=files task=0: metric bad cannot be measured and is not shown until it can be"
    ]
    answers[:] = [6]
    assert shown.lines == ['kafka_connect_plugins_bad{connector="files",task="0"} 6', *good]


def test_one_that_hangs_is_left_out_by_the_next_reader(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_metrics, "_BUSY_S", 0.01)
    inside, go_on = threading.Event(), threading.Event()

    def measure() -> float:
        inside.set()
        assert go_on.wait(30)
        return 1

    shown.task.add_metric(shown.task.metric_name("slow"), measure)
    first: list[str] = []
    reader = threading.Thread(target=lambda: first.extend(shown.lines))
    reader.start()
    try:
        assert inside.wait(30)
        assert shown.lines == []
    finally:
        go_on.set()
        reader.join(30)
    assert first == ['kafka_connect_plugins_slow{connector="files",task="0"} 1']


def test_nothing_is_left_of_a_closed_instance_and_nothing_can_be_added(shown: Shown) -> None:
    sensor = shown.task.add_sensor("s")
    name, key = shown.task.metric_name("rows"), shown.instance.plugin(converter="key")
    sensor.add(name, CumulativeSum())
    key.add_metric(key.metric_name("seen"), lambda: 1)
    shown.instance.close()
    shown.instance.close()
    assert shown.text() == ""
    calls: list[Callable[[], object]] = [
        lambda: shown.task.metric_name("x"),
        lambda: shown.task.add_metric(name, lambda: 1),
        lambda: shown.task.remove_metric(name),
        lambda: shown.task.add_sensor("x"),
        lambda: shown.task.remove_sensor("s"),
        lambda: sensor.add(name, Value()),
        lambda: shown.instance.plugin().metric_name("x"),
    ]
    for call in calls:
        with pytest.raises(IllegalWorkerStateException, match=r"task=0 are closed: it has ended"):
            call()
    sensor.record(1)
    assert shown.text() == ""


def test_an_instance_that_is_closed_late_leaves_its_successor_alone(shown: Shown) -> None:
    successor = InstanceMetrics(shown.registry, TASK)
    for plugin in (shown.task, successor.plugin()):
        plugin.add_metric(plugin.metric_name("rows"), lambda: 1)
    shown.instance.close()
    assert shown.lines == ['kafka_connect_plugins_rows{connector="files",task="0"} 1']


def test_threads_may_record_add_remove_and_read_at_once(shown: Shown) -> None:
    sensor = shown.task.add_sensor("s")
    sensor.add(shown.task.metric_name("all-total"), CumulativeCount())
    errors: list[BaseException] = []

    def work(number: int, plugin: PluginMetrics, sensor: Sensor) -> None:
        try:
            for _ in range(200):
                name = plugin.metric_name("mine", tags={"thread": str(number)})
                plugin.add_metric(name, lambda: 1)
                sensor.record()
                shown.text()
                plugin.remove_metric(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number, shown.task, sensor)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert shown.lines == ['kafka_connect_plugins_all_total{connector="files",task="0"} 800']
