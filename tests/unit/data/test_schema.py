"""Schemas and their builder."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from penstock.data import (
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Decimal,
    Field,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)
from penstock.errors import DataException, SchemaBuilderException


def _person() -> SchemaBuilder:
    return SchemaBuilder.struct().name("Person").version(2).doc("who").field("name", STRING_SCHEMA)


def test_schemas_that_say_the_same_are_equal_and_hash_alike() -> None:
    assert _person().build() == _person().build()
    assert hash(_person().build()) == hash(_person().build())


@pytest.mark.parametrize(
    "other",
    [
        _person().optional().build(),
        _person().parameter("a", "1").build(),
        _person().field("age", INT32_SCHEMA).build(),
        SchemaBuilder.struct().name("Person").version(2).doc("who").field("name", INT32_SCHEMA).build(),
        SchemaBuilder.struct().name("Person").version(3).doc("who").field("name", STRING_SCHEMA).build(),
        SchemaBuilder.struct().name("Person").version(2).field("name", STRING_SCHEMA).build(),
        SchemaBuilder.struct().name("Child").version(2).doc("who").field("name", STRING_SCHEMA).build(),
        STRING_SCHEMA,
    ],
)
def test_any_difference_makes_schemas_unequal(other: Schema) -> None:
    assert other != _person().build()


def test_defaults_are_part_of_equality_even_where_they_have_no_hash() -> None:
    def build(default: list[Any]) -> Schema:
        return SchemaBuilder.array(INT32_SCHEMA).default_value(default).build()

    assert build([1]) == build([1])
    assert hash(build([1])) == hash(build([2]))
    assert build([1]) != build([2])


def test_a_nan_default_equals_itself_and_zero_is_not_false() -> None:
    def build(default: object) -> Schema:
        return Schema(Type.FLOAT64, default=default)

    assert build(float("nan")) == build(float("nan"))
    assert Schema(Type.INT32, default=0) != Schema(Type.INT32, default=False)
    assert build(0.0) != build(-0.0)


def test_a_schema_survives_pickle_and_copy() -> None:
    schema = _person().parameter("a", "1").field("tags", SchemaBuilder.array(STRING_SCHEMA).build()).build()

    for other in (pickle.loads(pickle.dumps(schema)), copy.deepcopy(schema)):
        assert other == schema
        assert hash(other) == hash(schema)


def test_a_schema_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        INT32_SCHEMA.optional = True
    with pytest.raises(AttributeError, match="immutable"):
        del INT32_SCHEMA.name
    parameters: Any = Decimal.schema(2).parameters
    with pytest.raises(TypeError):
        parameters["scale"] = "3"


@pytest.mark.parametrize(
    ("access", "message"),
    [
        (lambda schema: schema.fields, "Cannot list fields on non-struct type"),
        (lambda schema: schema.field("a"), "Cannot look up fields on non-struct type"),
        (lambda schema: schema.key_schema, "Cannot look up key schema on non-map type"),
        (lambda schema: schema.value_schema, "Cannot look up value schema on non-array and non-map type"),
    ],
)
def test_asking_a_schema_for_what_its_type_does_not_have_is_a_data_error(access: Any, message: str) -> None:
    with pytest.raises(DataException, match=message):
        access(INT32_SCHEMA)


def test_fields_are_numbered_in_order_and_found_by_name() -> None:
    schema = SchemaBuilder.struct().field("a", INT8_SCHEMA).field("b", STRING_SCHEMA).build()

    assert schema.fields == (Field("a", 0, INT8_SCHEMA), Field("b", 1, STRING_SCHEMA))
    assert schema.field("b") == schema.fields[1]
    assert schema.field("c") is None


def test_a_map_and_an_array_know_the_schemas_of_their_parts() -> None:
    schema = SchemaBuilder.map(STRING_SCHEMA, SchemaBuilder.array(INT8_SCHEMA).build()).build()

    assert schema.key_schema == STRING_SCHEMA
    assert schema.value_schema is not None
    assert schema.value_schema.value_schema == INT8_SCHEMA


def test_a_schema_prints_as_in_java() -> None:
    assert str(INT8_SCHEMA) == "Schema{INT8}"
    assert str(_person().build()) == "Schema{Person:STRUCT}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.optional().required(), "optional has already been set"),
        (lambda b: b.name("a").name("b"), "name has already been set"),
        (lambda b: b.version(1).version(2), "version has already been set"),
        (lambda b: b.doc("a").doc("b"), "doc has already been set"),
        (lambda b: b.default_value(1).default_value(2), "default has already been set"),
        (lambda b: b.default_value(1).default_value(True), "Invalid default value"),
        (lambda b: b.default_value("x"), "Invalid default value"),
        (lambda b: b.default_value(None), "Invalid default value"),
        (lambda b: b.field("a", INT8_SCHEMA), "Cannot create fields on type INT32"),
    ],
)
def test_a_builder_refuses_contradictions(change: Any, message: str) -> None:
    with pytest.raises(SchemaBuilderException, match=message):
        change(SchemaBuilder.int32())


def test_saying_the_same_twice_is_fine() -> None:
    assert SchemaBuilder.int32().optional().optional().name("a").name("a").build().optional


@pytest.mark.parametrize(
    ("name", "schema", "message"),
    [
        ("", INT8_SCHEMA, "fieldName cannot be null"),
        ("b", None, "fieldSchema for field b cannot be null"),
        ("a", INT8_SCHEMA, "Cannot create field because of field name duplication a"),
    ],
)
def test_a_field_needs_a_name_of_its_own_and_a_schema(name: str, schema: Any, message: str) -> None:
    builder = SchemaBuilder.struct().field("a", INT8_SCHEMA)

    with pytest.raises(SchemaBuilderException, match=message):
        builder.field(name, schema)


def test_arrays_and_maps_need_schemas_for_their_parts() -> None:
    missing: Any = None
    with pytest.raises(SchemaBuilderException, match=r"valueSchema cannot be null"):
        SchemaBuilder.array(missing)
    with pytest.raises(SchemaBuilderException, match=r"keySchema cannot be null"):
        SchemaBuilder.map(missing, STRING_SCHEMA)


def test_parameters_add_up_and_no_parameters_are_none() -> None:
    assert SchemaBuilder.string().parameters({}).build().parameters is None
    both = SchemaBuilder.string().parameter("a", "1").parameters({"b": "2", "a": "3"}).build()
    assert both.parameters == {"a": "3", "b": "2"}


def test_a_builder_can_go_on_after_it_has_built() -> None:
    builder = SchemaBuilder.struct().field("a", INT8_SCHEMA)
    first = builder.build()
    second = builder.field("b", INT8_SCHEMA).build()

    assert len(first.fields) == 1
    assert len(second.fields) == 2


def test_a_struct_default_is_checked_against_the_schema_without_it() -> None:
    plain = SchemaBuilder.struct().field("a", INT8_SCHEMA).build()
    schema = SchemaBuilder.struct().field("a", INT8_SCHEMA).default_value(Struct(plain).put("a", 1)).build()

    assert isinstance(schema.default, Struct)
    with pytest.raises(SchemaBuilderException):
        SchemaBuilder.struct().field("b", INT8_SCHEMA).default_value(Struct(plain).put("a", 1))


def test_equal_schemas_stay_equal_to_each_other_and_to_nothing_else() -> None:
    # given schemas as a source makes them that builds one for each record
    first, second, third = (
        SchemaBuilder.struct().field("a", STRING_SCHEMA).field("b", INT32_SCHEMA).build() for _ in range(3)
    )
    other = SchemaBuilder.struct().field("a", STRING_SCHEMA).field("b", INT64_SCHEMA).build()

    # when they are compared in any order, again and again
    for _ in range(2):
        assert third == first
        assert second == third
        assert first == second == third == first

        # then what differs still does
        assert other not in (first, second, third)
