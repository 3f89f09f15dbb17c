"""Configurations as classes: what they define, and what they are parsed to."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field
from enum import Enum
from typing import ClassVar

import pytest

from penstock.config import (
    AbstractConfig,
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigType,
    Importance,
    NonEmptyString,
    Password,
    Range,
    ValidString,
    find_class,
    setting,
)
from penstock.config.abstract_config import TypedConfig
from penstock.errors import ConfigException


class Mode(Enum):
    FOLLOW = "follow"
    ONCE = "once"


class ReaderConfig(AbstractConfig):
    path: str = setting(validator=NonEmptyString(), importance=Importance.HIGH, doc="The file.")
    mode: Mode = setting(default=Mode.FOLLOW)
    batch_rows: int = setting(default=500, validator=Range.at_least(1))
    idle_ms: int = setting(type=ConfigType.LONG, default=5000)
    share: float = setting(default=0.5)
    quiet: bool = setting(default=False)
    topics: tuple[str, ...] = setting("reader.topics", default=("a", "b"))
    secret: Password | None = setting(default=None)
    codec: type | None = setting(default=None)
    note: str | None = setting(default=None)


def test_fields_define_what_the_same_calls_of_define_do():
    written = (
        ConfigDef()
        .define("path", ConfigType.STRING, validator=NonEmptyString(), importance=Importance.HIGH, doc="The file.")
        .define("mode", ConfigType.STRING, default="follow", validator=ValidString("follow", "once"))
        .define("batch.rows", ConfigType.INT, default=500, validator=Range.at_least(1))
        .define("idle.ms", ConfigType.LONG, default=5000)
        .define("share", ConfigType.DOUBLE, default=0.5)
        .define("quiet", ConfigType.BOOLEAN, default=False)
        .define("reader.topics", ConfigType.LIST, default=["a", "b"])
        .define("secret", ConfigType.PASSWORD, default=None)
        .define("codec", ConfigType.CLASS, default=None)
        .define("note", ConfigType.STRING, default=None)
    )

    def described(definition):
        return [
            (key.name, key.type, key.default, str(key.validator), key.importance, key.doc)
            for key in definition.keys.values()
        ]

    assert described(ReaderConfig.definition()) == described(written)
    assert ReaderConfig.definition() is ReaderConfig.definition()


def test_texts_are_parsed_to_the_types_of_the_fields():
    parsed = ReaderConfig.parse(
        {
            "path": "p",
            "mode": "once",
            "batch.rows": "7",
            "idle.ms": "8",
            "share": "0.25",
            "quiet": "true",
            "reader.topics": "x, y",
            "secret": "s",
            "codec": "collections.OrderedDict",
            "unknown": "passed over",
        },
        resolve_class=find_class,
    )
    assert (parsed.path, parsed.mode, parsed.batch_rows, parsed.idle_ms) == ("p", Mode.ONCE, 7, 8)
    assert (parsed.share, parsed.quiet, parsed.topics) == (0.25, True, ("x", "y"))
    assert parsed.secret is not None
    assert parsed.secret.value == "s"
    assert parsed.codec is not None
    assert parsed.codec.__name__ == "OrderedDict"
    assert "s" not in repr(parsed.secret)


def test_what_is_left_out_has_its_default_and_instances_are_made_without_texts():
    assert ReaderConfig.parse({"path": "p"}) == ReaderConfig(path="p")
    made = ReaderConfig(path="p", batch_rows=3)
    assert (made.mode, made.topics, made.note, made.batch_rows) == (Mode.FOLLOW, ("a", "b"), None, 3)
    with pytest.raises(FrozenInstanceError):
        made.path = "q"  # type: ignore[misc]
    with pytest.raises(TypeError, match="path"):
        ReaderConfig()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, 'Missing required configuration "path" which has no default value.'),
        ({"path": ""}, "Invalid value  for configuration path: String must be non-empty"),
        ({"path": "p", "mode": "never"}, "Invalid value never for configuration mode"),
        ({"path": "p", "batch.rows": "0"}, "Invalid value 0 for configuration batch.rows: Value must be at least 1"),
        ({"path": "p", "quiet": "perhaps"}, "Invalid value perhaps for configuration quiet"),
        ({"path": "p", "mode": None}, "Invalid value null for configuration mode"),
        ({"path": "p", "batch.rows": None}, "Invalid value null for configuration batch.rows"),
        ({"path": "p", "quiet": None}, "Invalid value null for configuration quiet: Value must be non-null"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(given, message):
    with pytest.raises(ConfigException) as found:
        ReaderConfig.parse(given)
    assert str(found.value).startswith(message)


def test_a_null_is_none_where_the_field_may_be():
    assert ReaderConfig.parse({"path": "p", "note": None, "secret": None}).note is None


class _Shared(AbstractConfig):
    use: str = setting()
    replaces: bool = setting(default=True)


class _Own(_Shared):
    path: str = setting()
    use: str = setting(default="value")


def test_settings_of_a_base_class_come_first_and_those_that_are_described_anew_keep_their_place():
    assert _Own.definition().names() == ["use", "replaces", "path"]
    assert _Own.parse({"path": "p", "replaces": "false"}) == _Own(path="p", replaces=False, use="value")


def test_a_definition_is_embedded_and_joined_like_any_other():
    joined = ConfigDef(_Own.definition()).embed("reader.", "Reader", 0, ReaderConfig.definition())
    assert joined.names()[:4] == ["use", "replaces", "path", "reader.path"]


def test_a_field_that_no_setting_can_be_is_a_fault_of_the_class():
    class Odd(AbstractConfig):
        found: dict[str, int] = setting()

    with pytest.raises(TypeError, match=r"found is a dict\[str, int\], which no setting can be"):
        Odd.definition()


def _with_no_value():
    class Bare(AbstractConfig):
        rows: int


def _with_a_plain_default():
    class Bare(AbstractConfig):
        rows: int = 5


def _with_a_field_of_a_dataclass():
    class Bare(AbstractConfig):
        rows: dict[str, int] = field(default_factory=dict)


def _with_a_list():
    class Bare(AbstractConfig):
        rows: list[str] = []


def _with_a_list_as_the_default_of_a_setting():
    class Bare(AbstractConfig):
        rows: tuple[str, ...] = setting(default=["a"])


def _without_an_annotation():
    class Bare(AbstractConfig):
        rows = setting(default=5)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (_with_no_value, "the field rows has no setting(). Write `rows: int = setting()`"),
        (_with_a_plain_default, "the field rows has no setting(). Write `rows: int = setting(default=5)`"),
        (_with_a_field_of_a_dataclass, "has no setting(). Write `rows: dict[str, int] = setting()`"),
        (_with_a_list, "field rows"),
        (_with_a_list_as_the_default_of_a_setting, "field rows"),
        (_without_an_annotation, "'rows'"),
    ],
)
def test_a_field_that_is_described_wrongly_is_named_with_what_to_write(define, message):
    with pytest.raises(TypeError) as found:
        define()
    assert f"{__name__}.{define.__name__}.<locals>.Bare: " in str(found.value)
    assert message in str(found.value)
    assert "= setting(" in str(found.value)


def test_what_is_no_setting_stands_beside_the_fields():
    class Marked(AbstractConfig):
        kind: ClassVar[str] = "reader"
        most = 7
        rows: int = setting(default=5)

    assert Marked.definition().names() == ["rows"]


def test_a_text_in_any_letter_case_is_a_member_where_the_validator_takes_it():
    class Anyhow(AbstractConfig):
        mode: Mode = setting(default=Mode.ONCE, validator=CaseInsensitiveValidString("follow", "once"))

    assert [Anyhow.parse({"mode": text}).mode for text in ("Follow", "ONCE", "once")] == [
        Mode.FOLLOW,
        Mode.ONCE,
        Mode.ONCE,
    ]


def test_a_class_that_was_not_looked_up_is_refused():
    with pytest.raises(ConfigException, match=r"collections\.OrderedDict for configuration codec: Expected a class"):
        ReaderConfig.parse({"path": "p", "codec": "collections.OrderedDict"})


class _Bounds(AbstractConfig):
    lower: int = setting(default=0)
    upper: int = setting(default=9)

    def faults(self, properties):
        if self.upper < self.lower:
            yield "upper", f"is less than lower, which is {self.lower}"
        for name in sorted(set(properties) - {"lower", "upper"}):
            yield name, "is no bound"


def test_a_conflict_between_settings_is_refused_at_parse_after_the_faults_of_single_settings():
    assert _Bounds.parse({"lower": "9"}) == _Bounds(lower=9)
    with pytest.raises(ConfigException, match=r"^upper: is less than lower, which is 10$"):
        _Bounds.parse({"lower": "10", "middle": "5"})
    with pytest.raises(ConfigException, match=r"^middle: is no bound$"):
        _Bounds.parse({"middle": "5"})
    with pytest.raises(ConfigException, match="Invalid value x for configuration lower"):
        _Bounds.parse({"lower": "x", "middle": "5"})


def _old_faults(self):
    return []


@pytest.mark.parametrize(
    "members",
    [
        {"faults": _old_faults},
        {"faults": setting(default=1), "__annotations__": {"faults": int}},
        {"faults": setting(), "__annotations__": {"faults": int}},
    ],
    ids=["method", "setting", "required setting"],
)
def test_another_meaning_of_the_name_of_the_hook_is_refused_with_the_class(members):
    with pytest.raises(TypeError, match=r"\.Old: `parse` calls faults .* `def faults\(self, properties\)`"):
        type("Old", (AbstractConfig,), {"__module__": __name__, **members})


class _Classes(AbstractConfig):
    codec: type = setting()
    name: str = setting(type=ConfigType.CLASS, default=None)
    narrow: type[OrderedDict[str, int]] | None = setting(type=ConfigType.CLASS, default=None)


def test_classes_are_looked_up_unless_their_fields_are_texts():
    given = {"codec": "collections.OrderedDict", "narrow": "collections.OrderedDict", "name": "no.such.Class"}
    made = _Classes.parse(given, resolve_class=_ordered)
    assert (made.codec, made.narrow, made.name) == (OrderedDict, OrderedDict, "no.such.Class")


def _ordered(name, text):
    assert name in ("codec", "narrow")
    assert text == "collections.OrderedDict"
    return OrderedDict


class _Together(TypedConfig):
    raw: Mapping[str, str] = field(repr=False)
    path: str = setting()
    note: str | None = setting(default=None)


def test_settings_that_are_parsed_with_others_are_taken_from_the_values_with_the_fields_beside_them():
    made = _Together.of({"x.path": "p", "x.note": None, "x.more": 1}, "x.", raw={"x.path": "p"})

    assert (made.path, made.note, made.raw) == ("p", None, {"x.path": "p"})
    assert (_Together.definition().names(), _Together.never_null()) == (["path", "note"], ("path",))
    with pytest.raises(ConfigException, match=r"null for configuration x\.path: Value must be non-null"):
        _Together.of({"x.path": None, "x.note": None}, "x.", raw={})


class _WithOptions(AbstractConfig):
    path: str = setting()
    option: Mapping[str, str | Password] = setting("option.", doc="Of the format.")


def test_settings_below_a_prefix_are_one_field_without_those_that_have_no_name_and_secrets_are_passwords():
    given = {"path": "p", "option.a.b": "1", "option.userToken": "t", "option.": "x", "options.c": "y"}
    config = _WithOptions.parse(given)

    assert config.option == {"a.b": "1", "userToken": Password("t")}
    assert _WithOptions.parse({"path": "p"}).option == {}
    assert "t'" not in repr(config.option)


def test_settings_below_a_prefix_are_validated_and_defined_by_their_names():
    definition = _WithOptions.definition()
    values = {
        one.name: str(one.value) for one in definition.validate({"path": "p", "option.b": "1", "option.key": "k"})
    }

    assert values == {"path": "p", "option.b": "1", "option.key": "[hidden]"}
    assert definition.names() == ["path"]
    assert [key.name for key in definition.below.values()] == ["option.<name>"]
    assert definition.of_names({"path", "other"}) is definition
    assert definition.of_names(["option.b"]).keys["option.b"].type is ConfigType.STRING
    with pytest.raises(ConfigException, match="defined twice"):
        ConfigDef(definition).define_below("option.")
