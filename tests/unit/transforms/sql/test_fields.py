"""What expressions of Sql ask of the fields of values without a schema, and columns that have it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.pipeline.columns.schemaless import field_columns
from penstock.transforms.sql.fields import fields_asked, type_at

NULL = pa.null()


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


def filled(text: str, values: Sequence[dict[str, object]]) -> dict[str, pa.Array]:
    asked = fields_asked([text])
    found = field_columns(values, asked.kinds)
    assert not found.odd
    return asked.filled(found.columns, found.mixed)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("amount > 100", {"amount": NULL}),
        ("user.address.city", {"user": struct(address=struct(city=NULL))}),
        ("user.name + user.age", {"user": struct(name=NULL, age=NULL)}),
        ("items[0].name", {"items": pa.list_(struct(name=NULL))}),
        ("row['a'].b", {"row": struct(a=struct(b=NULL))}),
        ("user", {"user": NULL}),
        ("user:id", {}),
        ("user.id + user:name", {}),
        ("x.a + x[0]", {}),
        ("variant_get(v, '$.a')", {}),
    ],
)
def test_paths_say_what_is_asked_of_a_field(text: str, kinds: dict[str, pa.DataType]) -> None:
    assert fields_asked([text]).kinds == kinds


def test_what_is_asked_for_is_there_whatever_the_values_are() -> None:
    made = filled(
        "user.name + user.city.code + items[0].price + text.more + none.a[0].b",
        [{"user": {"name": "Ada"}, "items": [{"count": 1}], "text": "x", "other": 1}, {"user": None, "items": []}],
    )

    assert {name: column.type for name, column in made.items()} == {
        "user": struct(name=pa.string(), city=struct(code=NULL)),
        "items": pa.list_(pa.field("item", struct(count=pa.int64(), price=NULL))),
        "text": struct(more=NULL),
        "none": struct(a=pa.list_(pa.field("item", struct(b=NULL)))),
    }
    assert made["user"].to_pylist() == [{"name": "Ada", "city": None}, None]
    assert made["items"].to_pylist() == [[{"count": 1, "price": None}], []]
    for column in made.values():
        column.validate(full=True)


def test_items_have_what_lambdas_ask_of_them() -> None:
    given: list[object] = [[], None, [{"count": 2}]]
    for items in given:
        made = filled("aggregate(items, 0, (sum, item) -> sum + item.price)", [{"items": items}])["items"]

        assert pa.types.is_null(made.type) or made.type.value_type.get_field_index("price") >= 0


def test_what_is_cast_as_a_whole_and_what_is_mixed_stays_variant() -> None:
    values: list[dict[str, object]] = [{"user": {"id": 1}, "n": "5", "items": [{"a": [1, "x"]}]}]

    asked = fields_asked(["user::string, n::int, user.id::int, items"])
    columns = field_columns(values, asked.kinds).columns

    assert sorted(asked.filled({"user": columns["user"], "n": columns["n"]})) == ["n"]
    assert sorted(fields_asked(["user.id::int"]).filled({"user": columns["user"]})) == ["user"]


def test_whole_numbers_among_doubles_are_cast_as_they_were() -> None:
    values: list[dict[str, object]] = [{"n": 1, "o": {"m": 1}}, {"n": 2.5, "o": {"m": 2}}]

    assert filled("n::string, o.m::string", values).keys() == {"o"}
    assert filled("n + 1, o.m", values).keys() == {"n", "o"}


def test_rows_in_which_a_field_is_of_another_kind_are_odd() -> None:
    values: list[dict[str, object]] = [{"n": 1}, {"n": "x"}, {"n": 2.5}, {"n": None}, {}, {"n": [1]}]

    found = field_columns(values, ["n"])

    assert found.odd == {1, 5}
    assert found.columns["n"].to_pylist() == [1.0, None, 2.5, None, None, None]


def test_the_type_of_a_path_is_found() -> None:
    kinds = {"a": struct(b=pa.list_(struct(c=pa.string())))}

    assert type_at(kinds, ("a", "b", "0", "c")) == pa.string()
    assert type_at(kinds, ("a", "x")) == NULL
    assert type_at(kinds, ("z",)) == NULL
