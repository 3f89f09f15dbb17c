"""Recorded behaviour of Kafka Connect's configuration classes, run against ours, messages included."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.plugins import Plugins
from penstock.plugins.stock import STOCK
from penstock.testing.vectors.config_kind import NOT_BUILT, run_config_vector

VECTORS = Path(__file__).parents[2] / "data" / "vectors"
# Vectors about classes of later issues; every other vector must pass.
LATER = (
    "Cast",
    "ExtractField",
    "Filter",
    "Flatten",
    "HeaderFrom",
    "InsertHeader",
    "ReplaceField",
    "TimestampConverter",
    "TimestampRouter",
    "ValueToKey",
    "HasHeaderKey",
    "BooleanConverter",
    "LongConverter",
)


def _load() -> list[dict[str, Any]]:
    files = sorted(VECTORS.glob("visible*.jsonl"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [vector for vector in map(json.loads, lines) if vector["kind"] == "config"]


def _is_there(reason: str) -> bool:
    """If the module of a stock plugin is there, so that not finding its class is a fault; plugins' tests want each."""
    java_name = reason.rpartition(" ")[2]
    targets = [plugin.target for plugin in STOCK if plugin.name == java_name]
    return any(importlib.util.find_spec(target.partition(":")[0]) is not None for target in targets)


LOADED = _load()
PLUGINS = Plugins.discover(())


def test_the_vectors_are_there() -> None:
    assert len(LOADED) == 290


@pytest.mark.parametrize("vector", LOADED, ids=lambda vector: vector["id"])
def test_a_recorded_configuration_has_the_recorded_outcome(vector: dict[str, Any]) -> None:
    reason = run_config_vector(vector, PLUGINS)
    if reason is not None and reason.startswith(NOT_BUILT):
        assert any(f".{name}" in reason for name in LATER) or not _is_there(reason), reason
    else:
        assert reason is None, reason
