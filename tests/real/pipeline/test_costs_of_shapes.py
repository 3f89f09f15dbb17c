"""The processor time of sinks' batches in the interpreter, beside that of the same messages one by one.

What Spark takes is not in it: the pipelines are those of a worker, and the jobs that messages only pass do nothing.
`bin/bench shapes` has the figures of whole workers, beside Java's.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.shapes.messages import FLAT, KILOBYTE, NESTED, Shape

from penstock.api import ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data.text import to_java_text
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Passage
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = pytest.mark.slow

ROWS = 2_500
#: The best of so many batches: what else runs on the machine makes single ones slower.
ROUNDS = 5
#: What costs too much does so each time; what else runs on the machine slows one of the two measurements now and then.
TRIES = 5

#: A message that is not what its neighbours are, of each kind that takes another way.
ODD = (
    b'{"id":1e3,"name":"exponent"}',
    b'{"id":12345678901234567890123}',
    b'{"id":-0.0,"id":7}',
    b'[1,"an array",null]',
    b'"a text"',
    b'{"id":"a text where numbers are","name":1,"city":{"in":["an object"]}}',
    b'{"at":{"deep":[[[[[{}]]]]]}}',
)


class Passing(SparkJobs):
    """Jobs that messages pass without Spark."""

    def __init__(self) -> None:
        super().__init__(SparkRuntime({}))

    def pass_by(self, messages: pa.Table) -> Passage:
        assert messages.column_names == ["key", "value"]
        return lambda *, patient=False: None

    def run(self, *_: Any, **__: Any) -> list[Any]:
        raise AssertionError("no plan is needed")


@pytest.fixture(autouse=True)
def rare_collector() -> Iterator[None]:
    """The garbage collector does not look through what other tests have left; a worker has it run rarely, too."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def best_us(work: Iterator[Callable[[], object]]) -> float:
    """Processor time of a message, in microseconds, in the best of the batches behind the first one."""
    best = float("inf")
    for number, one in enumerate(itertools.islice(work, ROUNDS + 1)):
        started = time.thread_time()
        made = one()
        if number:
            best = min(best, time.thread_time() - started)
        del made
    return best / ROWS * 1e6


def configured() -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": "false"}, False)
    return made


def at_once_us(form: ValueForm | None, batches: Iterator[Sequence[bytes]], topics: int = 1) -> float:
    """What a sink's pipeline takes."""
    spec = PipelineSpec(configured(), configured(), SimpleHeaderConverter(), value_form=form)
    pipeline = SinkPipeline(SparkRuntime({}), spec, Passing())

    def batch(values: Sequence[bytes]) -> pa.Table:
        rows = len(values)
        columns: dict[str, Any] = {
            **dict.fromkeys(CONSUMED_SCHEMA.names, [None] * rows),
            "topic": [f"t{row % topics}" for row in range(rows)],
            "partition": [0] * rows,
            "offset": list(range(rows)),
            "timestamp_type": [-1] * rows,
            "value": values,
        }
        return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], CONSUMED_SCHEMA)

    given = map(batch, batches)
    return best_us((lambda one=one: pipeline.run(one)) for one in given)  # type: ignore[misc]


def one_by_one_us(form: ValueForm | None, batches: Iterator[Sequence[bytes]]) -> float:
    """What the converter takes for each message by itself, and for a sink of text its printing."""
    converter = configured()

    def work(values: Sequence[bytes]) -> None:
        for one in values:
            value = converter.to_connect_data("t", one).value
            if form is ValueForm.TEXT:
                to_java_text(value)

    return best_us((lambda one=one: work(one)) for one in batches)  # type: ignore[misc]


def alike(shape: Shape) -> Iterator[Sequence[bytes]]:
    return itertools.repeat([value for _, value in shape.json(ROWS, schemas=False)])


def odd(percent: int, shape: Shape = FLAT) -> Iterator[Sequence[bytes]]:
    others = itertools.cycle(ODD)
    usual = next(alike(shape))
    return itertools.repeat([next(others) if row * percent % 100 < percent else one for row, one in enumerate(usual)])


def new_fields(shape: Shape = FLAT) -> Iterator[Sequence[bytes]]:
    usual = next(alike(shape))
    for number in itertools.count():
        yield [b'{"new%d":%d,%b' % (number, row, one[1:]) for row, one in enumerate(usual)]


#: Messages, and how many topics they are of.
MIXES: dict[str, tuple[Callable[[], Iterator[Sequence[bytes]]], int]] = {
    "flat": (lambda: alike(FLAT), 1),
    "nested": (lambda: alike(NESTED), 1),
    "2 % odd": (lambda: odd(2), 1),
    "10 % odd": (lambda: odd(10), 1),
    "50 % odd": (lambda: odd(50), 1),
    "new fields in each batch": (new_fields, 1),
    "fifty topics": (lambda: alike(FLAT), 50),
}
#: The most that they may cost, in the time that messages take one by one: about one and a half times what they do.
MOST = {
    None: (0.75, 0.85, 0.85, 0.95, 1.3, 0.75, 0.9),
    ValueForm.TEXT: (0.5, 0.55, 0.95, 0.9, 1.0, 0.55, 0.5),
    # As VARIANT, which Spark made, they cost eighteen times as much.
    ValueForm.COLUMNS: (1.9, 1.6, 3, 6, 4, 1.5, 4),
}

#: The same of 1 KB, as records: what a batch of them may cost.
LARGE: dict[str, tuple[Callable[[], Iterator[Sequence[bytes]]], int, float]] = {
    "1 KB": (lambda: alike(KILOBYTE), 1, 0.85),
    "2 % odd": (lambda: odd(2, KILOBYTE), 1, 0.95),
    "10 % odd": (lambda: odd(10, KILOBYTE), 1, 1.05),
    "50 % odd": (lambda: odd(50, KILOBYTE), 1, 1.35),
    "new fields in each batch": (lambda: new_fields(KILOBYTE), 1, 0.9),
    "fifty topics": (lambda: alike(KILOBYTE), 50, 0.9),
}


@pytest.mark.parametrize("form", MOST, ids=lambda form: "records" if form is None else form.value)
@pytest.mark.parametrize("mix", MIXES)
def test_messages_of_any_mix_cost_a_sink_no_more_than_their_share_of_single_ones(
    form: ValueForm | None, mix: str
) -> None:
    batches, topics = MIXES[mix]
    check(form, batches, topics, MOST[form][list(MIXES).index(mix)])


@pytest.mark.parametrize("mix", LARGE)
def test_large_messages_of_any_mix_cost_a_record_sink_no_more_than_single_ones(mix: str) -> None:
    check(None, *LARGE[mix])


def check(form: ValueForm | None, batches: Callable[[], Iterator[Sequence[bytes]]], topics: int, most: float) -> None:
    seen = []
    for _ in range(TRIES):
        cost, alone = at_once_us(form, batches(), topics), one_by_one_us(form, batches())
        if cost < most * alone:
            return
        seen.append(f"{cost:.1f} us a message, one by one {alone:.1f} us")
    pytest.fail("; ".join(seen))
