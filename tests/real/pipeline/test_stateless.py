"""Transforms without state in Spark's Python workers: the same comes of a batch as in the worker, record for record."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from testkit.doubles.chains import configured, consumed, stages

from penstock.api import ConnectRecord, Predicate, SourceFrame, SourceRecord, Transformation
from penstock.api.transform import R
from penstock.config import ConfigDef
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import INT64_SCHEMA, STRING_SCHEMA, ConnectHeaders, SchemaBuilder, Struct
from penstock.errors import ConnectException, DataException, RetriableException
from penstock.pipeline.batch import groups as roads
from penstock.pipeline.batch.batches import PipelineSpec, ProduceBatch, RecordError, TransformStage, Why
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.headers import InsertHeader
from penstock.transforms.predicates import RecordIsTombstone
from penstock.transforms.restructuring import ReplaceFieldValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

ROWS = 6_000
SCHEMA = SchemaBuilder.struct().field("n", INT64_SCHEMA).field("b", STRING_SCHEMA).build()
OTHER = SchemaBuilder.struct().name("other").field("x", SchemaBuilder.float64().optional().build()).build()


class OfMyOwn(Exception):
    """An error of a user."""


class Odd(Transformation):
    """Does another thing with each tenth record."""

    stateless = True

    def config(self) -> ConfigDef:
        return ConfigDef()

    def configure(self, props: Mapping[str, object]) -> None:
        self.add = int(str(props.get("add", 0)))

    def apply(self, record: Any) -> Any:
        value = record.value
        if value is None:
            return record
        number = value.get("n")
        if not isinstance(number, int):
            return record
        match (number + self.add) % 12:
            case 1:
                raise DataException(f"no ones: {number}")
            case 2:
                return None
            case 3:
                raise RetriableException("later")
            case 4:
                headers = ConnectHeaders().add_string("h", "é").add_long("n", number)
                return record.new_record(topic="other", partition=1, timestamp=number, headers=headers)
            case 5:
                return record.new_record(value_schema=OTHER, value=Struct(OTHER).put("x", number / 8))
            case 6:
                return record.new_record(value_schema=None, value={"n": number, "list": [1, "a", None]})
            case 7:
                return record.new_record(value_schema=None, value={"n": {1, 2}})
            case 8:
                return record.new_record(value_schema=None, value=None)
            case 9:
                return record.new_record(key_schema=STRING_SCHEMA, key=f"k{number}")
            case 10:
                raise OfMyOwn(number, "of mine")
            case 11:
                return record.new_record(value=str(number))
        return record


class OddAgain(Odd):
    """The second of two in a row."""

    def apply(self, record: Any) -> Any:
        return record if record.kafka_partition == 1 else super().apply(record)


class EveryThird(Predicate):
    """Holds for a third of the records, and cannot tell of some."""

    stateless = True

    def config(self) -> ConfigDef:
        return ConfigDef()

    def test(self, record: ConnectRecord) -> bool:
        value: Any = record.value
        number = value.get("n") if isinstance(value, (Struct, dict)) else 0
        if number == 17:
            raise ConnectException("seventeen")
        return isinstance(number, int) and number % 3 == 0


def chain() -> list[TransformStage]:
    insert = configured(InsertFieldValue(), {"static.field": "s", "static.value": "é"})
    leave = configured(ReplaceFieldValue(), {"exclude": "b"})
    return [
        TransformStage("insert", insert, configured(RecordIsTombstone()), negate=True),
        TransformStage("odd", configured(Odd())),
        TransformStage("again", configured(OddAgain(), {"add": 5}), EveryThird(), negate=True),
        TransformStage("leave", leave),
    ]


def spec(transforms: list[TransformStage], *, schemas: bool = False) -> PipelineSpec:
    converters = [JsonConverter(), JsonConverter()]
    for one in converters:
        one.configure({"schemas.enable": str(schemas).lower()}, False)
    return PipelineSpec(converters[0], converters[1], SimpleHeaderConverter(), transforms, "chain")


def structs(rows: int = ROWS) -> list[SourceRecord]:
    headers = ConnectHeaders().add_string("first", "yes")
    return [
        SourceRecord(
            {"file": "f"},
            {"line": number},
            "t",
            Struct(SCHEMA).put("n", number).put("b", "x") if number % 50 else None,
            value_schema=SCHEMA if number % 50 else None,
            timestamp=5,
            headers=headers if number % 7 == 0 else None,
        )
        for number in range(rows)
    ]


def maps(rows: int = ROWS) -> list[SourceRecord]:
    return [SourceRecord(None, None, "t", {"n": number, "b": "x"}) for number in range(rows)]


def mixed(rows: int = ROWS) -> list[SourceRecord]:
    return [SourceRecord(None, None, "t", {"n": number, f"b{number % 9}": [number]}) for number in range(rows)]


def told(errors: Mapping[int, RecordError]) -> dict[int, tuple[object, ...]]:
    """What a dead letter, or the log, says of each error."""
    return {
        seq: (
            one.stage,
            one.executing_class,
            one.exception_class,
            one.message,
            one.retriable,
            type(one.exception).__mro__[1].__name__,
        )
        for seq, one in errors.items()
    }


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all batches go in the worker."""
    monkeypatch.setattr(roads, "MIN_SPREAD_ROWS", 10**9)


def assert_same(one: ProduceBatch, other: ProduceBatch) -> None:
    assert told(one.errors) == told(other.errors)
    assert one.table.to_pylist() == other.table.to_pylist()
    assert (one.has_headers, one.has_dropped, one.has_keys) == (other.has_headers, other.has_dropped, other.has_keys)


@pytest.mark.parametrize("records", [structs, maps, mixed])
def test_a_source_sends_the_same(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch, records: Callable[[], list[SourceRecord]]
) -> None:
    counted: Counter[Why | None] = Counter()
    there = SourcePipeline(spark_runtime, spec(chain()), moved=counted.update).run(records())
    alone(monkeypatch)
    here = SourcePipeline(spark_runtime, spec(chain())).run(records())

    assert_same(there, here)
    assert {one.exception_class for one in there.errors.values()} >= {
        f"{OfMyOwn.__module__}.OfMyOwn",
        "org.apache.kafka.connect.errors.DataException",
        "org.apache.kafka.connect.errors.RetriableException",
    }
    assert counted.total() == ROWS
    assert counted[Why.MIXED_VALUES if records is mixed else Why.STATELESS]
    assert not counted[Why.OWN_CLASS]


@pytest.mark.parametrize("first", [True, False], ids=["first", "behind a stock one"])
def test_a_frame_becomes_the_same(spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    numbers = pa.array(range(ROWS), pa.int64())
    table = pa.table({"n": numbers, "b": pa.array(["x"] * ROWS), "topic": ["t", "u"] * (ROWS // 2)})
    frame = SourceFrame(table, None, None, {"file": "f"}, {"line": 1}, value_fields=["n", "b"])
    transforms = chain()[1:] if first else chain()

    there = SourcePipeline(spark_runtime, spec(transforms)).run(frame)
    alone(monkeypatch)
    here = SourcePipeline(spark_runtime, spec(transforms)).run(frame)

    assert_same(there, here)
    assert there.errors


def envelopes(typed: bool) -> list[bytes | None]:
    fields = [{"field": "n", "type": "int64"}, {"field": "b", "type": "string"}]
    schema = {"type": "struct", "fields": fields}
    values = [{"n": number, "b": "x"} for number in range(ROWS)]
    made = [json.dumps({"schema": schema, "payload": one} if typed else one).encode() for one in values]
    return [b"{no json" if number % 100 == 99 else one for number, one in enumerate(made)]


@pytest.mark.parametrize("typed", [True, False])
def test_a_sink_gets_the_same(spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch, typed: bool) -> None:
    messages = consumed(envelopes(typed))
    transforms = [*stages(configured(InsertHeader(), {"header": "h", "value.literal": "1"})), *chain()]

    there = SinkPipeline(spark_runtime, spec(transforms, schemas=typed)).run(messages)
    alone(monkeypatch)
    here = SinkPipeline(spark_runtime, spec(transforms, schemas=typed)).run(messages)

    assert told(there.errors) == told(here.errors)
    assert there.records == here.records
    assert [None if one is None else one.raw_headers for one in there.records or ()] == [
        None if one is None else one.raw_headers for one in here.records or ()
    ]
    assert (there.count_dropped, there.origins) == (here.count_dropped, here.origins)
    assert there.count_dropped


class Locked(Odd):
    """An instance that cannot be pickled."""

    def configure(self, props: Mapping[str, object]) -> None:
        super().configure(props)
        self.lock = threading.Lock()


class Hidden(Odd):
    """What it returns cannot be pickled."""

    def apply(self, record: R) -> Any:
        return record.new_record(value_schema=None, value=lambda: record) if record.value else record


@pytest.mark.parametrize(
    ("transform", "props", "refused"),
    [
        (Locked, None, "it cannot be sent: TypeError: cannot pickle '_thread.lock' object"),
        (Locked, {"add": "3"}, None),
        (Hidden, None, "what it returns cannot be sent"),
    ],
    ids=["no settings", "settings", "values"],
)
def test_what_cannot_be_sent_goes_in_the_worker_and_is_told_once(
    spark_runtime: SparkRuntime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    transform: type[Odd],
    props: Mapping[str, object] | None,
    refused: str | None,
) -> None:
    given = [TransformStage("odd", configured(transform(), props), props=props)]
    counted: Counter[Why | None] = Counter()
    pipeline = SourcePipeline(spark_runtime, spec(given), moved=counted.update)
    with caplog.at_level(logging.WARNING):
        batches = [pipeline.run(structs()) for _ in range(2)]
    alone(monkeypatch)
    here = SourcePipeline(spark_runtime, spec(given)).run(structs())

    for one in batches:
        if transform is Locked:
            assert_same(one, here)
        assert told(one.errors).keys() == told(here.errors).keys()
    warned = [one.getMessage() for one in caplog.records if one.name == "penstock.pipeline.batch.stateless"]
    if refused is None:
        assert not warned
        assert counted[Why.STATELESS]
    else:
        (warning,) = warned
        assert warning.startswith("transforms.odd: stateless, but run in the worker: ")
        assert refused in warning


class Ends(Transformation):
    """Ends the process that it is in, if that is not the worker."""

    stateless = True
    worker: ClassVar[int] = os.getpid()

    def __init__(self) -> None:
        self.mine = os.getpid()

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R:
        if os.getpid() != self.mine:
            os._exit(3)
        return record


@pytest.mark.timeout(120)
def test_a_python_worker_that_is_ended_fails_the_batch_and_nothing_else(spark_runtime: SparkRuntime) -> None:
    ends = SourcePipeline(spark_runtime, spec([TransformStage("ends", Ends())]))
    generation = spark_runtime.generation
    with pytest.raises(ConnectException, match=r"transforms\.ends: a Python worker of Spark has ended while"):
        ends.run(structs())

    odd = SourcePipeline(spark_runtime, spec(chain())).run(structs())
    assert odd.errors
    assert spark_runtime.generation == generation


def test_small_batches_go_in_the_worker(spark_runtime: SparkRuntime) -> None:
    counted: Counter[Why | None] = Counter()
    SourcePipeline(spark_runtime, spec(chain()), moved=counted.update).run(structs(30))
    assert counted[Why.OWN_CLASS]
    assert not counted[Why.STATELESS]
