"""The examples of the documentation: configuration, what is given, what becomes of it; read from two files of examples.

Main types: ``TransformExample`` (records through a chain) and ``ConverterExample`` (a value to a message and back).
``transform_examples`` and ``converter_examples`` read them; pages show them and a test runs them. ``read_record`` and
``write_record`` are the notation of records.

Thread: values and pure functions.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, Final

from penstock.api import ConnectRecord, SinkRecord
from penstock.config.properties import parse_properties
from penstock.data import ConnectHeaders, Header
from tools.reference.notation import read_typed, write_typed

#: What an example does not mention.
BASE: Final = SinkRecord("orders", 0, 5, None, timestamp=1483425001864)
NONE: Final = "none"
UNCHANGED: Final = "unchanged"
DROPPED: Final = "dropped"
_ERROR: Final = re.compile(r"\w+Exception: ")
_LINE_LENGTH: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TransformExample:
    """Records before and after a chain.

    Attributes:
        of: The class it is for, by its simple name without ``$Key`` or ``$Value``.
        title: What it shows.
        config: The part of a connector's configuration.
        given: Records, with an empty line between two.
        result: What becomes of them: for each the parts that changed, ``unchanged``, ``dropped``, or the error.
    """

    of: str
    title: str
    config: str
    given: str
    result: str

    @property
    def properties(self) -> dict[str, str]:
        """The configuration, parsed."""
        return parse_properties(self.config)

    def records(self) -> list[SinkRecord]:
        """The records that are given."""
        return [read_record(one) for one in self.given.split("\n\n")]


@dataclass(frozen=True)
class ConverterExample:
    """A value, the message a converter makes of it, and what it reads from that.

    Attributes:
        of: The class it is for.
        title: What it shows.
        config: The part of a connector's configuration.
        message: The bytes: text, ``0x`` and hexadecimal digits, or ``null``; or the error of writing them.
        value: What is written; None = nothing is, the message is only read.
        read: What is read, or the error; None = the value that was written.
    """

    of: str
    title: str
    config: str
    message: str
    value: str | None = None
    read: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The configuration, parsed."""
        return parse_properties(self.config)

    @property
    def fails(self) -> bool:
        """True if the value cannot be written."""
        return _ERROR.match(self.message) is not None

    @property
    def fails_to_read(self) -> bool:
        """True if the message cannot be read."""
        return _ERROR.match(self.read or "") is not None


def transform_examples() -> list[TransformExample]:
    """The examples of transforms and predicates, in the order of the file."""
    return [TransformExample(**one) for one in _tables("transform_examples.toml")]


def converter_examples() -> list[ConverterExample]:
    """The examples of converters and header converters, in the order of the file."""
    return [ConverterExample(**one) for one in _tables("converter_examples.toml")]


def _tables(file: str) -> list[dict[str, Any]]:
    text = resources.files(__package__).joinpath(file).read_text("utf-8")
    return [{name: value.strip("\n") for name, value in one.items()} for one in tomllib.loads(text)["example"]]


# ---------------------------------------------------------------------------------------------------------- records
def read_record(text: str) -> SinkRecord:
    """The record that lines such as ``topic: t`` and ``value: {"id": 7} as {id: int32}`` write.

    Raises:
        ValueError: A line is none of these.
    """
    parts: dict[str, Any] = {}
    headers: list[Header] = []
    for line in _lines(text):
        name, _, rest = line.partition(":")
        match name.split():
            case ["topic"]:
                parts["topic"] = rest.strip()
            case ["timestamp"]:
                parts["timestamp"] = None if rest.strip() == NONE else _millis(rest.strip())
            case ["partition" | "offset"]:
                parts[name] = int(rest)
            case ["key" | "value"]:
                parts[f"{name}_schema"], parts[name] = read_typed(rest)
            case ["header", key]:
                schema, value = read_typed(rest)
                headers.append(Header(key, value, schema))
            case _:
                raise ValueError(f"no part of a record: {line!r}")
    return SinkRecord(
        parts.get("topic", BASE.topic),
        parts.get("partition", BASE.kafka_partition),
        parts.get("offset", BASE.kafka_offset),
        parts.get("value"),
        value_schema=parts.get("value_schema"),
        key=parts.get("key"),
        key_schema=parts.get("key_schema"),
        timestamp=parts.get("timestamp", BASE.timestamp),
        headers=ConnectHeaders(headers) if headers else None,
    )


def _lines(text: str) -> Sequence[str]:
    """Lines; one that is indented belongs to the one before it."""
    return textwrap.dedent(text).replace("\n ", " ").splitlines()


def write_record(record: ConnectRecord, given: ConnectRecord) -> str:
    """The parts of a record in which it differs from the one that was given."""
    before, after = _parts(given), _parts(record)
    lines = [line for name, text in after.items() if before.get(name) != text for line in text]
    lines += [f"{name.partition(' ')[0]}: {NONE}" for name in before if name not in after]
    return "\n".join(lines) or UNCHANGED


def _parts(record: ConnectRecord) -> dict[str, list[str]]:
    """The lines of each part. A part that is not there has none."""
    parts: dict[str, list[str]] = {"topic": [f"topic: {record.topic}"]}
    if record.kafka_partition is not None:
        parts["partition"] = [f"partition: {record.kafka_partition}"]
    parts["timestamp"] = [f"timestamp: {NONE if record.timestamp is None else _iso(record.timestamp)}"]
    for name, schema, value in (
        ("key", record.key_schema, record.key),
        ("value", record.value_schema, record.value),
    ):
        parts[name] = [_line(name, write_typed(schema, value))]
    headers = [_line(f"header {one.key}", write_typed(one.schema, one.value)) for one in record.headers]
    if headers:
        parts["headers"] = headers
    return parts


def _line(name: str, texts: Sequence[str]) -> str:
    line = f"{name}: {' '.join(texts)}"
    return line if len(line) <= _LINE_LENGTH else f"{name}: " + "\n    ".join(texts)


def _millis(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


def _iso(millis: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=millis)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --------------------------------------------------------------------------------------------------------- messages
def read_message(text: str) -> bytes | None:
    """The bytes of a message as an example writes it."""
    if text == "null":
        return None
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode("utf-8")


def write_message(data: bytes | None) -> str:
    """A message as an example writes it."""
    if data is None:
        return "null"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() and json.dumps(text) != "null" else f"0x{data.hex()}"
