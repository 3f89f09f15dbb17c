"""Every quick case of ``bin/chaos``: a fault beside a source and a sink that lose no line, in one worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.chaos.command import QUICK
from tools.chaos.stage import Stage

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stage(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A worker in which lines flow."""
    with Stage(tmp_path_factory.mktemp("chaos"), broker) as made:
        yield made


@pytest.mark.parametrize("name", QUICK)
def test_lines_flow_through_a_worker_that_goes_on(stage: Stage, name: str) -> None:
    QUICK[name](stage)
