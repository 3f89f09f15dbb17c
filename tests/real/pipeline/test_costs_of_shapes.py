"""The cost of messages of common shapes on their way to a sink, beside that of single ones (`bin/bench shapes`)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import pytest
from benchmarks.shapes import here
from benchmarks.shapes.messages import FLAT, NESTED, Shape

from penstock.converters.as_json import JsonConverter
from penstock.data.text import to_java_text
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]

FILE = "file sink (text)"
ROWS, WARM, COUNT = 10_000, 6, 6
#: The best of so many: what else runs on the machine makes single ones slower.
ROUNDS = 5


@pytest.fixture(autouse=True)
def rare_collector() -> Iterator[None]:
    """The garbage collector does not look through what other tests have left; a worker has it run rarely, too."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def one_by_one_us(shape: Shape, work: Callable[[JsonConverter, bytes], object]) -> float:
    """Processor time of one message that is worked on by itself, in microseconds."""
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, is_key=False)
    messages = [value for _, value in shape.json(ROWS, schemas=False)]
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for message in messages:
            work(converter, message)
        best = min(best, time.process_time() - started)
    return best / ROWS * 1e6


def text_of(converter: JsonConverter, message: bytes) -> str:
    return to_java_text(converter.to_connect_data("t", message).value)


@pytest.mark.parametrize(("shape", "most"), [(FLAT, 0.5), (NESTED, 0.85)], ids=lambda one: getattr(one, "name", ""))
def test_a_file_sink_takes_a_share_of_what_messages_cost_that_become_text_one_by_one(
    spark_runtime: SparkRuntime, shape: Shape, most: float
) -> None:
    cost = here.costs(spark_runtime, shape, [FILE], rows=ROWS, warm=WARM, count=COUNT)[FILE]
    alone = one_by_one_us(shape, text_of)

    assert cost.interpreter_us < most * alone, f"{cost.interpreter_us:.1f} us a message, one by one {alone:.1f} us"
