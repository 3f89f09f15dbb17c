"""An explanation on one worker of what others run."""

import json

import pytest
from tests.unit.rest.api_client import serving

from penstock.model import ConnectorTaskId, State, TaskStatus
from penstock.rest.services import UnreachableWorkerException, WorkerResponse
from penstock.telemetry.metrics import SPARK_RECORDS_TOTAL

OTHER, LOST = "other:8083", "lost:8083"


class Workers:
    """Two other workers, one of which does not answer."""

    def __init__(self):
        self.asked = []

    def ask(self, method, base_url, path, body=b"", headers=None, *, timeout_s=None):
        self.asked.append((method, base_url, path, headers))
        if base_url.endswith(LOST):
            raise UnreachableWorkerException("refused")
        waits = {"reason": "back_pressure", "text": "full"}
        roads = [{"road": "rows", "why": "odd", "records": 4}, {"road": "columns", "why": None, "records": 5}]
        return WorkerResponse(
            200, {}, json.dumps({"tasks": [{"id": 1, "waiting_for": waits}], "roads": roads}).encode()
        )


@pytest.fixture
def workers():
    return Workers()


def test_each_part_comes_from_the_worker_that_runs_it(workers):
    with serving(workers=workers) as api:
        api.create("a", **{"tasks.max": "3"})
        api.setup.await_state("a", "RUNNING", ["RUNNING"] * 3)
        api.setup.metrics.counter(SPARK_RECORDS_TOTAL, connector="a", road="columns", why="").add(1)
        for number, place in ((1, OTHER), (2, LOST)):
            api.setup.statuses.put(TaskStatus(ConnectorTaskId("a", number), State.RUNNING, place))

        _, found = api.call("GET", "/connectors/a/explain")
        reasons = [task["waiting_for"]["reason"] for task in found["tasks"]]
        assert reasons[1:] == ["back_pressure", "worker_away"]
        assert found["tasks"][2]["waiting_for"]["cause"] == f"{LOST}: refused"
        assert found["roads"] == [
            {"road": "columns", "why": None, "records": 6},
            {"road": "rows", "why": "odd", "records": 4},
        ]
        assert sorted(workers.asked) == [
            ("GET", f"http://{place}", "/connectors/a/explain?forward=false", {}) for place in (LOST, OTHER)
        ]

        workers.asked.clear()
        api.call("GET", "/connectors/a/explain?forward=false")
        assert workers.asked == []
