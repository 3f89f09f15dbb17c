"""The vector runner: what counts as equal to Java, what as a deviation, and what is printed."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from conformance.vectors.__main__ import main
from conformance.vectors.adapter import PipelineAdapter, decode_record, encode_record
from conformance.vectors.compare import judge
from conformance.vectors.deviations import Deviation, load_deviations
from conformance.vectors.model import Failure, Outcome, Success, Vector, Verdict, choose, load_vectors
from conformance.vectors.runner import run_one_by_one, run_shuffled

from penstock.api import ConnectRecord

RECORD: dict[str, Any] = {
    "recordType": "sink",
    "topic": "t",
    "partition": 1,
    "offset": 42,
    "timestamp": 7,
    "headers": [{"key": "h", "schema": {"type": "int8"}, "value": 1}],
    "keySchema": None,
    "key": None,
    "valueSchema": {"type": "struct", "fields": [{"name": "a", "schema": {"type": "int32"}}]},
    "value": {"a": 5},
}


def vector(expect: Any = None, error: Any = None, given: Any = None, **changes: Any) -> Vector:
    parts: dict[str, Any] = {"id": "v", "kind": "transform", "cls": "Cast$Value", "config": {}}
    return Vector(**{**parts, "input": given, "expect": expect, "error": error, **changes})


def text_vector(text: str, value: Any) -> Vector:
    data = base64.b64encode(text.encode()).decode()
    return vector({"base64": data, "text": text}, given={"value": value}, kind="from_connect")


def text_outcome(text: str) -> Success:
    return Success({"base64": base64.b64encode(text.encode()).decode()})


def test_a_record_survives_decoding_and_encoding() -> None:
    expected = {key: value for key, value in RECORD.items() if key not in ("recordType", "offset")}

    assert encode_record(decode_record(RECORD)) == expected
    assert encode_record(decode_record({**RECORD, "recordType": "source"})) == expected


def test_an_equal_record_passes_and_a_different_one_names_what_differs() -> None:
    recorded = vector({"record": RECORD})
    changed = {**RECORD, "valueSchema": {"type": "string"}}

    assert judge(recorded, Success({"record": RECORD})).passed
    reason = judge(recorded, Success({"record": changed})).reason
    assert reason is not None
    assert reason.startswith('valueSchema is {"type": "string"}')


def test_a_dropped_record_is_not_a_record() -> None:
    assert judge(vector({"record": None}), Success({"record": None})).passed
    assert not judge(vector({"record": None}), Success({"record": RECORD})).passed
    assert not judge(vector({"record": RECORD}), Success({"record": None})).passed


@pytest.mark.parametrize(
    ("java", "ours", "passes"),
    [
        (("DataException", "apply"), ("DataException", "apply"), True),
        (("DataException", "apply"), ("ConnectException", "apply"), False),
        (("ConfigException", "configure"), ("ConfigException", "apply"), False),
        (("NullPointerException", "apply"), ("DataException", "apply"), True),
        (("NullPointerException", "configure"), ("DataException", "apply"), False),
        (("DataException", None), ("DataException", "apply"), True),
    ],
)
def test_errors_agree_by_class_and_phase(java: tuple[str, str | None], ours: tuple[str, Any], passes: bool) -> None:
    recorded = vector(error={"class": java[0], "phase": java[1], "message": "m"})

    assert judge(recorded, Failure(ours[1], ours[0], "m")).passed is passes


def test_messages_are_compared_only_where_java_s_text_is_no_business_of_the_jvm() -> None:
    plain = vector(error={"class": "DataException", "message": "m", "phase": "apply"})
    java_text = vector(error={"class": "DataException", "message": "m", "phase": "apply", "javaText": True})

    assert judge(plain, Failure("apply", "DataException", "m")).same_message is True
    assert judge(plain, Failure("apply", "DataException", "other")).same_message is False
    assert judge(java_text, Failure("apply", "DataException", "m")).same_message is None


def test_a_missing_class_or_a_failed_batch_passes_nothing() -> None:
    recorded = vector(error={"class": "NullPointerException", "phase": "apply"})

    assert judge(recorded, Failure("apply", "X", None, "the whole batch failed")).reason == "the whole batch failed"


def test_success_where_java_failed_and_failure_where_it_did_not_are_told() -> None:
    failing = vector(error={"class": "DataException", "message": "m", "phase": "apply"})

    assert "expected DataException: m" in str(judge(failing, Success({"record": None})).reason)
    assert "failed with X at apply: why" in str(judge(vector({"record": None}), Failure("apply", "X", "why")).reason)


@pytest.mark.parametrize(
    ("java", "ours", "value", "passes"),
    [
        ('{"a":1,"b":2}', '{"b":2,"a":1}', {"a": 1, "b": 2}, True),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', 5, False),
        ('{"a":1,"b":2}', '{"b":2,"a":1.0}', {"a": 1, "b": 2}, False),
        ("{a=1, b=2}", "{b=2, a=1}", {"a": 1, "b": 2}, True),
        ("1.0E7", "1.0E7", 1e7, True),
        ("1.0E7", "1.0e7", 1e7, False),
    ],
)
def test_bytes_are_equal_but_for_the_order_of_a_map(java: str, ours: str, value: Any, passes: bool) -> None:
    assert judge(text_vector(java, value), text_outcome(ours)).passed is passes


def test_a_header_converter_s_null_is_a_null_value() -> None:
    recorded = vector({"null": True}, kind="header")

    assert judge(recorded, Success({"schema": None, "value": None})).passed
    assert not judge(recorded, Success({"schema": {"type": "string"}, "value": "null"})).passed


def test_a_deviation_covers_what_all_its_conditions_say() -> None:
    rule = Deviation("b", "r", kinds=["transform"], classes=["Cast$*"], tags=["$bigint"], config={"spec": "int8"})
    covered = vector(error={"class": "DataException"}, given={"value": {"$bigint": "1"}}, config={"spec": "a:int8"})

    assert rule.covers(Verdict(covered, "x"))
    assert not rule.covers(Verdict(vector(given={"value": 1}, config={"spec": "a:int8"}), "x"))
    assert not rule.covers(Verdict(vector(given=covered.input, config={"spec": "a:int16"}), "x"))
    assert not rule.covers(Verdict(vector(given=covered.input, config=covered.config, cls="HoistField$Key"), "x"))
    assert not Deviation("b", "r", classes=["*"], error="none").covers(Verdict(covered, "x"))
    assert not Deviation("b", "r", found="other").covers(Verdict(covered, "x"))
    assert not rule.covers(Verdict(covered, "unknown class", unusable=True))


def test_a_deviation_without_conditions_is_refused() -> None:
    with pytest.raises(ValueError, match="everything is different"):
        load_deviations('[[deviation]]\nbehaviour = "everything is different"\nreason = "no"\n')


def test_the_shipped_deviations_can_be_read_and_have_reasons() -> None:
    assert all(len(rule.reason) > 20 for rule in load_deviations())


class Doubling:
    """Stands for the pipeline: fails for odd values and bad records, keeps the rest, and counts its batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.bad: list[int] = []

    def apply_transform(self, records: Sequence[ConnectRecord], cls: str, config: Mapping[str, Any]) -> list[Outcome]:
        self.batches.append(len(records))
        self.bad.append(sum("bad" in (one.key, one.value) for one in records))
        return [
            Failure("apply", "DataException", "odd")
            if not isinstance(one.value, int) or one.value % 2
            else Success({"record": encode_record(one)})
            for one in records
        ]


def numbered(count: int, wrong: int | None = None) -> list[Vector]:
    made: list[Vector] = []
    for number in range(count):
        record = {**RECORD, "valueSchema": None, "value": number}
        value = -1 if number == wrong else number
        after = {key: item for key, item in record.items() if key not in ("recordType", "offset")} | {"value": value}
        error = {"class": "DataException", "message": "odd", "phase": "apply"} if number % 2 else None
        expect = None if error else {"record": after}
        made.append(vector(expect, error, record, id=str(number), config={"spec": str(number // 10)}))
    return made


def test_one_by_one_each_vector_is_a_batch_of_its_own() -> None:
    double, seen = Doubling(), list[Verdict]()
    verdicts = run_one_by_one(numbered(12, wrong=4), cast("PipelineAdapter", double), seen=seen.append)

    assert double.batches == [1] * 12
    assert [one.vector.id for one in verdicts if not one.passed] == ["4"]
    assert seen == verdicts


def test_shuffled_each_configuration_is_one_full_batch_and_every_row_counts() -> None:
    double = Doubling()
    verdicts = run_shuffled(numbered(14, wrong=4), cast("PipelineAdapter", double), rows=100, seen=lambda _: None)

    assert double.batches == [100, 100]
    assert double.bad == [2, 2]
    assert sorted(one.vector.id for one in verdicts) == sorted(str(number) for number in range(14))
    assert [one.vector.id for one in verdicts if not one.passed] == ["4"]


def lines(tmp_path: Path, *vectors: Mapping[str, Any]) -> Path:
    path = tmp_path / "vectors.jsonl"
    path.write_text("".join(json.dumps({"config": {}, **one}) + "\n" for one in vectors))
    return path


GOOD = {
    "id": "good",
    "kind": "data",
    "class": "ConnectSchema.validateValue",
    "input": {"schema": {"type": "int8"}, "value": 1},
    "expect": {"valid": True},
}
BAD = {**GOOD, "id": "bad", "input": {"schema": {"type": "int8"}, "value": "x"}}


def test_classes_can_be_chosen_with_or_without_their_side(tmp_path: Path) -> None:
    names = ["Cast$Key", "Cast$Value", "Castle", "HoistField$Value"]
    path = lines(tmp_path, *({**GOOD, "id": name, "class": name} for name in names))

    assert [one.id for one in choose(load_vectors(path), ["Cast"])] == ["Cast$Key", "Cast$Value"]
    assert [one.id for one in choose(load_vectors(path), ["Cast$Key", "Castle"])] == ["Cast$Key", "Castle"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--class", "Castle"], "no vector is of class Castle: did you mean Cast or Cast$Key?"),
        (["--class", "Nope"], "no vector is of class Nope: there are Cast, ConnectSchema.validateValue"),
        (["--class", "Cast", "--class", "Nope"], "no vector is of class Nope: there are "),
        (["--kind", "dta"], "no vector is of kind dta: did you mean data?"),
        (["--class", "Cast", "--kind", "data"], "no vector of class Cast is of kind data"),
    ],
)
def test_a_choice_that_leaves_no_vector_is_an_error_that_names_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    path = lines(tmp_path, GOOD, {**GOOD, "class": "Cast$Key", "kind": "transform"})

    assert main([str(path), *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(said)
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, " cannot be read: No such file or directory"),
        (b"", "no vector is in the files"),
        (b"\xff", " is not UTF-8 text: invalid start byte at byte 0"),
        (b'\n{"id": 1', ", line 2: not a vector: Expecting ',' delimiter: line 1 column 9 (char 8)"),
        (b"[1]", ", line 1: not a vector: a JSON object is needed, this is list"),
        (b'{"id": "a", "class": "b"}', ", line 1: not a vector: there is no kind, input"),
        (b'{"id": "a", "class": 1, "kind": "data", "input": {}}', ", line 1: not a vector: class of another type"),
        (
            b'{"id": "a", "class": "b", "kind": "c", "input": {}}',
            ", line 1: not a vector: its kind is c, which is none",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    path = tmp_path / "given.jsonl"
    if content is not None:
        path.write_bytes(content)

    assert main([str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.startswith((str(path), "no vector"))
    assert printed.err.count("\n") == 1


def test_the_command_prints_failures_with_reasons_and_counts_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([str(lines(tmp_path, GOOD, BAD))])
    printed = capsys.readouterr().out.splitlines()

    assert status == 1
    assert printed[0].startswith("FAILED bad: failed with DataException at apply")
    assert printed[1].endswith(": 1 of 2 passed (50.0 %), 1 failed")
    assert printed[-2:] == ["0 deviations on purpose", "1 passed, 1 failed"]


def test_the_command_prints_json_lines_and_succeeds_when_nothing_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(lines(tmp_path, GOOD)), "--json"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"

    assert main([str(lines(tmp_path, BAD)), "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[0])["id"] == "bad"


class EveryRecordPasses:
    """Stands for the pipeline: gives back what it was given."""

    def apply_transform(self, records: Sequence[ConnectRecord], cls: str, config: Mapping[str, Any]) -> list[Outcome]:
        return [Success({"record": encode_record(record)}) for record in records]


@pytest.mark.parametrize("value", [{"$map": [[{"$map": []}, 1]]}, {"$no": 1}, {"$bytes": 5}])
def test_a_vector_that_cannot_be_read_fails_alone(value: Any) -> None:
    adapter = cast("PipelineAdapter", EveryRecordPasses())
    expected = {"record": encode_record(decode_record(RECORD))}
    good = vector(expected, given=RECORD, id="good")
    unread = vector(expected, given={**RECORD, "valueSchema": None, "value": value}, id="unread")
    alike = [good, unread, vector(expected, given=RECORD, id="good too")]

    one_by_one = run_one_by_one(alike, adapter, seen=lambda _: None)
    shuffled = run_shuffled(alike, adapter, rows=50, seen=lambda _: None)

    for verdicts in (one_by_one, shuffled):
        assert [(one.vector.id, one.passed, one.unusable) for one in verdicts] == [
            ("good", True, False),
            ("unread", False, True),
            ("good too", True, False),
        ]
        assert "cannot be given to our code" in str(verdicts[1].reason)
