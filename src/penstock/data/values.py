"""``SchemaAndValue``: a value with its schema.

Owning thread: none; values.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.data.schema import Schema


class SchemaAndValue(NamedTuple):
    """A value with its schema; schema None = schemaless.

    Source: org.apache.kafka.connect.data.SchemaAndValue.
    """

    schema: Schema | None
    value: object


#: Null without a schema.
NULL_VALUE: Final = SchemaAndValue(None, None)
