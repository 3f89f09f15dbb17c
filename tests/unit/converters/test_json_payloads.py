"""Which payloads of a known schema are read in front of the plan, by how many there are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.converters.as_json import JsonConverter
from penstock.pipeline.plan import objects

SCHEMA = b'{"type":"struct","fields":[{"field":"a","type":"int64"}]}'


def read(converter: JsonConverter, *payloads: bytes) -> list[dict[str, int] | None]:
    """What is read of a batch."""
    messages = [b'{"schema":%s,"payload":%s}' % (SCHEMA, one) for one in payloads]
    column = pa.chunked_array([pa.array(messages, pa.binary())])
    found = converter.sort(column, worked_on=True, beside_spark=True).read
    values: list[dict[str, int] | None] = found[0][1].to_pylist() if found else []
    return values


def test_of_a_few_all_are_read_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MIN_ROWS", 3)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, False)

    assert read(converter, b'{"a":1}') == [{"a": 1}]
    assert read(converter, b'{"a":1}', b'{"a":2}', b'{"a":1.0}') == [{"a": 1}, {"a": 2}, None]
    assert read(converter, b'{"a":3}', b'{"a":4}') == [{"a": 3}, {"a": 4}]
    assert read(converter, b'{"a":3}', b'{"a":4.0}') == []
