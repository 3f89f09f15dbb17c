"""``docs/transforms.md`` and ``docs/converters.md`` are current, and have an example of every stock class."""

from __future__ import annotations

import pytest
from tests.unit.docs.pages import ROOT
from tools.reference.examples import converter_examples, read_record, transform_examples, write_record
from tools.reference.notation import read_schema, read_typed, write_schema, write_typed
from tools.reference.plugins import converters_page, entries, transforms_page

from penstock.plugins.kinds import PluginKind

COMMAND = "python -m tools.reference.plugins docs/transforms.md docs/converters.md"


@pytest.mark.parametrize(("page", "text"), [("transforms", transforms_page()), ("converters", converters_page())])
def test_the_page_is_current(page: str, text: str) -> None:
    assert (ROOT / f"docs/{page}.md").read_text(encoding="utf-8") == text, f"run: {COMMAND}"


@pytest.mark.parametrize(
    ("kinds", "examples"),
    [
        ((PluginKind.TRANSFORMATION, PluginKind.PREDICATE), transform_examples()),
        ((PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER), converter_examples()),
    ],
    ids=["transforms", "converters"],
)
def test_every_stock_class_has_an_example_and_no_other_has(kinds, examples) -> None:
    assert {one.of for one in examples} == {title for kind in kinds for title in entries(kind)}


def test_sql_is_shown_with_select_where_and_explode() -> None:
    texts = [one.config for one in transform_examples() if one.of == "Sql"]

    assert all(any(word in text for text in texts) for word in (".select=", ".where=", "explode("))


@pytest.mark.parametrize("example", transform_examples(), ids=lambda one: f"{one.of}: {one.title}")
def test_the_records_of_examples_are_written_as_they_are_read(example) -> None:
    nothing = read_record("value: null")
    for text, record in zip(example.given.split("\n\n"), example.records(), strict=True):
        assert write_record(record, nothing).replace("\n    as", " as").split("\n") == sorted_parts(text)


def sorted_parts(text: str) -> list[str]:
    """The lines of a record in the order in which records are written."""
    order = ["topic", "partition", "timestamp", "key", "value", "header"]
    lines = text.replace("\n    as", " as").split("\n")
    return sorted(lines, key=lambda line: order.index(line.split(":")[0].split()[0]))


@pytest.mark.parametrize(
    "text",
    [
        "int8",
        "Timestamp?",
        'Decimal(2)? = "1.50"',
        "[map<string, [int32]?>]",
        "{}",
        '[int32? = 7 with {"a.b": "c"}]',
        "a.B v3 {x-y: int64? = 7, z: bytes}?",
    ],
)
def test_schemas_are_written_as_they_are_read(text: str) -> None:
    assert write_schema(read_schema(text)) == text


@pytest.mark.parametrize("text", ["", "int", "{a int32}", "{a: int32", "int32 int32", "[int32", "map<string>"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no schema|invalid"):
        read_schema(text)


@pytest.mark.parametrize(
    "text",
    [
        "null as string?",
        '{"$timestamp": "2017-01-03T06:30:01.864Z"}',
        '[{"$bytes": "aGk="}, {"$decimal": "1.50"}, {"$date": "2017-01-03"}, {"$time": "06:30:00"}]',
        '[[1, "a"]] as map<int32, string>',
        '{"a": 1.0, "b": ["06:30:00"]} as {a: float32, b: [Time]}',
    ],
)
def test_values_are_written_as_they_are_read(text: str) -> None:
    assert " ".join(write_typed(*read_typed(text))) == text
