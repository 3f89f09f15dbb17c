"""The tokens of Spark SQL: where a list is parted, which paths there are, and how those into VARIANTs are written."""

from typing import Literal

import pytest

from penstock.transforms.sql.text import (
    calls_of,
    names_in,
    paths_of,
    split_items,
    with_typed_paths,
    with_variant_paths,
)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a, b as c", ["a", "b as c"]),
        ("f(a, b)[0], map('x', 1)['x,y']", ["f(a, b)[0]", "map('x', 1)['x,y']"]),
        (r"'it\'s, so', `c,d`", [r"'it\'s, so'", "`c,d`"]),
        ('"a,\'b", c', ['"a,\'b"', "c"]),
        (r"r'\', b", [r"r'\'", "b"]),
        ("a -- first, of all\n, b /* c, d */", ["a -- first, of all", "b /* c, d */"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_a_list_is_parted_at_commas_that_stand_alone(text, items):
    assert split_items(text) == items


def test_calls_are_functions_and_not_the_fields_called_like_them():
    assert calls_of("EXPLODE (items), `explode`, explode.x, 'explode(a)'") == ["explode"]


def test_paths_end_where_an_operator_or_an_index_that_is_computed_begins():
    paths = [path.names for path in paths_of("a.b[0]['c d'].`e.f`:g - b[i + 1].c + 1.5")]
    assert paths == [("a", "b", "0", "c d", "e.f", "g"), ("b",), ("i",)]


def test_variables_of_lambdas_are_no_columns():
    assert names_in("aggregate(xs, 0, (sum, x) -> sum + x.n, total -> total * rate)") == {"xs", "rate"}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("u.id::int + u.address.city", "u:id::int + u:address.city"),
        ("u", "u"),
        ("u:id.x", "u:id.x"),
        ("`u`.`first name`", "`u`:`first name`"),
        ("u[0].x", "u:[0].x"),
        ('u["a b"].x', "u:['a b'].x"),
        ('u.xs["a"]', "u:xs['a']"),
        ("t.id + 'u.id' -- u.id", "t.id + 'u.id' -- u.id"),
        ("headers.h.x = headers['h']", "headers.h:x = headers['h']"),
        ("record.key.x + record.topic", "record.key:x + record.topic"),
        ("transform(xs, u -> u.id)", "transform(xs, u -> u.id)"),
    ],
)
def test_a_path_into_a_variant_is_written_as_spark_wants_it(text, written):
    variants = {("u",), ("headers", None), ("record", "key")}
    assert with_variant_paths(text, variants) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("items[0].name as first", "get(items, 0).name as first"),
        ("xs[0][1] + xs[2]['a'].b", "get(get(xs, 0), 1) + get(xs, 2)['a'].b"),
        ("row['a'].b", "row['a'].b"),
        ("t = 'x' and t > 5 and not t in (1, 2)", "t = 'x' and t::double > 5 and not t::double in (1, 2)"),
        ("t::int > 5", "t::int > 5"),
        ("t[0] > 5", "get(t, 0)::double > 5"),
        ("other[0] > 5 and other.t = 1", "other[0] > 5 and other.t = 1"),
        ("transform(xs, x -> x[0])", "transform(xs, x -> x[0])"),
    ],
)
def test_paths_into_typed_columns_are_written_so_that_what_is_not_there_is_null(text: str, written: str) -> None:
    def kind(names: tuple[str, ...]) -> Literal["text", "other"] | None:
        return {"t": "text", "other": None}.get(names[0], "other")

    assert with_typed_paths(text, kind) == written
