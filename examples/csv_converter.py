"""A converter: a list or struct is a line of comma-separated values in Kafka."""

import csv
import io

from penstock.api import Converter
from penstock.data import (
    NULL_VALUE,
    OPTIONAL_STRING_SCHEMA,
    ConnectHeaders,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
    Values,
)
from penstock.errors import DataException

LINE = SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).optional().build()


class CsvConverter(Converter):
    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, Struct):
            cells = [Values.convert_to_string(field.schema, value.get(field)) for field in value.schema.fields]
        elif isinstance(value, list):
            cells = [Values.convert_to_string(None, item) for item in value]
        else:
            raise DataException(f"A line of topic {topic} is made of a list or struct, not of {type(value).__name__}")
        line = io.StringIO()
        csv.writer(line).writerow(cells)
        return line.getvalue().removesuffix("\r\n").encode()

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        if data is None:
            return NULL_VALUE
        try:
            lines = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataException(f"A message of topic {topic} is not CSV in UTF-8: {error}") from error
        if len(lines) > 1:
            raise DataException(f"A message of topic {topic} has {len(lines)} lines, not one")
        return SchemaAndValue(LINE, list(lines[0]) if lines else [])
