"""Java's ``SimpleDateFormat`` (lenient, UTC, en_US), for single values and as Spark columns.

``pattern`` reads a pattern; ``printing`` and ``parsing`` apply it; ``arithmetic`` lets both be written once for Python
integers and for columns. No Python runs in a plan: text is taken apart by one regular expression, all else is
arithmetic.

Java's calendar is the Julian one before 15 October 1582, has no limits that matter, and lets every field roll over; so
neither Spark's nor Python's date functions will do outside of a narrow range.
"""

from penstock.pipeline.java_dates.parsing import DateParser
from penstock.pipeline.java_dates.pattern import DatePatternError, Token, compile_pattern
from penstock.pipeline.java_dates.printing import print_column, print_millis

__all__ = ["DateParser", "DatePatternError", "Token", "compile_pattern", "print_column", "print_millis"]
