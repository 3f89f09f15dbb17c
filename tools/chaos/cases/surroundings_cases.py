"""Cases of what a worker stands on: disks that are full, a broker that answers wrongly, a clock that jumps.

Thread: the test's.
"""

from __future__ import annotations

import resource
import threading
from typing import Final

from penstock.broker import EmbeddedBroker
from tools.chaos.proxy import Odd
from tools.chaos.stage import Stage, lasting

#: Source partitions that make the offsets file larger than any other that the worker writes.
_OFFSETS: Final = 5_000
_OFFSETS_LIMIT: Final = 5_000_000


def full_offsets_disk(stage: Stage) -> None:
    """The offsets file cannot be written for a while, as on a full disk."""
    config = {"connector.class": "FileStreamSource", "file": "none", "topic": "none"}
    with stage.connector(config, runs=False) as name:
        path = f"/connectors/{name}"
        ask = stage.worker.ask
        assert ask("PUT", f"{path}/stop")[0] == 204
        stage.worker.wait(lambda: stage.worker.states(name) == ["STOPPED"], "it stops")
        many = [{"partition": {"filename": f"{n:01200}"}, "offset": {"position": n}} for n in range(_OFFSETS)]
        status, answer = ask("PATCH", f"{path}/offsets", {"offsets": many})
        assert status == 200, answer
        known = stage.worker.text().count("could not be written")
        stage.worker.limit_files(_OFFSETS_LIMIT)
        try:
            stage.worker.wait(lambda: stage.worker.text().count("could not be written") > known, "it is full")
            stage.goes_on()
        finally:
            stage.worker.limit_files(-1)
        before = stage.position()
        stage.worker.wait(lambda: stage.position() > before, "offsets are written again", 30)
        assert ask("DELETE", f"{path}/offsets")[0] == 200
    stage.goes_on()


def odd_answers(stage: Stage) -> None:
    """A broker whose answers are malformed, short, cut, endless, late, mixed up, doubled or damaged, by turns."""
    stage.proxy.odd = list(Odd)
    try:
        threading.Event().wait(6)
    finally:
        stage.proxy.odd = ()
    stage.goes_on()


def each_odd_answer(stage: Stage) -> None:
    """The same, one kind after the other, ten seconds each."""
    for odd in Odd:
        stage.proxy.odd = [odd]
        try:
            threading.Event().wait(10)
        finally:
            stage.proxy.odd = ()
        try:
            stage.goes_on()
        except AssertionError as error:
            raise AssertionError(f"{odd.name}: {error}") from error


def full_broker_disk(stage: Stage) -> None:
    """A broker's disk is full, which ends it; with room again it is started, and all goes on."""
    with EmbeddedBroker(stage.directory / "full-broker") as broker, Stage(stage.directory / "full", broker) as own:
        pid = broker.pid
        assert pid is not None
        segment = next((broker.data_dir / "log" / f"{own.flow.topic}-0").glob("*.log"))
        # No file of the broker can grow beyond that, and the flow's grows fastest.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (segment.stat().st_size + 100_000, resource.RLIM_INFINITY))
        own.worker.wait(lambda: not broker.is_running, "the broker ends", 90)
        threading.Event().wait(5)
        assert own.worker.ask("GET", "/health")[0] != 0
        broker.start()
        own.goes_on(timeout_s=180)


def moved_clock(stage: Stage) -> None:
    """The clock of the worker's Python code is an hour ahead for a while, then an hour behind."""
    for fault in ("clock-ahead", "clock-behind"):
        with stage.trouble(fault) as trouble:
            stage.worker.wait(trouble.is_there, "the clock is moved", 30)
            before = stage.position()
            stage.goes_on()
            stage.worker.wait(lambda: stage.position() > before, "offsets are committed", 30)  # noqa: B023
            for _ in lasting(2):
                assert stage.worker.ask("GET", f"/connectors/{stage.flow.sink_name}/explain")[0] == 200
        stage.goes_on()
