"""The numbers of the VARIANT binary format, which Spark and Parquet share.

A value begins with a header byte. Its lowest two bits say the basic type; of a primitive the others say the type, of a
short string its length, of an object or array how wide the numbers behind it are.

Thread: constants.
Source: Parquet's VariantEncoding.md.
"""

from __future__ import annotations

#: The name of the one member of an object that stands for a map: one with other keys than strings, or one that looks
#: like what this format has no word for. An array of its keys and values.
MAP_TAG = "\x00map"

# Of the lowest two bits of a header.
PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
# Of the other bits, in a primitive.
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, STRING = range(8, 17)
