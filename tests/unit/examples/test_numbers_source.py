"""The columnar source of the documentation."""

import pyarrow as pa
import pytest
from examples.numbers_source import ROWS, NumbersSource, NumbersTask
from tests.unit.examples.source_context import Context

from penstock.api import SourceFrame


def started(context: Context, count: int) -> NumbersTask:
    connector = NumbersSource()
    connector.start({"name": "numbers", "topic": "n", "count": str(count)})
    [config] = connector.task_configs(4)
    task = connector.task_class()()
    task.initialize(context)
    task.start(config)
    return task


def numbers(frame: SourceFrame | None) -> list[int]:
    assert frame is not None
    assert isinstance(frame.data, pa.Table)
    values: list[int] = frame.data["value"].to_pylist()
    return values


def test_it_counts_in_frames_and_then_waits() -> None:
    context = Context()
    task = started(context, ROWS + 3)

    first, second, third = task.poll(), task.poll(), task.poll()

    assert numbers(first) == list(range(ROWS))
    assert numbers(second) == [ROWS, ROWS + 1, ROWS + 2]
    assert third is None
    assert context.waiting.waits == [1.0]
    task.stop()


@pytest.mark.parametrize("row", [0, 2])
def test_it_goes_on_behind_any_delivered_row(row: int) -> None:
    context = Context()
    frame = started(context, 5).poll()
    assert frame is not None
    assert frame.offset_after is not None
    context.commit(frame.source_partition, frame.offset_after(row))

    assert numbers(started(context, 5).poll()) == list(range(row + 1, 5))


def test_it_goes_on_behind_a_whole_frame() -> None:
    context = Context()
    frame = started(context, 5).poll()
    assert frame is not None
    context.commit(frame.source_partition, frame.source_offset)

    assert started(context, 5).poll() is None


def test_a_negative_count_is_refused() -> None:
    values = {value.name: value for value in NumbersSource().validate({"topic": "n", "count": "-1"}).config_values}

    assert values["count"].error_messages == ["Invalid value -1 for configuration count: Value must be at least 0"]
