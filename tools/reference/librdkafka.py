"""Writes the names that librdkafka has for settings, from the list that the installed library gives of itself.

Main function: ``properties``, which reads that list. Run ``python -m tools.reference.librdkafka
src/penstock/kafka/settings/librdkafka.txt`` to write it again.

The list is read from the library, and no client is made. Names that librdkafka has for its own tests are not in it.

Thread: pure functions, but for the command and the call of the library.
Source: rd_kafka_conf_properties_show of librdkafka.
"""

from __future__ import annotations

import ctypes
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import confluent_kafka

_ROW: Final = re.compile(r"^(\S+) +\| +([CP*]) +\| (.*?) \| (.*?) \| +\w+ +\| (.*)$")
_TYPE: Final = re.compile(r"\*Type: ([^*]+)\*$")
_RANGE: Final = re.compile(r"(-?\d+) \.\. (-?\d+)")
#: librdkafka's words for types, and those of the table. What has a function of its own takes no text.
_TYPES: Final = {
    "integer": "integer",
    "float": "number",
    "boolean": "boolean",
    "enum value": "choice",
    "string": "text",
    "CSV flags": "text",
    "pattern list": "text",
    "see dedicated API": "code",
}


def library() -> Path:
    """The shared library that the installed confluent-kafka comes with."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    return next(iter(sorted(folder.glob("librdkafka-*.so*"))))


def properties() -> list[str]:
    """One row for each setting of the installed library, by name."""
    loaded, system = ctypes.CDLL(str(library())), ctypes.CDLL(None)
    system.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile(suffix=".md") as listed:
        stream = ctypes.c_void_p(system.fopen(listed.name.encode(), b"w"))
        loaded.rd_kafka_conf_properties_show(stream)
        system.fclose(stream)
        text = listed.read().decode("utf-8")
    return rows_of(text.splitlines())


def rows_of(lines: Iterable[str]) -> list[str]:
    """The rows of the table; a name that is listed twice, of the client and of a topic, counts as it stands first.

    >>> rows_of(["acks | P | -1 .. 1000 | -1 | high | How many. <br>*Type: integer*"])
    ['acks P integer -1..1000']
    """
    found: dict[str, str] = {}
    for line in lines:
        row = _ROW.match(line)
        if row is None or row[1] == "Property":
            continue
        name, clients, values, _, description = row.groups()
        kind = _TYPE.search(description)
        if kind is None:
            raise ValueError(f"librdkafka lists {name} without its type")
        word = _TYPES[kind[1]]
        limits = _RANGE.fullmatch(values.strip())
        shown = ""
        if word == "integer" and limits is not None:
            shown = f" {limits[1]}..{limits[2]}"
        elif word == "choice":
            shown = f" {values.strip().replace(', ', ',')}"
        found.setdefault(name, f"{name} {clients} {word}{shown}")
    return [found[name] for name in sorted(found)]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(f"{row}\n" for row in properties()), encoding="utf-8")
