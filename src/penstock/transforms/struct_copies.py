"""Structs made anew from the fields of others: schemas, columns, and what ``Struct.put`` refuses.

Functions ``schema_like`` (a struct schema with the name, version and doc of another), ``field_column`` (a field, its
default in place of null where that is asked for), ``required_fault`` (a null where Java's ``Struct.put`` takes none)
and ``filled`` (the same of one record).

Thread: pure functions.
Source: org.apache.kafka.connect.transforms.util.SchemaUtil; org.apache.kafka.connect.data.Struct.put.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.data import Field, Schema, SchemaBuilder, Struct
from penstock.data.validate import null_refused
from penstock.errors import DataException
from penstock.pipeline.expressions import rare
from penstock.pipeline.json_columns import literal
from penstock.pipeline.step import Fault
from penstock.pipeline.text_bounds import unbounded
from penstock.pipeline.types import Physical

if TYPE_CHECKING:
    from pyspark.sql import Column


def schema_like(schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
    """A struct schema with these fields and the name, version, doc and parameters of another.

    Raises:
        SchemaBuilderException: Two fields have one name.
    """
    builder = SchemaBuilder.struct().name(schema.name).version(schema.version).doc(schema.doc)
    if schema.parameters:
        builder.parameters(schema.parameters)
    for name, field_schema in fields:
        builder.field(name, field_schema)
    return builder.build()


def field_column(value: Column, field: Field, physical: Physical, *, defaults: bool) -> Column:
    """A field of a struct column; with ``defaults`` a null is the field's default."""
    column = value.getField(field.name)
    if defaults and field.schema.default is not None:
        return F.coalesce(column, literal(field.schema.default, field.schema, physical))
    return column


def copied_layout(field: Field, physical: Physical, *, defaults: bool) -> Physical:
    """The layout of ``field_column``: what is known of a text does not hold for the default in place of null."""
    return unbounded(physical) if defaults and field.schema.default is not None else physical


def field_value(value: Struct, field: str | Field, *, defaults: bool) -> object:
    """The same of one Struct."""
    return value.get(field) if defaults else value.get_without_default(field)


def required_fault(
    value: Column, fields: Sequence[tuple[str, Field]], *, defaults: bool, complete: bool
) -> Fault | None:
    """The fault of nulls in required fields; None where no field is required, or known to have one.

    Args:
        value: The struct the fields are taken from.
        fields: The fields that are put into another struct, with their names there.
        defaults: Whether a null is replaced by the field's default first.
        complete: Whether no required field has a null.
    """
    if complete:
        return None
    required = [
        (name, field)
        for name, field in fields
        # Struct.put takes no null for a field with a default either.
        if not field.schema.optional and not (defaults and field.schema.default is not None)
    ]
    if not required:
        return None
    missing = [value.getField(field.name).isNull() for _, field in required]
    condition = missing[0]
    for one in missing[1:]:
        condition = condition | one

    def text(struct: Column) -> Column:
        message = F.lit(None).cast("string")
        for name, field in reversed(required):
            message = F.when(struct.getField(field.name).isNull(), null_in(name, field.schema)).otherwise(message)
        return message

    return Fault(value.isNotNull() & condition, rare(value, text), DataException.java_name)


def filled(schema: Schema, values: Sequence[object]) -> Struct:
    """A Struct of values that fit its schema, unless they are null.

    Raises:
        DataException: One is null, and required.
    """
    for field, value in zip(schema.fields, values, strict=True):
        if value is None and not field.schema.optional:
            raise DataException(null_in(field.name, field.schema))
    return Struct.unchecked(schema, values)


def null_in(name: str, schema: Schema) -> str:
    """What Java's ``Struct.put`` says of a null for a required field."""
    return null_refused(schema, f'field: "{name}"')
