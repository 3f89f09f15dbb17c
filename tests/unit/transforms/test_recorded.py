"""What ``apply`` of each stock transform, and ``test`` of each predicate, makes of what was recorded in Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from conformance.vectors.adapter import decode_record, encode_record
from conformance.vectors.compare import judge
from conformance.vectors.deviations import load_deviations
from conformance.vectors.model import Failure, Outcome, Success, Vector, load_vectors, transform_class

from penstock.api import ConnectRecord, Predicate, Transformation
from penstock.plugins import PluginKind, Plugins

CLASSES = "org.apache.kafka.connect.transforms"
PLUGINS = Plugins.discover()
VECTORS = [
    vector
    for path in sorted((Path(__file__).parents[2] / "data" / "vectors").glob("*.jsonl"))
    for vector in load_vectors(path)
    if vector.kind in ("transform", "predicate")
]


@pytest.mark.parametrize("cls", sorted({vector.cls for vector in VECTORS}))
def test_a_record_becomes_what_it_becomes_in_java(cls: str) -> None:
    verdicts = [judge(vector, outcome_of(vector)) for vector in VECTORS if vector.cls == cls]

    deviations = load_deviations()
    failed = [one for one in verdicts if not one.passed and not any(rule.covers(one) for rule in deviations)]
    assert [f"{one.vector.id}: {one.reason}" for one in failed] == []


def outcome_of(vector: Vector) -> Outcome:
    """What a class makes of a vector's record."""
    of_predicates = vector.kind == "predicate"
    kind = PluginKind.PREDICATE if of_predicates else PluginKind.TRANSFORMATION
    name = f"{CLASSES}.predicates.{vector.cls}" if of_predicates else transform_class(vector.cls)
    made = cast("Any", PLUGINS.new(kind, name))
    try:
        made.configure(vector.config)
    except Exception as error:
        return Failure.of("configure", error)
    if vector.input is None:
        return Success({"configured": True})
    try:
        return asked(made, vector) if of_predicates else applied(made, vector)
    except Exception as error:
        return Failure.of("apply", error)


def applied(transform: Transformation, vector: Vector) -> Outcome:
    record: ConnectRecord | None = transform.apply(decode_record(vector.input))
    return Success({"record": None if record is None else encode_record(record)})


def asked(predicate: Predicate, vector: Vector) -> Outcome:
    test = predicate.test(decode_record(vector.input["record"]))
    return Success({"applied": test is not vector.input["negate"], "test": test})
