"""The source of the documentation that reads with Spark."""

from typing import Any

import pytest
from examples.squares_source import ROWS, SquaresSource, SquaresTask
from tests.unit.examples.source_context import Context

from penstock.api import SourceFrame


class Query:
    """A session and a query in one: what was asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def range(self, first: int, end: int) -> "Query":
        self.asked.append((first, end))
        return self

    def selectExpr(self, *expressions: str) -> "Query":
        self.asked += expressions
        return self


def started(context: Context, count: int) -> SquaresTask:
    connector = SquaresSource()
    connector.start({"name": "squares", "topic": "n", "count": str(count)})
    [config] = connector.task_configs(4)
    task = connector.task_class()()
    task.initialize(context)
    task.start(config)
    return task


def asked(frame: SourceFrame | None) -> list[object]:
    assert frame is not None
    data: Any = frame.data
    query: Query = data(Query())
    return query.asked


def test_each_frame_is_a_query_of_its_own_numbers() -> None:
    context = Context()
    task = started(context, ROWS + 3)

    first, second, third = task.poll(), task.poll(), task.poll()

    # Whenever they are asked.
    assert asked(second) == [(ROWS, ROWS + 3), "id * id AS value"]
    assert asked(first) == [(0, ROWS), "id * id AS value"]
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

    assert asked(started(context, 5).poll())[0] == (row + 1, 5)


def test_it_goes_on_behind_a_whole_frame() -> None:
    context = Context()
    frame = started(context, 5).poll()
    assert frame is not None
    context.commit(frame.source_partition, frame.source_offset)

    assert started(context, 5).poll() is None


def test_a_negative_count_is_refused() -> None:
    values = {value.name: value for value in SquaresSource().validate({"topic": "n", "count": "-1"}).config_values}

    assert values["count"].error_messages == ["Invalid value -1 for configuration count: Value must be at least 0"]
