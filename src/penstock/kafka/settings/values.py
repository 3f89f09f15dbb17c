"""Converts the text of a Java client setting to the client's value; raises ``ValueError`` with Java's message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

RdValue = str | int | bool
Conversion = Callable[[str], RdValue]

_JAVA_RANGES = {"SHORT": 1 << 15, "INT": 1 << 31, "LONG": 1 << 63}


def java_number(text: str, java_type: str = "INT") -> int:
    """Parses a text as ConfigDef does. Raises ``ValueError`` if it is not a number, or out of the type's range."""
    try:
        number = int(text.strip())
    except ValueError:
        raise ValueError(f"Not a number of type {java_type}") from None
    if not -_JAVA_RANGES[java_type] <= number < _JAVA_RANGES[java_type]:
        raise ValueError(f"Not a number of type {java_type}")
    return number


def boolean(text: str) -> bool:
    """Parses a text as Kafka's ConfigDef does."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return word == "true"


def items(text: str) -> list[str]:
    """The parts of a LIST setting."""
    return [part for part in (part.strip() for part in text.split(",")) if part]


def integer(
    lowest: int, highest: int, *, java_type: str = "INT", java_lowest: int = 0, zero_for_minus_one: bool = False
) -> Conversion:
    """A number that Java allows in a wider range than librdkafka; a value beyond becomes the nearest limit.

    Args:
        zero_for_minus_one: Java's -1 ("the operating system's" or "never") is 0 here.
    """

    def convert(text: str) -> int:
        number = java_number(text, java_type)
        if number == -1 and zero_for_minus_one:
            return 0
        if number < java_lowest:
            raise ValueError(f"Value must be at least {java_lowest}")
        return min(max(number, lowest), highest)

    return convert


def same(text: str) -> str:
    """A text with the same meaning for both clients."""
    return text


def trimmed_list(text: str) -> str:
    """A LIST setting: commas without spaces."""
    return ",".join(items(text))


def one_of(values: Mapping[str, str], *, ignore_case: bool = False) -> Callable[[str], str]:
    """A setting with named values: librdkafka's word for each of Java's."""

    def convert(text: str) -> str:
        word = text.strip().lower() if ignore_case else text.strip()
        if word not in values:
            raise ValueError(f"String must be one of: {', '.join(values)}")
        return values[word]

    return convert


#: The prefix of a reset by duration; milliseconds follow. librdkafka has none: `StartOffsets` implements it.
BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def offset_reset(text: str) -> str:
    """`auto.offset.reset`: a duration is in milliseconds then.

    >>> offset_reset("by_duration:P1DT0.5S"), offset_reset("none")
    ('by_duration:86400500', 'error')
    """
    word = text.strip()
    if not word.startswith(BY_DURATION):
        return one_of({"earliest": "earliest", "latest": "latest", "none": "error", "by_duration:<duration>": ""})(text)
    millis = _millis_of_duration(word.removeprefix(BY_DURATION))
    if millis is None:
        raise ValueError("what follows by_duration: must be a duration in ISO 8601, such as P7D, PT1H or P1DT12H30M")
    if millis < 0:
        raise ValueError("a duration must not be negative")
    return f"{BY_DURATION}{millis}"


def _millis_of_duration(text: str) -> int | None:
    """The milliseconds of a text that `java.time.Duration.parse` accepts; None for any other text."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        return None
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    part = int((fraction or "").ljust(9, "0")) // 1_000_000
    millis = whole * 1000 + (-part if (seconds or "").startswith("-") else part)
    return -millis if sign == "-" else millis


_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def assignors(text: str) -> str:
    """`partition.assignment.strategy`: Java class names, or librdkafka's own words.

    The first decides whether rebalancing is eager or cooperative. Strategies of the other kind are left out, because
    librdkafka refuses a mixture. Java's default mixture (range, then cooperative-sticky) becomes range.

    >>> assignors("org.apache.kafka.clients.consumer.RangeAssignor, class a.CooperativeStickyAssignor")
    'range'
    """
    chosen = []
    for name in items(text):
        short = name.removeprefix("class ").rpartition(".")[2]
        word = _ASSIGNORS.get(short, name if name in _ASSIGNORS.values() else None)
        if word is None:
            raise ValueError(f"the assignor {name} is not available; choose from {', '.join(_ASSIGNORS)}")
        chosen.append(word)
    if not chosen:
        raise ValueError("at least one assignor is needed")
    cooperative = chosen[0] == "cooperative-sticky"
    return ",".join(dict.fromkeys(word for word in chosen if (word == "cooperative-sticky") == cooperative))


_PARTITIONERS = {
    "": "",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "keyless",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round robin",
}


def partitioner(text: str) -> str:
    """`partitioner.class`: the stock classes of Java's clients, including those of Kafka before 4.0."""
    name = text.strip().removeprefix("class ")
    if name not in _PARTITIONERS:
        raise ValueError(
            "a Java partitioner cannot be loaded; remove the setting (equal keys go to the same partition as with "
            "Java's default), or let a transform or the connector choose the partition"
        )
    return _PARTITIONERS[name]


#: ``acks``: all, -1, 0 or 1.
acks: Final = one_of({"all": "all", "-1": "all", "0": "0", "1": "1"})

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


@dataclass(frozen=True)
class Compression:
    """The compression of the records of a batch.

    Attributes:
        code: Its number in a batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        level: Kafka's default if None. Ignored for none and snappy.

    Source: KIP-390, "Support Compression Level".
    """

    code: int
    level: int | None = None

    @classmethod
    def named(cls, name: str, level: int | None = None) -> Compression:
        """The compression of this name, as in `compression.type`."""
        if name not in COMPRESSIONS:
            raise ValueError(f"compression.type is {name!r}, it must be one of {', '.join(COMPRESSIONS)}")
        return cls(COMPRESSIONS.index(name), level)
