"""ConfigDef: definitions, dependents, recommenders, embedding, order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.config import ConfigDef, ConfigType, Importance, Range, Recommender, ValidString, Width
from penstock.errors import ConfigException


class _Formats:
    """Recommends values that depend on another setting; hides itself for one of them."""

    def __init__(self, parent: str = "kind") -> None:
        self.parent = parent
        self.seen: list[tuple[str, dict[str, object]]] = []

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        self.seen.append((name, dict(parsed)))
        if parsed.get(self.parent) == "broken":
            raise ConfigException("cannot tell")
        return [f"{parsed.get(self.parent)}-1"]

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return parsed.get(self.parent) != "none"


def _dependent(recommender: Recommender) -> ConfigDef:
    return (
        ConfigDef()
        .define("format", ConfigType.STRING, default="", recommender=recommender)
        .define("kind", ConfigType.STRING, dependents=["format"])
    )


def test_a_setting_cannot_be_defined_twice() -> None:
    definition = ConfigDef().define("a", ConfigType.INT, default=1)
    with pytest.raises(ConfigException, match="Configuration a is defined twice"):
        definition.define("a", ConfigType.STRING)


def test_a_default_is_parsed_and_must_pass_its_validator() -> None:
    definition = ConfigDef().define("a", ConfigType.LIST, default="x, y")
    assert definition.parse({}) == {"a": ["x", "y"]}
    assert definition.keys["a"].default_text() == "x,y"
    with pytest.raises(ConfigException, match="Value must be at least 1"):
        ConfigDef().define("a", ConfigType.INT, default=0, validator=Range.at_least(1))
    with pytest.raises(ConfigException, match="Not a number of type INT"):
        ConfigDef().define("a", ConfigType.INT, default="x")


def test_what_is_left_out_gets_javas_usual_values() -> None:
    key = ConfigDef().define("a", ConfigType.STRING).keys["a"]
    assert (key.display_name, key.group, key.order, key.width) == ("a", None, -1, Width.NONE)
    assert not key.has_default
    assert key.default_text() is None


def test_settings_that_are_not_defined_are_ignored() -> None:
    assert ConfigDef().define("a", ConfigType.INT, default=1).parse({"b": "x"}) == {"a": 1}


def test_recommended_values_and_visibility_follow_the_parent_even_when_it_is_defined_later() -> None:
    recommender = _Formats()
    (value, _) = _dependent(recommender).validate({"kind": "json"})
    assert (value.recommended_values, value.visible) == (["json-1"], True)
    assert recommender.seen == [("format", {"kind": "json", "format": ""})]
    assert not _dependent(_Formats()).validate_all({"kind": "none"})["format"].visible


def test_a_recommender_that_fails_becomes_an_error_of_its_setting() -> None:
    assert _dependent(_Formats()).validate_all({"kind": "broken"})["format"].error_messages == ["cannot tell"]


def test_dependents_that_are_not_defined_are_reported() -> None:
    definition = ConfigDef().define("a", ConfigType.STRING, default="", dependents=["gone"])
    with pytest.raises(ConfigException, match="referred in the dependents, but not defined: gone"):
        definition.parse({})
    found = definition.validate_all({})["gone"]
    assert found.error_messages == ["gone is referred in the dependents, but not defined."]
    assert not found.visible


def test_settings_that_depend_on_each_other_are_validated_once_each() -> None:
    definition = (
        ConfigDef()
        .define("a", ConfigType.INT, dependents=["b"])
        .define("b", ConfigType.INT, dependents=["a"])
        .define("c", ConfigType.INT, dependents=["a", "b"])
    )
    found = definition.validate_all({"a": "x", "b": "y", "c": "z"})
    assert [len(found[name].error_messages) for name in "abc"] == [1, 1, 1]


def test_embedding_moves_names_groups_order_and_dependents_under_the_prefix() -> None:
    recommender = _Formats()
    child = _dependent(recommender).define("zone", ConfigType.STRING, default="", group="Place", order=3)
    definition = ConfigDef().define("top", ConfigType.STRING, default="")
    definition.embed("out.", "Output", 5, child)
    assert definition.names() == ["top", "out.kind", "out.format", "out.zone"]
    assert definition.groups() == ["Output", "Output: Place"]
    assert [definition.keys[name].order for name in definition.names()[1:]] == [5, 6, 7]
    assert definition.keys["out.kind"].dependents == ("out.format",)
    found = definition.validate_all({"out.kind": "avro", "kind": "elsewhere"})
    assert found["out.format"].recommended_values == ["avro-1"]
    assert recommender.seen[-1] == ("format", {"kind": "avro", "format": "", "zone": ""})


def test_an_embedded_validator_names_the_setting_without_its_prefix() -> None:
    child = ConfigDef().define("n", ConfigType.INT, validator=Range.at_least(1)).define("m", ConfigType.INT)
    definition = ConfigDef().embed("p.", "P", 0, child)
    found = definition.validate_all({"p.n": "0", "p.m": "x"})
    assert found["p.n"].error_messages == ["Invalid value 0 for configuration n: Value must be at least 1"]
    assert found["p.m"].error_messages == ["Invalid value x for configuration p.m: Not a number of type INT"]
    assert str(definition.keys["p.n"].validator) == "[1,...]"


def test_settings_are_shown_by_group_then_order_then_required_then_importance_then_name() -> None:
    definition = (
        ConfigDef()
        .define("z", ConfigType.INT, default=1, group="Two", order=1)
        .define("low", ConfigType.INT, default=1, importance=Importance.LOW)
        .define("high", ConfigType.INT, default=1, importance=Importance.HIGH)
        .define("b", ConfigType.INT, default=1, importance=Importance.HIGH)
        .define("needed", ConfigType.INT, importance=Importance.LOW)
        .define("y", ConfigType.INT, default=1, group="One", order=2)
        .define("x", ConfigType.INT, default=1, group="One", order=1)
    )
    assert [key.name for key in definition.sorted_keys()] == ["needed", "b", "high", "low", "z", "x", "y"]


def test_a_definition_can_start_with_others_and_leaves_them_alone() -> None:
    base = ConfigDef().define("a", ConfigType.STRING, default="x", validator=ValidString("x"))
    extended = ConfigDef(base).define("b", ConfigType.INT, default=2)
    assert base.names() == ["a"]
    assert extended.default_values() == {"a": "x", "b": 2}
