"""Character sets of StringConverter: found by the names people use, written and read as Java does."""

import pytest

from penstock.converters.string import decode_text, encode_text, find_encoding
from penstock.errors import SerializationException


@pytest.mark.parametrize(
    ("name", "jvm_name"),
    [
        ("utf8", "UTF-8"),
        ("latin1", "ISO-8859-1"),
        ("iso-8859-15", "ISO-8859-15"),
        ("Cp1252", "windows-1252"),
        ("IBM437", "IBM437"),
        ("shift_jis", "Shift_JIS"),
        ("UTF-16LE", "UTF-16LE"),
        ("GB18030", "GB18030"),
        ("cp037", "IBM037"),
        ("windows-31j", "windows-31j"),
        ("TIS620", "TIS-620"),
        ("macroman", "x-MacRoman"),
        ("UnicodeBig", "UTF-16"),
        ("CESU-8", "CESU-8"),
    ],
)
def test_a_character_set_is_found_by_any_of_its_names(name: str, jvm_name: str) -> None:
    assert find_encoding(name) == jvm_name


@pytest.mark.parametrize("name", ["", "bogus", "base64", "rot13", "idna", "UTF_8", "utf_8", "IBM1047"])
def test_what_is_no_character_set_is_refused(name: str) -> None:
    with pytest.raises(SerializationException, match=f"Unsupported encoding {name}"):
        find_encoding(name)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("UTF-8", "68c3a9e282ac"),
        ("UTF-16", "feff006800e920ac"),
        ("UTF-16LE", "6800e900ac20"),
        ("UTF-32", "00000068000000e9000020ac"),
        ("ISO-8859-1", "68e93f"),
        ("windows-1252", "68e980"),
        ("US-ASCII", "683f3f"),
        ("CESU-8", "68c3a9e282ac"),
        ("x-UTF-16LE-BOM", "fffe6800e900ac20"),
    ],
)
def test_text_is_written_as_java_writes_it(encoding: str, data: str) -> None:
    assert encode_text("hé€", encoding).hex() == data


@pytest.mark.parametrize(
    ("encoding", "data", "text"),
    [
        ("UTF-16", "006800e9", "hé"),
        ("UTF-16", "fffe6800e900", "hé"),
        ("UTF-16", "feff006800e9", "hé"),
        ("UTF-32", "00000068", "h"),
        ("UTF-8", "68ff", "h\ufffd"),
        ("US-ASCII", "68ff", "h\ufffd"),
        ("UTF-8", "61eda08062", "a\ufffdb"),
        ("UTF-8", "eda0eda080", "\ufffd\ufffd"),
        ("CESU-8", "eda0bdedb880", "\U0001f600"),
        ("IBM037", "c1", "A"),
    ],
)
def test_text_is_read_with_and_without_a_mark_of_the_byte_order(encoding: str, data: str, text: str) -> None:
    assert decode_text(bytes.fromhex(data), encoding) == text


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("UTF-8", "3ff09f9880"), ("CESU-8", "3feda0bdedb880"), ("UTF-16", "fefffffdd83dde00"), ("ISO-8859-1", "3f3f")],
)
def test_half_of_a_surrogate_pair_is_replaced(encoding: str, data: str) -> None:
    assert encode_text("\ud83d\U0001f600", encoding).hex() == data
