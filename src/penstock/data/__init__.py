"""Connect's data model: schemas, structs, logical types, headers, and conversions between them.

Import from here: ``from penstock.data import SchemaBuilder, Struct``. It needs the standard library only. Start from:

- ``Schema``, made with ``SchemaBuilder`` (``schema``); ``Struct`` (``structs``): a value with fields.
- ``Decimal``, ``Date``, ``Time``, ``Timestamp`` (``logical``): typed values stored as a primitive; ``FarDate``,
  ``FarTime``, ``FarTimestamp`` next to them: values beyond the range of Python's classes.
- ``ConnectHeaders``, ``Header`` (``headers``).
- ``validate_value`` (``structs``): checks a value against a schema.
- ``Values``, ``SchemaProjector`` (``conversions``): convert a value to another type, and to another schema.
- ``to_java_text`` (``text``): a value as Java prints it.

``penstock.pipeline.columns.layout`` stores this data in columns; ``penstock.api.record`` has the records that contain
it.
"""

from penstock.data.conversions import SchemaProjector, Values, value_text
from penstock.data.headers import ConnectHeaders, Header
from penstock.data.logical import (
    LOGICAL_NAMES,
    Date,
    Decimal,
    FarDate,
    FarMoment,
    FarTime,
    FarTimestamp,
    Time,
    Timestamp,
)
from penstock.data.parser import infer_schema, parse_string
from penstock.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    NULL_VALUE,
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_FLOAT32_SCHEMA,
    OPTIONAL_FLOAT64_SCHEMA,
    OPTIONAL_INT8_SCHEMA,
    OPTIONAL_INT16_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Field,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Type,
)
from penstock.data.structs import Struct, validate_value
from penstock.data.text import java_decimal, java_double, java_float, nearest_float32, round_to_float32, to_java_text

__all__ = [
    "BOOLEAN_SCHEMA",
    "BYTES_SCHEMA",
    "FLOAT32_SCHEMA",
    "FLOAT64_SCHEMA",
    "INT8_SCHEMA",
    "INT16_SCHEMA",
    "INT32_SCHEMA",
    "INT64_SCHEMA",
    "LOGICAL_NAMES",
    "NULL_VALUE",
    "OPTIONAL_BOOLEAN_SCHEMA",
    "OPTIONAL_BYTES_SCHEMA",
    "OPTIONAL_FLOAT32_SCHEMA",
    "OPTIONAL_FLOAT64_SCHEMA",
    "OPTIONAL_INT8_SCHEMA",
    "OPTIONAL_INT16_SCHEMA",
    "OPTIONAL_INT32_SCHEMA",
    "OPTIONAL_INT64_SCHEMA",
    "OPTIONAL_STRING_SCHEMA",
    "STRING_SCHEMA",
    "ConnectHeaders",
    "Date",
    "Decimal",
    "FarDate",
    "FarMoment",
    "FarTime",
    "FarTimestamp",
    "Field",
    "Header",
    "Schema",
    "SchemaAndValue",
    "SchemaBuilder",
    "SchemaProjector",
    "Struct",
    "Time",
    "Timestamp",
    "Type",
    "Values",
    "infer_schema",
    "java_decimal",
    "java_double",
    "java_float",
    "nearest_float32",
    "parse_string",
    "round_to_float32",
    "to_java_text",
    "validate_value",
    "value_text",
]
