"""The transform of the documentation."""

import pytest
from examples.mask_transform import Mask

from penstock.api import SourceRecord
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConfigException, DataException

PERSON = SchemaBuilder.struct().field("id", INT32_SCHEMA).field("card", STRING_SCHEMA).build()


def mask(**settings: str) -> Mask:
    transform = Mask()
    transform.configure({"field": "card", **settings})
    return transform


def record(value: object) -> SourceRecord:
    return SourceRecord(None, None, "t", value)


def test_a_field_of_a_map_is_hidden_and_the_record_given_stays_as_it_was() -> None:
    given = record({"id": 7, "card": "1234567890"})

    masked = mask().apply(given)

    assert masked is not None
    assert masked.value == {"id": 7, "card": "******7890"}
    assert given.value == {"id": 7, "card": "1234567890"}


def test_a_field_of_a_struct_is_hidden_and_the_record_given_stays_as_it_was() -> None:
    person = Struct(PERSON).put("id", 7).put("card", "1234567890")
    given = record(person)

    masked = mask(visible="0").apply(given)

    assert masked is not None
    assert masked.value == Struct(PERSON).put("id", 7).put("card", "**********")
    assert person.get("card") == "1234567890"


@pytest.mark.parametrize("value", [None, {"card": None}, {"card": "12"}])
def test_there_may_be_nothing_to_hide(value: object) -> None:
    masked = mask().apply(record(value))

    assert masked is not None
    assert masked.value == value


def test_a_value_without_fields_is_an_error_of_its_record() -> None:
    with pytest.raises(DataException, match="not str"):
        mask().apply(record("1234567890"))


def test_it_is_not_configured_without_a_field() -> None:
    with pytest.raises(ConfigException, match="field"):
        Mask().configure({"visible": "2"})
