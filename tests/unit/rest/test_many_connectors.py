"""What requests cost on a worker with many connectors, one of which blocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

CONNECTORS = 200
ALL = "/connectors?expand=status&expand=info"


@pytest.mark.slow
def test_with_two_hundred_connectors_requests_are_quick_also_while_one_blocks_in_start() -> None:
    with serving() as api:
        for number in range(CONNECTORS):
            assert api.create(f"c{number}")[0] == 201
        await_true(lambda: running(api) == CONNECTORS, lambda: f"{running(api)} of {CONNECTORS} run")
        new = iter(range(CONNECTORS, 10_000))

        def create() -> None:
            name = f"c{next(new)}"
            assert api.create(name)[0] == 201
            await_true(lambda: api.call("GET", f"/connectors/{name}/status")[1]["tasks"][0]["state"] == "RUNNING")

        def quick() -> None:
            # Alone it takes a fortieth of that: other tests run beside this one.
            assert slowest_but_5_percent(lambda: api.call("GET", ALL), 2) < 2
            assert slowest_but_5_percent(create, 5) < 5

        quick()
        BOARD.block["blocked", "start"] = leave = threading.Event()
        waiting = api.setup.herder.put_connector("blocked", {"connector.class": SOURCE})
        await_true(lambda: "start" in BOARD.of("blocked"))
        quick()
        assert not waiting.done()
        leave.set()


def running(api: Api) -> int:
    """How many connectors run with all of their tasks."""
    found = [one["status"] for one in api.call("GET", ALL)[1].values() if "status" in one]
    return sum({one["connector"]["state"], *(task["state"] for task in one["tasks"])} == {"RUNNING"} for one in found)


def slowest_but_5_percent(request: Callable[[], object], limit_s: float) -> float:
    """The 95th percentile of 20 requests in seconds; of a second series where the machine did something else."""
    best = float("inf")
    for _ in range(2):
        took = []
        for _ in range(20):
            began = time.monotonic()
            request()
            took.append(time.monotonic() - began)
        best = min(best, sorted(took)[18])
        if best < limit_s:
            break
    return best
