"""JSON messages are the bytes that Jackson reads, on each road: records and texts, of many kinds and of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from differential.json_bytes import data_of
from testkit.doubles.chains import consumed
from tests.unit.converters.json.test_plain_bytes import CASES, converter, in_base64, is_deep

from penstock.api import ValueForm
from penstock.converters.string import SimpleHeaderConverter
from penstock.data.text import to_java_text
from penstock.pipeline.batch.batches import PipelineSpec, SinkBatch
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

#: So many digits are more than a decimal of Spark has.
BEYOND_DECIMALS = 999
Case = dict[str, Any]


def cases(*, schemas: bool) -> list[Case]:
    return [
        case
        for case in CASES
        if case["of"] == "value" and case["schemas"] is schemas and not (is_deep(case) or _is_beyond(case))
    ]


def _is_beyond(case: Case) -> bool:
    """Whether an integer with a schema has more digits than columns can tell the last 64 bits of."""
    pieces = case.get("text", [("", 0)])
    return '"int64"' in pieces[0][0] and any(times > BEYOND_DECIMALS for _, times in pieces)


def run(runtime: SparkRuntime, given: Sequence[Case], form: ValueForm | None) -> SinkBatch:
    value = converter(given[0])
    spec = PipelineSpec(value, value, SimpleHeaderConverter(), value_form=form)
    return SinkPipeline(runtime, spec, SparkJobs(runtime)).run(consumed([data_of(case) for case in given]))


def texts_of(made: SinkBatch, rows: int) -> list[str | None]:
    """The text of each value, None of what failed."""
    found: list[str | None] = [None] * rows
    for frame in made.frames or ():
        texts = frame.table["value"].cast("binary").to_pylist()
        for offset, text in zip(frame.table["offset"].to_pylist(), texts, strict=True):
            written = b"null" if text is None else text.decode("utf-8", "surrogatepass").encode("utf-8", "replace")
            found[offset] = in_base64(written)
    for row, record in enumerate(made.records or ()):
        if record is not None:
            text = "null" if record.value is None else to_java_text(record.value, record.value_schema)
            found[row] = in_base64(text)
    for error in made.errors.values():
        assert error.exception_class == "org.apache.kafka.connect.errors.DataException"
    return found


@pytest.mark.parametrize("form", [None, ValueForm.TEXT])
@pytest.mark.parametrize("schemas", [False, True])
def test_messages_of_all_kinds_in_one_batch(schemas: bool, form: ValueForm | None, spark_runtime: SparkRuntime) -> None:
    given = cases(schemas=schemas)

    found = texts_of(run(spark_runtime, given, form), len(given))

    for case, text in zip(given, found, strict=True):
        assert text == case["java"].get("text"), case


@pytest.mark.parametrize("form", [None, ValueForm.TEXT])
def test_messages_of_one_schema_in_one_batch(form: ValueForm | None, spark_runtime: SparkRuntime) -> None:
    kinds: dict[str, list[Case]] = {}
    for case in cases(schemas=True):
        head = case["text"][0][0].partition(',"payload"')[0] if "text" in case else "bytes"
        if case.get("encoding") == "utf-8" and "rest" not in case["text"][-1][0]:
            kinds.setdefault(head, []).append(case)
    for given in kinds.values():
        found = texts_of(run(spark_runtime, given, form), len(given))
        assert found == [case["java"].get("text") for case in given]
