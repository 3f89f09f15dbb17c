"""Rows of XML files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connectors.files.source.test_task import plain, read, source

ORDERS = """<?xml version="1.0" encoding="{encoding}"?>
<!-- orders of a day -->
<orders xmlns="http://example.com/o" day="2026-01-31">
  <order id="1"><name>Ada &amp; Söhne</name><item sku="a">2</item><item sku="b">1</item></order>
  <order id="2"><name/><item sku="c">5</item><to><city>Oslo</city></to></order>
  <order id="3">as agreed</order>
</orders>
"""
ROWS = [
    {"_id": "1", "name": "Ada & Söhne", "item": [{"_sku": "a", "_VALUE": "2"}, {"_sku": "b", "_VALUE": "1"}]},
    {"_id": "2", "name": None, "item": [{"_sku": "c", "_VALUE": "5"}], "to": {"city": "Oslo"}},
    {"_id": "3", "_VALUE": "as agreed"},
]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-1", "UTF-16"])
def test_attributes_children_lists_and_text_are_fields_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.xml").write_bytes(ORDERS.format(encoding=encoding).encode(encoding))
    assert without_nulls(read(tmp_path)) == without_nulls(ROWS)


def test_rows_are_the_elements_of_a_name_at_any_depth_also_in_a_packed_file(tmp_path: Path) -> None:
    data = ORDERS.format(encoding="UTF-8").encode()
    (tmp_path / "a.xml.gz").write_bytes(gzip.compress(data))
    assert read(tmp_path, xml_row_tag="item") == [
        {"_sku": "a", "_VALUE": "2"},
        {"_sku": "b", "_VALUE": "1"},
        {"_sku": "c", "_VALUE": "5"},
    ]


def test_rows_of_the_same_name_inside_of_rows_are_theirs(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<r><p n='1'><p n='2'/></p><q/><p n='3'/></r>")
    found = read(tmp_path, xml_row_tag="p")
    assert without_nulls(found) == [{"_n": "1", "p": {"_n": "2"}}, {"_n": "3"}]


def test_a_schema_decides_and_rows_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<r><p><n>1</n></p><p><n>x</n></p><p><n>3</n></p></r>")
    schema = '{"type": "struct", "fields": [{"field": "n", "type": "int64", "optional": true}]}'
    assert read(tmp_path, value_schema=schema) == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize(
    "text", ["<r><p>1</p><p>2</p><p>3", "<r><p>1</p><p>2</p></q>", "", "no xml", "<r>&nothing;</r>"]
)
def test_a_file_that_is_no_xml_is_told_and_others_are_read(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.xml").write_text(text)
    (tmp_path / "b.xml").write_text("<r><p n='7'/></r>")
    with source(tmp_path) as run:
        run.finish()
    assert plain(run.records[-1].value) == {"_n": "7"}
    assert [plain(one.value) for one in run.records[:-1]] == (
        [{"_VALUE": "1"}, {"_VALUE": "2"}] if "<p>" in text else []
    )
    assert "a.xml" in caplog.text
    assert "is no XML" in caplog.text


def test_entities_that_multiply_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    (tmp_path / "a.xml").write_text(f'<!DOCTYPE r [<!ENTITY e0 "x">{entities}]><r><p>&e11;</p></r>')
    (tmp_path / "b.xml").write_text("<r><p n='7'/></r>")
    assert read(tmp_path) == [{"_n": "7"}]
    assert "is no XML" in caplog.text


def test_blocks_go_on_where_a_task_ended_and_lists_stay_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("xml", "reader"):
        monkeypatch.setattr(f"penstock.connectors.files.source.readers.{module}.BLOCK_ROWS", 3)
    rows = "".join(f"<p n='{n}'>{'<i>1</i>' * (1 + (n == 1))}</p>" for n in range(10))
    (tmp_path / "a.xml").write_text(f"<r>{rows}</r>")
    with source(tmp_path, batch_max_rows="2") as run:
        run.poll()
        run.commit()
        run.kill()
        run.finish()
    found = [plain(one.value) for one in run.committed]
    assert [one["_n"] for one in found] == [str(n) for n in range(10)]
    assert {type(one["i"]) for one in found} == {list}
