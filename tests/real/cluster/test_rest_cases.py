"""What Java Kafka Connect answered over REST, asked of a worker that passes it on to the leader of its group."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.processes.worker_group import WorkerGroup

from tests.real.rest.exchanges import check, play

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_the_recorded_exchanges_with_java_are_the_same_with_a_follower_and_the_leader_behind_it(
    group: WorkerGroup, tmp_path: Path
) -> None:
    check(play(group.followers()[0], tmp_path, other=group.leader()))
