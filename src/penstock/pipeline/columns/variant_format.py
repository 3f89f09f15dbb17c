"""What the VARIANT binary format calls things, and the tags of what it cannot say: see ``variant``.

Thread: constants.
Source: Parquet's VariantEncoding.md.
"""

from __future__ import annotations

from typing import Final

MAP_TAG: Final = "\x00map"
STRUCT_TAG: Final = "\x00struct"
TIME_TAG: Final = "\x00time"
#: Of any decimal. Java's JSON library reads no longer numbers, and Spark has to work wide ones out piece by piece.
MAX_UNSCALED_DIGITS: Final = 1000
#: What holds any number of as many digits.
MAX_UNSCALED_BYTES: Final = 416
DECIMAL_TAG: Final = "\x00decimal"
DATE_TAG: Final = "\x00date"
TIMESTAMP_TAG: Final = "\x00timestamp"
TAGS: Final = frozenset((MAP_TAG, STRUCT_TAG, TIME_TAG, DECIMAL_TAG, DATE_TAG, TIMESTAMP_TAG))

#: So many shapes of objects are remembered.
MAX_SHAPES: Final = 4096

# Of the lowest two bits of a header.
PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
# Of the other bits, in a primitive.
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, STRING = range(8, 17)
