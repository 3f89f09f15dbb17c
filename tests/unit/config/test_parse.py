"""Parsing of single values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.config import ConfigType, Password, convert_to_string, import_class, parse_type
from penstock.config.parse import java_text
from penstock.errors import ConfigException


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5e3f", -1500.0),
        ("1d", 1.0),
        ("0x1p3", 8.0),
        ("0x1.8p1D", 3.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e999", math.inf),
        ("0x1p99999", math.inf),
    ],
)
def test_a_double_takes_javas_grammar(text: str, value: Any) -> None:
    assert parse_type("d", text, ConfigType.DOUBLE) == value


@pytest.mark.parametrize("text", ["inf", "nan", "1_0", "e5", ".", "0x10", "1e", "infinity", "\u0663"])
def test_a_double_refuses_what_only_python_takes(text: str) -> None:
    with pytest.raises(ConfigException, match="Not a number of type DOUBLE"):
        parse_type("d", text, ConfigType.DOUBLE)


def test_nan_is_a_double() -> None:
    parsed = parse_type("d", "NaN", ConfigType.DOUBLE)
    assert isinstance(parsed, float)
    assert math.isnan(parsed)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (ConfigType.SHORT, -32768, 32767),
        (ConfigType.INT, -(2**31), 2**31 - 1),
        (ConfigType.LONG, -(2**63), 2**63 - 1),
    ],
)
def test_integers_have_javas_bounds_as_text_and_as_numbers(kind: ConfigType, low: int, high: int) -> None:
    for value in (low, high):
        assert parse_type("n", str(value), kind) == value
        assert parse_type("n", value, kind) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigException):
            parse_type("n", str(value), kind)
        with pytest.raises(ConfigException):
            parse_type("n", value, kind)


def test_a_boolean_is_not_an_integer_nor_an_integer_a_boolean() -> None:
    with pytest.raises(ConfigException, match="32-bit integer"):
        parse_type("n", True, ConfigType.INT)
    with pytest.raises(ConfigException, match="either true or false"):
        parse_type("b", 1, ConfigType.BOOLEAN)


def test_digits_beyond_the_basic_plane_and_absurdly_long_numbers_are_refused() -> None:
    for text in ("\U0001d7d8", "9" * 5000):
        with pytest.raises(ConfigException, match="Not a number of type LONG"):
            parse_type("n", text, ConfigType.LONG)


def test_only_javas_blanks_are_trimmed() -> None:
    assert parse_type("s", "\x00\x1f \u00a0x\u00a0\t\n", ConfigType.STRING) == "\u00a0x\u00a0"
    assert parse_type("l", "a\u00a0,\x0bb", ConfigType.LIST) == ["a\u00a0", "b"]


def test_a_password_shows_nowhere() -> None:
    parsed = parse_type("p", " secret ", ConfigType.PASSWORD)
    assert parsed == Password("secret")
    assert parsed != Password("other")
    assert f"{parsed} {parsed!r} {[parsed]} {java_text([parsed])}" == "[hidden] [hidden] [[hidden]] [[hidden]]"
    assert convert_to_string(parsed, ConfigType.PASSWORD) == "[hidden]"
    with pytest.raises(ConfigException) as refused:
        parse_type("n", parsed, ConfigType.INT)
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(refused.value.value)


def test_a_class_is_kept_as_text_without_a_resolver_and_found_with_one() -> None:
    assert parse_type("c", " some.Class ", ConfigType.CLASS) == "some.Class"
    assert parse_type("c", int, ConfigType.CLASS) is int
    assert parse_type("c", "builtins.int", ConfigType.CLASS, resolve_class=lambda _, text: import_class(text)) is int
    with pytest.raises(ConfigException, match=r"nope for configuration c: Class nope could not be found\."):
        parse_type("c", "nope", ConfigType.CLASS, resolve_class=lambda _, text: import_class(text))
    with pytest.raises(ConfigException, match="Expected a Class instance or class name"):
        parse_type("c", 5, ConfigType.CLASS)


@pytest.mark.parametrize("text", ["", ".", "int", "a..b", "no.such.module", "builtins.nope", "math.pi", "builtins:"])
def test_a_text_that_is_no_class_path_is_not_found(text: str) -> None:
    with pytest.raises(LookupError):
        import_class(text)


def test_a_nested_class_is_found_with_a_colon() -> None:
    assert import_class("penstock.config:ConfigType") is ConfigType


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (-1.5e300, "-1.5E300"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (123456789.125, "1.23456789125E8"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        (True, "true"),
        (None, "null"),
        ({"a": [1, None]}, "{a=[1, null]}"),
        (ConfigType, "penstock.config.parse.ConfigType"),
    ],
)
def test_values_print_as_in_java(value: Any, text: str) -> None:
    assert java_text(value) == text


def test_a_port_of_a_java_class_prints_under_its_java_name() -> None:
    assert java_text(ConfigException) == "org.apache.kafka.common.config.ConfigException"
