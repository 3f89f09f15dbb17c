"""Which columns Spark's JSON text is right for as they are."""

from __future__ import annotations

import pytest

from penstock.data import Schema, Type
from penstock.pipeline.columns.json_text import JsonText
from penstock.pipeline.columns.layout import default_physical

DEFAULT = Schema(Type.STRING, default="x")


@pytest.mark.parametrize(
    ("key", "value", "is_plain"),
    [
        (Schema(Type.STRING), Schema(Type.STRING), True),
        (DEFAULT, Schema(Type.STRING), True),
        (Schema(Type.STRING), DEFAULT, False),
    ],
)
def test_a_default_of_a_maps_values_asks_for_a_rebuild_and_one_of_its_keys_does_not(
    key: Schema, value: Schema, is_plain: bool
) -> None:
    schema = Schema(Type.MAP, key_schema=key, value_schema=value)
    assert JsonText()._is_plain(schema, default_physical(schema)) is is_plain
