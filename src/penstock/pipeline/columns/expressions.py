"""Building blocks of Spark expressions that keep the generated code small, and users' own expressions.

Spark puts a projection into one Java method. Beyond 8,000 bytes of byte code a JVM by itself only ever interprets a
method, which makes everything in it some thirty times slower. The worker's JVM compiles such methods too, which takes
long. So rarely needed code should not be part of it: ``apart`` evaluates an expression without generated
code, ``rare`` guards it with one condition.

Function ``spark_text`` is for expressions that users write.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The plan begins with the name of a node, quoted as long as it is not resolved. "DataFrame" tells a line of ours.
_BEHIND_MESSAGE: Final = re.compile(r"\n\nJVM stacktrace|\n== DataFrame ==|;\n(?='?[A-Z]\w*[ \[(])")


def rare(column: Column, build: Callable[[Column], Column]) -> Column:
    """``build(column)`` for rows that seldom need it: it costs other rows nothing but the size of the method.

    Use it inside of ``when``. In ``build`` the column is evaluated once, however often it is used.
    """
    return F.get(F.transform(F.array(column), build), F.lit(0))


def apart(column: Column, build: Callable[[Column], Column]) -> Column:
    """``build(column)`` evaluated without generated code, for expressions that are too large for one method.

    ``transform`` (see ``rare``) has generated code since Spark 4.3, so what it holds counts; ``zip_with`` has none.
    Each row pays for the nodes it passes through, some ten nanoseconds each, and other rows pay nothing.
    """
    return F.get(F.zip_with(F.array(column), F.array(F.lit(0)), lambda one, _: build(one)), F.lit(0))


def spark_text(error: Exception) -> str:
    """Spark's own text of an error, with the position, without the plan and the JVM's trace."""
    return _BEHIND_MESSAGE.split(str(error), maxsplit=1)[0].strip()
