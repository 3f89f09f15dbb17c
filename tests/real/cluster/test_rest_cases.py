"""What Java Kafka Connect answered over REST, asked of the leader of a group and of a worker that passes it on."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.processes.worker_group import WorkerGroup
from tests.real.rest.exchanges import check, play

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_the_recorded_exchanges_with_java_are_the_same_with_the_leader_and_a_follower(
    awake_group: WorkerGroup, tmp_path: Path
) -> None:
    for found in play([awake_group.leader(), awake_group.followers()[0]], tmp_path):
        check(found)
