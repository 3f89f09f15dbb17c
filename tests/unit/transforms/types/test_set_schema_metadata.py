"""SetSchemaMetadata on single records, and its settings."""

import pytest

from penstock.api import SinkRecord
from penstock.data import STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConfigException, DataException
from penstock.transforms.types.set_schema_metadata import SetSchemaMetadataKey, SetSchemaMetadataValue

SCHEMA = SchemaBuilder.struct().name("old").version(1).doc("d").field("a", STRING_SCHEMA).build()


def named(cls=SetSchemaMetadataValue, **config):
    transform = cls()
    transform.configure({name.replace("_", "."): setting for name, setting in config.items()})
    return transform


def test_name_and_version_change_and_the_rest_stays():
    record = SinkRecord("t", 0, 0, Struct(SCHEMA).put("a", "x"), value_schema=SCHEMA)
    made = named(schema_version="7").apply(record)
    assert (made.value_schema.name, made.value_schema.version, made.value_schema.doc) == ("old", 7, "d")
    assert made.value.schema == made.value_schema
    assert named(schema_name="").apply(record).value_schema.name == ""


def test_the_key_form_leaves_the_value_alone():
    record = SinkRecord("t", 0, 0, "v", value_schema=STRING_SCHEMA, key=None, key_schema=SCHEMA)
    made = named(SetSchemaMetadataKey, schema_name="new").apply(record)
    assert (made.key_schema.name, made.value_schema) == ("new", STRING_SCHEMA)


def test_only_structs_have_metadata_to_set():
    with pytest.raises(DataException, match="Cannot list fields on non-struct type"):
        named(schema_name="n").apply(SinkRecord("t", 0, 0, "v", value_schema=STRING_SCHEMA))
    with pytest.raises(DataException, match=r"Schema required for \[updating schema metadata\]"):
        named(schema_name="n").apply(SinkRecord("t", 0, 0, "v"))
    nothing = SinkRecord("t", 0, 0, None)
    assert named(schema_name="n").apply(nothing) is nothing


def test_neither_name_nor_version_is_a_mistake():
    with pytest.raises(ConfigException, match="Neither schema name nor version configured"):
        named()
    with pytest.raises(ConfigException, match=r"schema\.version: Not a number of type INT"):
        named(schema_version="x")
