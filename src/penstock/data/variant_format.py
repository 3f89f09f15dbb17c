"""The numbers of the VARIANT binary format, which Spark and Parquet share.

A value begins with a header byte. Its lowest two bits are the basic type. The other bits are the type of a primitive,
the length of a short string, or the width of the numbers that follow in an object or array.

Thread: constants.
Source: Parquet's VariantEncoding.md.
"""

from __future__ import annotations

#: The field name that marks an object as an encoded map: a map whose keys are not strings, or one that would look like
#: an encoded value. The field holds an array of the keys and values.
MAP_TAG = "\x00map"

# The lowest two bits of a header.
PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
# The other bits, for a primitive.
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, STRING = range(8, 17)
