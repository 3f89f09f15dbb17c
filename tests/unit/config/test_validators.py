"""Validators: what the recorded vectors do not ask for."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import (
    AnyNonDuplicate,
    CaseInsensitiveValidString,
    CompositeValidator,
    LambdaValidator,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Range,
    SubclassOf,
    Validator,
    ValidList,
    ValidString,
)
from penstock.errors import ConfigException


@pytest.mark.parametrize(
    ("validator", "text"),
    [
        (Range(), "[...]"),
        (Range(None, 5), "[...,5]"),
        (Range.between(0.5, 1.0), "[0.5,...,1.0]"),
        (ValidString("a", "b"), "[a, b]"),
        # In the order of a Java HashSet, as Kafka's own documentation prints them.
        (
            CaseInsensitiveValidString("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
            "(case insensitive) [SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT]",
        ),
        (
            CaseInsensitiveValidString("enabled", "disabled", "preparing"),
            "(case insensitive) [DISABLED, ENABLED, PREPARING]",
        ),
        (
            CaseInsensitiveValidString("only_scan", "service_load", "hybrid_warn", "hybrid_fail"),
            "(case insensitive) [ONLY_SCAN, SERVICE_LOAD, HYBRID_WARN, HYBRID_FAIL]",
        ),
        (CaseInsensitiveValidString("none", "rebootstrap"), "(case insensitive) [REBOOTSTRAP, NONE]"),
        (CaseInsensitiveValidString("base64", "numeric"), "(case insensitive) [NUMERIC, BASE64]"),
        (ValidList.of("a"), "[a] (empty config allowed) (null not allowed)"),
        (AnyNonDuplicate(empty_allowed=False, null_allowed=True), "[] (empty not allowed) (null config allowed)"),
        (NonNull(), "non-null string"),
        (NonEmptyString(), "non-empty string"),
        (NonEmptyStringWithoutControlChars(), "non-empty string without ISO control characters"),
        (ListSize(1), "List containing maximum of 1 elements"),
        (CompositeValidator(NonNull(), LambdaValidator(lambda *_: None, "anything")), "non-null string, anything"),
    ],
)
def test_a_validator_documents_what_it_accepts(validator: Validator, text: str) -> None:
    assert str(validator) == text


def _message(validator: Validator, value: Any) -> str:
    with pytest.raises(ConfigException) as refused:
        validator.ensure_valid("x", value)
    return str(refused.value)


def test_bounds_of_doubles_are_printed_as_java_does() -> None:
    assert _message(Range.between(0.0, 0.25), 0.5).endswith("Value must be no more than 0.25")
    assert _message(Range.at_least(1e7), 0).endswith("Value must be at least 1.0E7")


def test_a_list_that_must_not_be_empty_names_what_it_wants() -> None:
    prefix = "Configuration 'x' must not be empty. Valid values include: "
    assert _message(ValidList.non_empty_of("a", "b"), []) == f"{prefix}[a, b]"
    assert _message(AnyNonDuplicate(empty_allowed=False), []) == f"{prefix}any non-empty value"


def test_every_control_character_is_listed() -> None:
    message = _message(NonEmptyStringWithoutControlChars(), "a\x01\x7f\x9f\xa0")
    assert message.endswith("had the following ASCII chars: 1, 127, 159")


def test_values_of_another_type_are_refused_and_do_not_crash() -> None:
    assert "comma separated list" in _message(AnyNonDuplicate(), "text")
    assert "must be a number" in _message(Range.at_least(1), "5")


def test_a_composite_reports_the_first_refusal_only() -> None:
    assert _message(CompositeValidator(NonNull(), Range.at_least(1)), None).endswith("entry must be non null")


@pytest.mark.parametrize("value", [None, ValueError, "builtins.ValueError", "builtins:Exception"])
def test_subclass_of_takes_classes_and_their_paths(value: object) -> None:
    SubclassOf(Exception).ensure_valid("error.class", value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (int, "Invalid value builtins.int for configuration error.class: Class must extend builtins.Exception"),
        ("builtins.int", "Invalid value builtins.int for configuration error.class: Class must extend"),
        ("builtins.Nothing", "Class builtins.Nothing could not be found"),
        ("nowhere.Nothing", "No module named 'nowhere'"),
        ("Nothing", "expected package.module.Class"),
        (3, "Class must extend"),
    ],
)
def test_subclass_of_refuses_others(value: object, text: str) -> None:
    with pytest.raises(ConfigException, match=text):
        SubclassOf(Exception).ensure_valid("error.class", value)
