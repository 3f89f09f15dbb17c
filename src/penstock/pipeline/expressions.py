"""Building blocks of Spark expressions that keep the generated code small.

Spark puts a projection into one Java method. Beyond 8,000 bytes of byte code the JVM only ever interprets a method,
which makes everything in it some thirty times slower. So what is rarely needed must not be part of it: ``rare`` hands
it to a part of Spark that evaluates expressions without generated code, behind one call.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def rare(column: Column, build: Callable[[Column], Column]) -> Column:
    """``build(column)`` for rows that seldom need it: slow, but it costs other rows nothing.

    Use it inside of ``when``. In ``build`` the column is evaluated once, however often it is used.
    """
    return F.get(F.transform(F.array(column), build), F.lit(0))
