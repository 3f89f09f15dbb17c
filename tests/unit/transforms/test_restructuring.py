"""Flatten on single records."""

import decimal

import pytest

from penstock.api import SinkRecord
from penstock.data import SchemaBuilder, Struct, Type
from penstock.errors import DataException, SchemaBuilderException
from penstock.transforms.restructuring import FlattenValue


def flat(value, schema=None, **config):
    transform = FlattenValue()
    transform.configure(config)
    return transform.apply(SinkRecord("t", 0, 0, value, value_schema=schema))


def test_maps_are_joined_and_empty_ones_vanish():
    nested = {"a": {"b": {"c": 1}, "d": None}, "e": [1, {"f": 2}], "g": {}, "": {"h": 3}}
    assert flat(nested).value == {"a.b.c": 1, "a.d": None, "e": [1, {"f": 2}], "h": 3}
    assert flat({"a": {"b": 1}}, delimiter=None).value == {"anullb": 1}


def test_parents_that_may_miss_make_leaves_optional_and_give_them_their_defaults():
    inner = SchemaBuilder.struct().field("f", SchemaBuilder.string().optional().build())
    inner.field("g", SchemaBuilder.int32().build())
    child = inner.build()
    with_default = SchemaBuilder.struct().field("f", SchemaBuilder.string().optional().build())
    with_default.field("g", SchemaBuilder.int32().build()).optional()
    with_default.default_value(Struct(with_default.build()).put("f", "child").put("g", 5))
    schema = SchemaBuilder.struct().name("n").version(2).field("c", with_default.build()).field("d", child).build()
    made = flat(Struct.unchecked(schema, [None, Struct(child).put("g", 1)]), schema)
    fields = {one.name: one.schema for one in made.value_schema.fields}
    assert list(fields) == ["c.f", "c.g", "d.f", "d.g"]
    assert (fields["c.g"].optional, fields["c.g"].default, fields["c.f"].default) == (True, 5, "child")
    assert not fields["d.g"].optional
    assert made.value_schema.name == "n"
    assert made.value.values == [None, None, None, 1]


def test_a_null_keeps_its_nested_schema():
    schema = SchemaBuilder.struct().field("a", SchemaBuilder.struct().build()).optional().build()
    assert flat(None, schema).value_schema is schema


def test_maps_in_structs_fail_with_the_name_of_the_field():
    text = SchemaBuilder.string().build()
    inner = SchemaBuilder.struct().field("m", SchemaBuilder.map(text, text).build()).build()
    schema = SchemaBuilder.struct().field("a", inner).build()
    with pytest.raises(DataException, match=r"does not support MAP for record with schemas \(for field a.m\)"):
        flat(Struct.unchecked(schema, [Struct.unchecked(inner, [{}])]), schema)


def test_two_fields_of_one_name_fail():
    number = SchemaBuilder.type(Type.INT32).build()
    inner = SchemaBuilder.struct().field("b", number).build()
    schema = SchemaBuilder.struct().field("ab", number).field("a", inner).build()
    with pytest.raises(SchemaBuilderException, match="field name duplication ab"):
        flat(Struct.unchecked(schema, [1, Struct.unchecked(inner, [2])]), schema, delimiter="")


@pytest.mark.parametrize("value", [decimal.Decimal(1), Struct(SchemaBuilder.struct().build())])
def test_values_that_connect_does_not_know_without_schema_fail(value):
    with pytest.raises(DataException, match="Flatten transformation"):
        flat({"a": value})
