"""Wrong settings of transforms and predicates are refused with key, value and rule; right ones describe themselves."""

import pytest

from penstock.config import ConfigDef, ConfigType
from penstock.errors import ConfigException
from penstock.transforms.extraction import ExtractFieldValue
from penstock.transforms.headers import DropHeaders, HeaderFromKey, HeaderFromValue, InsertHeader
from penstock.transforms.predicates import Filter, HasHeaderKey, RecordIsTombstone, TopicNameMatches
from penstock.transforms.restructuring import ReplaceFieldValue, ValueToKey

WRONG = [
    (ReplaceFieldValue, {"include": None}, "Configuration 'include' values must not be null."),
    (ReplaceFieldValue, {"exclude": None}, "Configuration 'exclude' values must not be null."),
    (ReplaceFieldValue, {"renames": None}, "Configuration 'renames' values must not be null."),
    (
        DropHeaders,
        {"headers": ""},
        "Configuration 'headers' must not be empty. Valid values include: any non-empty value",
    ),
    (DropHeaders, {}, 'Missing required configuration "headers" which has no default value.'),
    (InsertHeader, {"header": "h"}, 'Missing required configuration "value.literal" which has no default value.'),
    (
        InsertHeader,
        {"header": None, "value.literal": "x"},
        "Invalid value null for configuration header: entry must be non null",
    ),
    (
        HeaderFromValue,
        {"fields": "a", "headers": "b", "operation": "MOVE"},
        "Invalid value MOVE for configuration operation: String must be one of: move, copy",
    ),
    (
        HeaderFromKey,
        {"fields": "a,b", "headers": "b", "operation": "move"},
        "'fields' config must have the same number of elements as 'headers' config.",
    ),
    (
        HeaderFromKey,
        {"fields": "", "headers": "b", "operation": "move"},
        "Invalid value [] for configuration fields: Empty list",
    ),
    (
        ExtractFieldValue,
        {"field": "a", "field.syntax.version": "V3"},
        "Invalid value V3 for configuration field.syntax.version: String must be one of (case insensitive): V1, V2",
    ),
    (
        ExtractFieldValue,
        {"field": "`a`b", "field.syntax.version": "v2"},
        "Incomplete backtick pair in path: [`a`b], consider adding a backslash before backtick at position 0",
    ),
    (
        ReplaceFieldValue,
        {"renames": "a:b,c"},
        "Invalid value [a:b, c] for configuration renames: Invalid rename mapping: c",
    ),
    (
        ReplaceFieldValue,
        {"replace.null.with.default": "yes"},
        "Invalid value yes for configuration replace.null.with.default: Expected value to be either true or false",
    ),
    (ValueToKey, {"fields": "a,,b"}, "Configuration 'fields' values must not be empty."),
    (HasHeaderKey, {"name": ""}, "Invalid value  for configuration name: String must be non-empty"),
    (TopicNameMatches, {"pattern": ""}, "Invalid value  for configuration pattern: String must be non-empty"),
    (TopicNameMatches, {"pattern": "("}, "Invalid value ( for configuration pattern: Invalid regex: Unclosed group"),
]


@pytest.mark.parametrize(("cls", "settings", "message"), WRONG)
def test_a_wrong_setting_is_refused_with_key_value_and_rule(cls, settings, message):
    with pytest.raises(ConfigException) as caught:
        cls().configure(settings)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("cls", "settings"),
    [(cls, settings) for cls, settings, _ in WRONG if "backtick" not in _ and "elements" not in _],
)
def test_the_same_is_found_by_validation_on_the_setting_itself(cls, settings):
    found = [one.name for one in cls().config().validate(settings) if one.error_messages]
    assert found


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (ExtractFieldValue, ["field", "replace.null.with.default", "field.syntax.version"]),
        (HeaderFromValue, ["fields", "headers", "operation", "replace.null.with.default"]),
        (ReplaceFieldValue, ["exclude", "include", "renames", "replace.null.with.default"]),
        (ValueToKey, ["fields", "replace.null.with.default"]),
        (InsertHeader, ["header", "value.literal"]),
        (DropHeaders, ["headers"]),
        (Filter, []),
        (RecordIsTombstone, []),
    ],
)
def test_the_settings_are_those_of_kafka_connect_in_their_order(cls, names):
    definition = cls().config()
    assert isinstance(definition, ConfigDef)
    assert list(definition.keys) == names


def test_switches_are_boolean_and_lists_are_lists():
    keys = ReplaceFieldValue().config().keys
    assert keys["exclude"].type is ConfigType.LIST
    assert keys["replace.null.with.default"].type is ConfigType.BOOLEAN
