"""The cases of `bin/bench smt` and what is made of its figures."""

from __future__ import annotations

import json

from benchmarks.smt.cases import Data, Kind, converter_cases, messages, transform_cases
from benchmarks.smt.command import missed_targets
from benchmarks.workloads import ALL_SETS

from penstock.plugins import PluginKind
from penstock.plugins.stock import STOCK


def test_every_stock_transform_and_converter_of_java_is_measured() -> None:
    measured = {link.java for case in (*transform_cases(), *converter_cases()) for link in case.links}
    kinds = (PluginKind.TRANSFORMATION, PluginKind.CONVERTER)
    java = {one.name for one in STOCK if one.kind in kinds and one.name.startswith("org.apache.kafka")}

    # Key forms are the same steps on the other side.
    assert {name for name in java if not name.endswith("$Key")} <= measured


def test_messages_hold_what_their_schema_says() -> None:
    for data in Data:
        typed, plain = (next(iter(messages(data, typed=form, count=1))) for form in (True, False))
        message = json.loads(typed)

        assert message["payload"] == json.loads(plain)
        if message["schema"]["type"] == "struct":
            assert [field["field"] for field in message["schema"]["fields"]] == list(message["payload"])


def test_a_chain_may_cost_as_much_as_its_steps() -> None:
    cases = [
        {"name": "one", "form": "typed", "steps": 1, "cost_us": 3.1},
        {"name": "five", "form": "typed", "steps": 5, "cost_us": 14.9},
        {"name": "converter", "form": "typed", "steps": 1, "cost_us": None},
    ]

    assert missed_targets({"cases": cases}) == ["one, typed: 3.1 us a record (at most 3.0)"]


def test_slow_batches_and_slow_python_are_told() -> None:
    report = {"fifty schemas": {"middle_ms": 501.0}, "transform in Python": {"alone": {"rate": 99_000.0}}}

    assert len(missed_targets(report)) == 2


def test_both_directions_of_the_chain_of_five_are_workloads() -> None:
    names = [workload.name for workload in ALL_SETS["smt"] if "chain of five" in workload.name]

    assert {name.partition(" ")[0] for name in names} == {"file", "topic"}
    assert {case.kind for case in transform_cases()} == {Kind.CHAIN}
