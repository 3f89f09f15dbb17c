"""Java's properties format."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import load_properties, parse_properties
from penstock.errors import ConfigException


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("# comment\n! comment\n   # indented\n\n \t\f\n", {}),
        ("a=1\rb:2\r\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("  a \t = \f 1  ", {"a": "1  "}),
        ("a==b\nc=:d\ne: =f", {"a": "=b", "c": ":d", "e": "=f"}),
        ("a=1\na=2", {"a": "2"}),
        (r"a\ b\=\:c = d\=e", {"a b=:c": "d=e"}),
        (r"a=\t\n\r\f\q\\\"", {"a": '\t\n\r\fq\\"'}),
        (r"path=C:\\dir\\x", {"path": "C:\\dir\\x"}),
        ("a=one,\\\n    two,\\\r\n\tthree", {"a": "one,two,three"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n# no comment", {"a": "x# no comment"}),
        ("# comment goes on? \\\na=1", {"a": "1"}),
        ("a=x\\", {"a": "x"}),
        ("a=x\\\n\nb=1", {"a": "x", "b": "1"}),
        ("\\\n\na=1", {"a": "1"}),
        ("\\u0061\\u003d=\\u20ac€", {"a=": "€€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=${file:/x:y}", {"a": "${file:/x:y}"}),
        ("=v", {"": "v"}),
        ("a=x\x85y\u2028z\x0b", {"a": "x\x85y\u2028z\x0b"}),
        ("line\\\n  key=v", {"linekey": "v"}),
    ],
)
def test_a_text_is_parsed_as_java_does(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_a_malformed_escape_is_reported_with_its_line() -> None:
    with pytest.raises(ConfigException) as refused:
        parse_properties("a=1\n\nb=one\\\n two \\u12g4\n", source="worker.properties")
    assert str(refused.value) == (
        "worker.properties, line 3: malformed \\uXXXX escape '\\\\u12g4'; expected four hexadecimal digits"
    )


def test_a_file_is_read_as_utf_8_and_its_byte_order_mark_dropped(tmp_path: Path) -> None:
    file = tmp_path / "a.properties"
    file.write_bytes("\ufeffname=Zürich\n".encode())
    assert load_properties(file) == {"name": "Zürich"}


def test_a_file_that_is_missing_or_not_utf_8_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"Could not read properties from file .*gone"):
        load_properties(tmp_path / "gone")
    file = tmp_path / "latin.properties"
    file.write_bytes("a=1\nname=Zürich\n".encode("latin-1"))
    with pytest.raises(ConfigException, match="not UTF-8 at byte 10"):
        load_properties(file)
