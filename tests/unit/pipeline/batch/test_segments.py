"""Users' transforms and converters between two plans: what they may return, and when a predicate lets a transform."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from penstock.api import ConnectRecord, Converter, Predicate, SourceRecord, Transformation
from penstock.config import ConfigDef
from penstock.data import ConnectHeaders, Schema, SchemaAndValue
from penstock.errors import DataException
from penstock.pipeline.batch.batches import Failures, TransformStage
from penstock.pipeline.batch.row_path import OneSide, all_rows
from penstock.pipeline.batch.segments import Classic, ColumnarSegment, Stateless, class_name, cut_transforms
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.predicates import RecordIsTombstone

RECORD = SourceRecord({"f": 1}, {"p": 1}, "t", "v")


class Returning(Transformation):
    def __init__(self, make: Callable[[ConnectRecord], Any]) -> None:
        self._make = make

    def configure(self, configs: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: Any) -> Any:
        return self._make(record)


class Answering(Predicate):
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def configure(self, configs: Mapping[str, object]) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()

    def test(self, record: ConnectRecord) -> bool:
        answer: bool = self._answer
        return answer


def applied(make: Callable[[ConnectRecord], Any], answer: Any = None, *, negate: bool = False) -> ConnectRecord | None:
    predicate = None if answer is None else Answering(answer)
    return Classic(Returning(make), predicate, negate, "my.Transform", "x").apply(RECORD)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"topic": "other"},
        {"partition": 3},
        {"partition": np.int32(3)},
        {"timestamp": 5},
        {"timestamp": 5.5},
        {"partition": None, "timestamp": None},
    ],
)
def test_a_record_that_can_be_sent_goes_on(change: dict[str, Any]) -> None:
    result = applied(lambda record: record.new_record(**change))
    assert result is not None
    assert result.value == "v"


def test_nothing_drops_the_record() -> None:
    assert applied(lambda record: None) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda record: record.value, "my.Transform must return a record, or None to drop it, got str"),
        (lambda record: record.new_record(topic=7), "cannot be sent: the topic is 7"),
        (lambda record: record.new_record(partition="0"), "cannot be sent: the partition is '0'"),
        (lambda record: record.new_record(partition=2**31), f"cannot be sent: the partition is {2**31}"),
        (lambda record: record.new_record(timestamp="now"), "cannot be sent: the timestamp is 'now'"),
        (lambda record: record.new_record(timestamp=2**63), f"cannot be sent: the timestamp is {2**63}"),
    ],
)
def test_anything_else_is_the_failure_of_this_record(make: Callable[[ConnectRecord], Any], words: str) -> None:
    with pytest.raises(DataException) as refused:
        applied(make)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "negate", "runs"),
    [
        (True, False, True),
        (False, False, False),
        (True, True, False),
        (False, True, True),
        (np.False_, False, False),
        (0, False, False),
        (1, True, False),
        ("yes", True, False),
    ],
)
def test_the_predicate_decides_also_with_an_answer_that_is_only_like_a_bool(
    answer: Any, negate: bool, runs: bool
) -> None:
    result = applied(lambda record: record.new_record(value="changed"), answer, negate=negate)
    assert result is not None
    assert (result.value == "changed") is runs


class Making(Converter):
    def configure(self, configs: Mapping[str, object], is_key: bool) -> None: ...

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        made: Any = value
        return made  # type: ignore[no-any-return]

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        raise NotImplementedError


def test_a_converter_that_makes_no_bytes_fails_the_record_and_no_other() -> None:
    values = [b"a", None, "text", bytearray(b"b"), 7]
    records: list[ConnectRecord] = [SourceRecord({"f": 1}, {"p": 1}, "t", value) for value in values]
    failures = Failures()
    column = OneSide("value", Making()).written(all_rows(records, None), failures)
    assert column.to_pylist() == [b"a", None, None, b"b", None]
    assert {row: (error.stage, error.message) for row, error in failures.errors.items()} == {
        2: ("VALUE_CONVERTER", f"{class_name(Making())} must return bytes or None, got str"),
        4: ("VALUE_CONVERTER", f"{class_name(Making())} must return bytes or None, got int"),
    }


class Forgetful(Returning):
    stateless = True


class ForgetfulAnswer(Answering):
    stateless = True


def test_transforms_without_state_in_a_row_are_one_segment() -> None:
    def stage(alias: str, kind: type[Returning], predicate: Any = None) -> TransformStage:
        return TransformStage(alias, kind(lambda record: record), predicate)

    stock = InsertFieldValue()
    stock.configure({"static.field": "a", "static.value": "b"})
    chain = [
        stage("a", Forgetful),
        stage("b", Forgetful, RecordIsTombstone()),
        stage("c", Forgetful, ForgetfulAnswer(True)),
        TransformStage("d", stock, ForgetfulAnswer(True)),
        stage("e", Forgetful, Answering(True)),
        TransformStage("f", stock),
        stage("g", Returning),
    ]

    first, second, third, fourth = cut_transforms(chain)

    assert isinstance(first, Stateless)
    assert [one.alias for one in first.chain] == ["a", "b", "c", "d"]
    assert isinstance(second, Classic), "its predicate may keep something"
    assert isinstance(third, ColumnarSegment)
    assert isinstance(fourth, Classic)
