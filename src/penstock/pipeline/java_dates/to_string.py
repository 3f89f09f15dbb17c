"""``java.util.Date.toString`` as a column.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.pipeline.java_dates.pattern import compile_pattern
from penstock.pipeline.java_dates.printing import print_column
from penstock.pipeline.java_dates.usual import FIRST, LAST

if TYPE_CHECKING:
    from pyspark.sql import Column

_TOKENS: Final = compile_pattern("EEE MMM dd HH:mm:ss 'UTC' y")


def java_date(millis: Column) -> Column:
    """``Thu Jan 01 00:00:00 UTC 1970``, for any milliseconds since 1970; ``millis`` is used several times."""
    moment = F.timestamp_millis(F.when((millis >= FIRST) & (millis <= LAST), millis))
    text = F.concat(F.date_format(moment, "EEE MMM dd HH:mm:ss"), F.lit(" UTC "), F.date_format(moment, "yyyy"))
    return F.coalesce(text, F.when(millis.isNotNull(), print_column(_TOKENS, millis)))
