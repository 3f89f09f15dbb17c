"""Paths to fields, in both syntaxes."""

import pytest

from penstock.data import INT32_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConfigException, DataException
from penstock.transforms.definition import NullPointerError
from penstock.transforms.extraction import NoStepsError, parse_path, split_path

INNER = SchemaBuilder.struct().field("b", INT32_SCHEMA).field("s", OPTIONAL_STRING_SCHEMA).optional().build()
OUTER = SchemaBuilder.struct().field("a", INNER).field("n", INT32_SCHEMA).build()


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("a.", ["a", ""]),
        (".a", ["", "a"]),
        (".", ["", ""]),
        ("", []),
        ("``", [""]),
        ("`a.b`.c", ["a.b", "c"]),
        ("a.`b.c`", ["a", "b.c"]),
        ("`a`b`", ["a`b"]),
        (r"`a\`.b`", ["a`.b"]),
        ("a`b.c", ["a`b", "c"]),
    ],
)
def test_a_path_of_version_2_has_these_steps(path, steps):
    assert split_path(path) == steps


@pytest.mark.parametrize("path", ["`a", "`", "a.`b", "`a`b", r"`a\`"])
def test_a_backtick_without_partner_is_refused(path):
    with pytest.raises(ConfigException, match="Incomplete backtick pair in path"):
        split_path(path)


def test_version_1_takes_the_text_as_it_is():
    assert parse_path("a.`b`", "V1").steps == ("a.`b`",)


def test_a_path_needs_a_text_and_steps():
    with pytest.raises(NullPointerError):
        parse_path(None, "V2")
    with pytest.raises(NoStepsError):
        parse_path("", "V2").fields(OUTER)


def test_fields_along_a_path_are_found_in_schemas_and_values():
    path = parse_path("a.b", "v2")
    fields = path.fields(OUTER)
    assert fields is not None
    assert [field.name for field in fields] == ["a", "b"]
    assert path.of_struct(Struct(OUTER).put("a", Struct(INNER).put("b", 3)), defaults=True) == 3
    assert path.of_struct(Struct(OUTER), defaults=True) is None
    assert path.of_map({"a": {"b": 4}}) == 4
    assert path.of_map({"a": None}) is None
    assert parse_path("a.x", "V2").fields(OUTER) is None


def test_a_step_into_something_else_is_an_error():
    with pytest.raises(DataException, match="Cannot look up fields on non-struct type"):
        parse_path("n.x", "V2").fields(OUTER)
    with pytest.raises(DataException, match=r"\[nested field access\], found: java.lang.Long"):
        parse_path("n.x", "V2").of_map({"n": 5})
