"""A struct that is made of fields of another, and the classes of a transform for keys and for values."""

import pickle
from dataclasses import dataclass

import pytest

from penstock.api import SinkRecord
from penstock.data import STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import DataException
from penstock.pipeline.plan.step import StepFault
from penstock.transforms.fields import Change, FieldSelection, Pick
from penstock.transforms.types import CastKey, CastValue

OPTIONAL = SchemaBuilder.string().optional().build()
DEFAULT = SchemaBuilder.string().optional().default_value("d").build()
INNER = SchemaBuilder.struct().field("deep", DEFAULT).optional().build()
OUTER = SchemaBuilder.struct().field("a", STRING_SCHEMA).field("b", DEFAULT).field("in", INNER).build()
MADE = SchemaBuilder.struct().field("b", OPTIONAL).field("deep", OPTIONAL).field("a", STRING_SCHEMA).build()


@dataclass(frozen=True)
class Shout(Change):
    """Letters in upper case."""

    def layout(self, schema, physical):
        return physical

    def column(self, column, schema, physical, keep):
        return column, [StepFault(None, "never", "E")]

    def value(self, schema, value):
        return None if value is None else value.upper()


def selection(*, defaults):
    a, b, inner = OUTER.fields
    picks = (Pick("b", (b,)), Pick("deep", (inner, INNER.fields[0])), Pick("a", (a,), Shout()))
    return FieldSelection(MADE, picks, defaults)


@pytest.mark.parametrize(
    ("values", "defaults", "expected"),
    [
        (["x", "y", Struct.unchecked(INNER, ["z"])], True, ["y", "z", "X"]),
        (["x", None, Struct.unchecked(INNER, [None])], True, ["d", "d", "X"]),
        (["x", None, Struct.unchecked(INNER, [None])], False, [None, None, "X"]),
        # The default is that of a null field, not that of a field of nothing.
        (["x", None, None], True, ["d", None, "X"]),
    ],
)
def test_values_come_from_their_fields_or_are_defaults_and_are_changed(values, defaults, expected):
    assert selection(defaults=defaults).struct(Struct.unchecked(OUTER, values)).values == expected


def test_a_null_is_refused_where_the_new_schema_requires_a_value():
    with pytest.raises(DataException) as caught:
        selection(defaults=True).struct(Struct.unchecked(OUTER, [None, None, None]))
    assert str(caught.value) == 'Invalid value: null used for required field: "a", schema type: STRING'


def test_the_classes_for_keys_and_values_are_like_any_other():
    assert (CastKey.__name__, CastKey.__module__, CastKey.side) == ("CastKey", "penstock.transforms.types", "key")
    assert CastValue.java_name == "org.apache.kafka.connect.transforms.Cast$Value"

    transform = CastValue()
    transform.configure({"spec": "int8"})
    record = SinkRecord("t", 0, 0, 300)
    transform.apply(record)

    assert pickle.loads(pickle.dumps(transform)).apply(record) == transform.apply(record)
