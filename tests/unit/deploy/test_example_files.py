"""The workers' files in ``config/`` are ones to begin with: everything in them is read, also what is commented out."""

from __future__ import annotations

import re

import pytest
from tests.unit.docs.pages import ROOT

from penstock.config import parse_properties
from penstock.plugins import Plugins
from penstock.settings import DistributedSettings, StandaloneSettings, WorkerSettings
from penstock.validation.settings import worker_warnings

#: A comment that is a setting, turned off.
OFF = re.compile(r"^#(?=[a-z][a-z.]+=)", re.M)
MODES = [("standalone", StandaloneSettings), ("distributed", DistributedSettings)]


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_a_worker_starts_with_the_file(name: str, mode: type[WorkerSettings]) -> None:
    text = (ROOT / f"config/connect-{name}.properties").read_text(encoding="utf-8")
    for content in (text, OFF.sub("", text)):
        raw = parse_properties(content)

        mode.parse(raw)
        assert worker_warnings(raw, Plugins()) == []


def test_the_file_of_a_cluster_names_the_group_and_its_topics() -> None:
    raw = parse_properties((ROOT / "config/connect-distributed.properties").read_text(encoding="utf-8"))

    assert DistributedSettings.parse(raw).defaulted == ()
