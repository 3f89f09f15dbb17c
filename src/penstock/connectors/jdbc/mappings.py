"""Choices of a user about types: `NumericMapping` and `TimestampGranularity`. Values; any thread."""

from __future__ import annotations

from enum import Enum


class NumericMapping(Enum):
    """Schemas of NUMERIC and DECIMAL columns: the values of ``numeric.mapping``."""

    NONE = "none"
    PRECISION_ONLY = "precision_only"
    BEST_FIT = "best_fit"
    BEST_FIT_EAGER_DOUBLE = "best_fit_eager_double"


class TimestampGranularity(Enum):
    """The form of timestamps: the values of ``timestamp.granularity``."""

    CONNECT_LOGICAL = "connect_logical"
    MICROS_LONG = "micros_long"
    MICROS_STRING = "micros_string"
    MICROS_ISO = "micros_iso_datetime_string"
    NANOS_LONG = "nanos_long"
    NANOS_STRING = "nanos_string"
    NANOS_ISO = "nanos_iso_datetime_string"
