"""Java's ``SimpleDateFormat`` (lenient, UTC, en_US), for single values and as Spark columns.

Start from:

- ``compile_pattern`` (``pattern``): reads a pattern.
- ``print_millis``, ``print_column`` (``printing``) and ``DateParser`` (``parsing``): apply it; ``usual`` has short
  expressions for patterns that most people use.
- ``PythonArithmetic``, ``ColumnArithmetic`` (``arithmetic``): calendar arithmetic, written once for Python integers and
  for columns.

No Python runs in a plan: text is taken apart by one regular expression, all else is arithmetic. Java's calendar is the
Julian one before 15 October 1582, has no limits that matter, and lets every field roll over; so neither Spark's nor
Python's date functions will do outside of a narrow range. Dates in headers are read by ``penstock.data.text``.
"""

from penstock.pipeline.columns.java_dates.parsing import DateParser
from penstock.pipeline.columns.java_dates.pattern import DatePatternError, PatternToken, compile_pattern
from penstock.pipeline.columns.java_dates.printing import print_column, print_millis

__all__ = ["DateParser", "DatePatternError", "PatternToken", "compile_pattern", "print_column", "print_millis"]
