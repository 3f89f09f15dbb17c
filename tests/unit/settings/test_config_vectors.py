"""Recorded behaviour of Kafka Connect's configuration classes, run against ours, messages included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.vectors.config_kind import run_config_vector

from penstock.plugins import Plugins

VECTORS = Path(__file__).parents[2] / "data" / "vectors"


def _load() -> list[dict[str, Any]]:
    files = sorted(VECTORS.glob("visible*.jsonl"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [vector for vector in map(json.loads, lines) if vector["kind"] == "config"]


LOADED = _load()
PLUGINS = Plugins.discover(())


def test_the_vectors_are_there() -> None:
    assert len(LOADED) == 290


@pytest.mark.parametrize("vector", LOADED, ids=lambda vector: vector["id"])
def test_a_recorded_configuration_has_the_recorded_outcome(vector: dict[str, Any]) -> None:
    assert run_config_vector(vector, PLUGINS) is None
