"""JSON messages are the bytes that Jackson reads: a table of inputs with what Java made of them.

Columns of bytes beside Spark: as they are, and only bytes.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from differential.json_bytes import cases, data_of, told

from penstock.config.parse import java_trim
from penstock.converters.json.byte_columns import plain_column
from penstock.converters.json.converter import JsonConverter
from penstock.converters.json.plain_bytes import UnreadableBytesError, plain_json
from penstock.converters.primitives import ByteArrayConverter
from penstock.data import BYTES_SCHEMA, OPTIONAL_BYTES_SCHEMA, STRING_SCHEMA, Decimal, Schema
from penstock.data.text import to_java_text
from penstock.errors import BadRequestException, DataException
from penstock.pipeline.plan.step import Side
from penstock.rest.bodies import WrittenNumber, create_request, parse_json

RECORDED = Path(__file__).parents[3] / "data" / "json" / "java_bytes.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text("ascii").splitlines()]
#: Python has no room for values that are this deep, one by one.
TOO_DEEP_FOR_PYTHON = 900


def in_base64(text: str | bytes | None) -> str | None:
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return None if data is None else told(base64.b64encode(data).decode())


def is_deep(case: dict[str, Any]) -> bool:
    return any(times >= TOO_DEEP_FOR_PYTHON and text in ("[", '{"a":') for text, times in case.get("text", ()))


def name_of(case: dict[str, Any]) -> str:
    return f"{case['of']}-{case.get('schemas')}-{data_of(case)[:40]!r}-{len(data_of(case))}"


def converter(case: dict[str, Any]) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": str(case["schemas"]).lower()}, case["of"] == "key")
    return made


WHOLE = JsonConverter()
WHOLE.configure({"schemas.enable": "true", "replace.null.with.default": "false"}, False)


def test_the_recorded_cases_are_those_that_would_be_asked() -> None:
    assert [{name: part for name, part in case.items() if name != "java"} for case in CASES] == [
        json.loads(json.dumps(case)) for case in cases()
    ]


@pytest.mark.parametrize("case", [one for one in CASES if one["of"] != "body" and not is_deep(one)], ids=name_of)
def test_a_message_is_read_as_java_reads_it(case: dict[str, Any]) -> None:
    java = case["java"]
    if "error" in java:
        with pytest.raises(DataException):
            converter(case).to_connect_data("t", data_of(case))
        return
    schema, value = converter(case).to_connect_data("t", data_of(case))
    assert in_base64("null" if value is None else to_java_text(value, schema)) == java["text"]
    if "json" in java:  # some that can be read cannot be written
        assert in_base64(WHOLE.from_connect_data("t", schema, value)) == java["json"]


@pytest.mark.parametrize("case", [one for one in CASES if one["of"] == "body"], ids=name_of)
def test_a_request_body_is_read_as_java_reads_it(case: dict[str, Any]) -> None:
    body = data_of(case)
    if "error" in case["java"] or b"\\ud800" in body:  # which is no text that could be shown again
        with pytest.raises(BadRequestException):
            create_request(parse_json(body, WrittenNumber))
        return
    request = create_request(parse_json(body, WrittenNumber))
    config = json.dumps(request.config, separators=(",", ":"), ensure_ascii=False)
    # What Java has here is not trimmed yet.
    name = java_trim(base64.b64decode(case["java"]["name"]).decode())
    assert (request.name, in_base64(config)) == (name, case["java"]["config"])


def by_itself(data: bytes | None) -> bytes | str | None:
    if data is None:
        return None
    try:
        return plain_json(data)
    except UnreadableBytesError as error:
        return str(error)


@pytest.mark.parametrize("chunks", [1, 7])
def test_a_look_at_a_whole_column_finds_all_that_is_not_plain(chunks: int) -> None:
    messages: list[bytes | None] = [one for case in CASES for one in (data_of(case), b'{"a":"plain"}', None)]
    parts = [part.tolist() for part in np.array_split(np.array(messages, dtype=object), chunks)]
    column = pa.chunked_array([pa.array([None, *part, None], pa.binary()).slice(1, len(part)) for part in parts])

    found = plain_column(column)

    refused = {row: reason for reason, rows in found.refused.items() for row in rows}
    for row, (message, plain) in enumerate(zip(messages, found.column.to_pylist(), strict=True)):
        expected = by_itself(message)
        if isinstance(expected, str):
            assert (plain, refused[row]) == (None, expected)
        elif expected != plain:
            assert expected is not None
            assert b"\\ud" in expected.lower()
            assert len(plain) < len(expected)


def test_a_column_without_anything_odd_is_not_copied() -> None:
    column = pa.chunked_array([pa.array([b'{"a":"\\ud83d\\ude00"}', "é".encode(), None, b"1" * 1_000 + b"x" * 60_000])])

    assert plain_column(column).column is column


def test_whole_pairs_stay_and_halves_become_marks() -> None:
    messages = [b'"\\ud83d\\ude00\\ud83d"', b'"\\\\ud83d\\ude00"', b'"\\\\ud83d"', b'"x"']

    found = plain_column(pa.chunked_array([pa.array(messages)]))

    assert found.changed
    assert found.column.to_pylist() == [b'"\\ud83d\\ude00?"', b'"\\\\ud83d?"', b'"\\\\ud83d"', b'"x"']


@pytest.mark.parametrize("schema", [BYTES_SCHEMA, OPTIONAL_BYTES_SCHEMA])
def test_bytes_are_written_as_they_are(schema: Schema) -> None:
    values = [b"", b"\x00\xff", None, b"x" * 1000]
    for column in (pa.array(values, pa.binary()), pa.chunked_array([values[:2], values[2:]], pa.binary())):
        made = ByteArrayConverter().write_column(Side.of(schema), column)
        assert made is not None
        assert made.to_pylist() == values


def test_other_values_are_left_to_the_plan() -> None:
    converter = ByteArrayConverter()
    assert converter.write_column(Side.of(STRING_SCHEMA), pa.array(["a"])) is None
    assert converter.write_column(Side.of(None), pa.array([b"a"])) is None
    assert converter.write_column(Side.of(Decimal.schema(2)), pa.array([1], pa.decimal128(10, 2))) is None


def test_bytes_in_pieces_stay_where_they_are() -> None:
    column = pa.chunked_array([[b"a", None], [b"b"]], pa.binary())

    made = ByteArrayConverter().write_column(Side.of(OPTIONAL_BYTES_SCHEMA), column)

    assert isinstance(made, pa.ChunkedArray)
    assert [one.buffers()[2].address for one in made.chunks] == [one.buffers()[2].address for one in column.chunks]
