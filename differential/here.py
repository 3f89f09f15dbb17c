"""The cases through Penstock's pipeline, and how what comes out differs from Java's.

Main type: ``Here``. Thread: one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from conformance.vectors.adapter import base64_text, decode_record
from conformance.vectors.ends import consumed
from conformance.vectors.model import simple_name

from penstock.api import Predicate, SinkRecord, SourceRecord, Transformation
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.pipeline.batch.batches import PipelineSpec, RecordError, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.plugins import PluginKind, Plugins

if TYPE_CHECKING:
    from penstock.data import Schema
    from penstock.pipeline.spark.session import SparkRuntime

_TRANSFORMS: Final = "org.apache.kafka.connect.transforms"

Json = Any


@dataclass(frozen=True)
class Difference:
    """One record that Penstock treats in another way.

    Attributes:
        place: Its place in the batch.
        here, java: What came of it.
    """

    place: int
    here: str
    java: str


@dataclass(frozen=True)
class Here:
    """Runs cases on a started Spark session, with the classes that ``plugins`` finds."""

    runtime: SparkRuntime
    plugins: Plugins

    def differences(self, case: Mapping[str, Json], answer: Mapping[str, Json]) -> Iterator[Difference]:
        """The records of a case that do not come out as Java's."""
        try:
            spec = self._spec(case)
        except Exception as error:
            if "unusable" not in answer:
                yield Difference(-1, f"cannot be configured: {error}", "can")
            return
        if "unusable" in answer:
            yield Difference(-1, "can be configured", f"cannot: {answer['unusable']}")
            return
        try:
            outcomes = self._sink(spec, case, answer) if case["direction"] == "sink" else self._source(spec, case)
        except Exception as error:
            yield Difference(-1, f"the whole batch failed with {type(error).__qualname__}: {error}", "it does not")
            return
        for place, (here, java) in enumerate(zip(outcomes, answer["records"], strict=True)):
            wanted = java["error"]["class"] if "error" in java else java["record"]
            found = simple_name(here.exception_class) if isinstance(here, RecordError) else here
            if not alike(found, wanted):
                yield Difference(place, _told(here), _told(java.get("error", java.get("record"))))

    # ------------------------------------------------------------------ running
    def _spec(self, case: Mapping[str, Json]) -> PipelineSpec:
        sides = []
        for is_key in (True, False):
            converter = JsonConverter()
            converter.configure({"schemas.enable": str(case["schemas"]).lower()}, is_key)
            sides.append(converter)
        stages = [self._stage(str(place), link) for place, link in enumerate(case["chain"])]
        return PipelineSpec(sides[0], sides[1], SimpleHeaderConverter(), stages, "differential")

    def _stage(self, alias: str, link: Mapping[str, Json]) -> TransformStage:
        transform = cast("Transformation", self.plugins.new(PluginKind.TRANSFORMATION, _name("", link)))
        transform.configure(link["config"])
        if "predicate" not in link:
            return TransformStage(alias, transform)
        guard = link["predicate"]
        predicate = cast("Predicate", self.plugins.new(PluginKind.PREDICATE, _name(".predicates", guard)))
        predicate.configure(guard["config"])
        return TransformStage(alias, transform, predicate, link["negate"])

    def _source(self, spec: PipelineSpec, case: Mapping[str, Json]) -> list[Json]:
        records = [cast("SourceRecord", decode_record(one)) for one in case["records"]]
        batch = SourcePipeline(self.runtime, spec).run(records)
        return [
            batch.errors.get(place) or (None if row["dropped"] else _sent(row))
            for place, row in enumerate(batch.table.to_pylist())
        ]

    def _sink(self, spec: PipelineSpec, case: Mapping[str, Json], answer: Mapping[str, Json]) -> list[Json]:
        coordinates = [
            SinkRecord(one["topic"], one["partition"], one["offset"], None, timestamp=one["timestamp"])
            for one in case["records"]
        ]
        messages = answer["messages"]
        keys = [_bytes(one["key"]) for one in messages]
        headers = [[(name, _bytes(data)) for name, data in one["headers"]] for one in messages]
        batch = consumed(coordinates, keys, [_bytes(one["value"]) for one in messages], headers)
        result = SinkPipeline(self.runtime, spec).run(batch)
        kept: Sequence[SinkRecord | None] = result.records or [None] * len(messages)
        return [
            result.errors.get(place) or (None if record is None else _given(record))
            for place, record in enumerate(kept)
        ]


def _name(where: str, link: Mapping[str, Json]) -> str:
    return f"{_TRANSFORMS}{where}.{link['class']}"


def _sent(row: Mapping[str, Json]) -> dict[str, Json]:
    headers = [[one["key"], base64_text(one["value"])] for one in row["headers"] or ()]
    sides = {"key": base64_text(row["key"]), "value": base64_text(row["value"])}
    return {"topic": row["topic"], **sides, "headers": headers}


def _given(record: SinkRecord) -> dict[str, Json]:
    return {
        "topic": record.topic,
        "partition": record.kafka_partition,
        "timestamp": record.timestamp,
        "key": _part(record.key_schema, record.key),
        "value": _part(record.value_schema, record.value),
        "headers": [[one.key, _part(one.schema, one.value)] for one in record.headers],
    }


def _part(schema: Schema | None, value: object) -> str | None:
    whole = JsonConverter()
    whole.configure({"schemas.enable": "true", "replace.null.with.default": "false"}, False)
    try:
        return base64_text(whole.from_connect_data("told", schema, value))
    except Exception as error:
        return f"not to be written: {type(error).__name__}"


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else base64.b64decode(data)


# ------------------------------------------------------------------ comparing
def alike(here: Json, java: Json) -> bool:
    """Equal, but for the order of maps in JSON: Java's is that of a HashMap."""
    if here == java:
        return True
    if isinstance(here, dict) and isinstance(java, dict):
        return here.keys() == java.keys() and all(alike(one, java[name]) for name, one in here.items())
    if isinstance(here, list) and isinstance(java, list):
        return len(here) == len(java) and all(alike(one, other) for one, other in zip(here, java, strict=True))
    if isinstance(here, str) and isinstance(java, str):
        one, other = _readable(here), _readable(java)
        return sorted(one) == sorted(other) and _parsed(one) == _parsed(other)
    return False


def _readable(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "replace")
    except ValueError:
        return data


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _told(outcome: Json) -> str:
    if isinstance(outcome, RecordError):
        return f"{outcome.exception_class}: {outcome.message}"
    if not isinstance(outcome, dict) or "class" in outcome:
        return json.dumps(outcome, ensure_ascii=False)
    texts = {name: _readable(outcome[name]) for name in ("key", "value") if outcome[name] is not None}
    return json.dumps(outcome | texts, ensure_ascii=False)
