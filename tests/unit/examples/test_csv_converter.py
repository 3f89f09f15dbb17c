"""The converter of the documentation."""

import pytest
from examples.csv_converter import CsvConverter

from penstock.data import INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import DataException

PERSON = SchemaBuilder.struct().field("id", INT32_SCHEMA).field("name", STRING_SCHEMA).build()


@pytest.mark.parametrize("cells", [["a", "b"], ["with, comma", 'and "quotes"', "two\nlines"], [""], []])
def test_a_list_comes_back(cells: list[str]) -> None:
    converter = CsvConverter()

    assert converter.to_connect_data("t", converter.from_connect_data("t", None, cells)).value == cells


def test_a_struct_is_a_line_of_its_fields() -> None:
    person = Struct(PERSON).put("id", 7).put("name", "O'Neil, Ann")

    assert CsvConverter().from_connect_data("t", PERSON, person) == b'7,"O\'Neil, Ann"'


def test_tombstones_stay_tombstones() -> None:
    assert CsvConverter().from_connect_data("t", None, None) is None
    assert CsvConverter().to_connect_data("t", None).value is None


@pytest.mark.parametrize("data", [b"\xff", b'"never closed', b"one\ntwo"])
def test_bytes_that_are_no_line_are_an_error_of_their_record(data: bytes) -> None:
    with pytest.raises(DataException, match="topic t"):
        CsvConverter().to_connect_data("t", data)


def test_a_value_without_parts_is_an_error_of_its_record() -> None:
    with pytest.raises(DataException, match="not of int"):
        CsvConverter().from_connect_data("t", None, 7)
