"""The short form of ``bin/chaos --distributed``: faults at random in a group of workers and its broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.chaos.distributed import GroupChaos, Kind, plan

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

#: In these seconds of this seed every kind of fault comes, and the last one has ended soon after them.
SECONDS = 27
SEED = 2261066


def test_scenarios_58_and_78_every_line_arrives_and_all_runs_again_whatever_happens_to_workers_and_broker(
    tmp_path: Path,
) -> None:
    # A broker of its own: it is killed and frozen.
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        faults = plan(SEED, SECONDS)
        assert {fault.kind for fault in faults} == set(Kind)
        GroupChaos(tmp_path, broker, lines_at_once=20).run(faults)
