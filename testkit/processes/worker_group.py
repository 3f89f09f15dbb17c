"""Distributed workers as processes over one broker, for tests that start, stop, kill and freeze them.

Main types: `WorkerGroup`; `GroupWorker`, one of its workers. A unit is named as in logs: ``x`` is a connector, ``x-0``
its first task. Thread: the test's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from testkit.processes.worker_process import WorkerProcess, poll_s

#: What moves is there again after seconds instead of minutes.
QUICK: Final = {
    "heartbeat.interval.ms": "1000",
    "session.timeout.ms": "6000",
    "scheduled.rebalance.max.delay.ms": "0",
}
#: Workers ask for a round with the next heartbeat, which is a second away at most.
_REST_S: Final = 2.5
_SHOWN: Final = 3000
#: Each look asks every worker, some of them twice.
_POLL_S: Final = 0.2


class GroupWorker(WorkerProcess):
    """One worker after another with the same files and address: it comes back as the one that it was.

    Args:
        directory: where its files are.
        bootstrap_servers: Kafka.
        group: the group of workers.
        settings: more worker properties.

    Attributes:
        frozen: whether it was stopped by `freeze`.
    """

    module: ClassVar[str] = "penstock.cli.worker.distributed"

    def __init__(
        self, directory: Path, bootstrap_servers: str, group: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._group = group
        self.frozen = False
        super().__init__(directory, bootstrap_servers, settings)

    def kept(self) -> dict[str, str]:
        """See `WorkerProcess`: a group, and topics that are named after it."""
        topics = {f"{kind}.storage.topic": f"{self._group}-{kind}" for kind in ("config", "offset", "status")}
        partitions = {"offset.storage.partitions": "5", "status.storage.partitions": "2"}
        factors = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
        return {"group.id": self._group, **topics, **partitions, **factors, **QUICK}

    @property
    def worker_id(self) -> str:
        """The worker's id."""
        return f"127.0.0.1:{self.port}"

    @property
    def present(self) -> bool:
        """True if its process runs, and is not frozen."""
        return self.running is not None and self.running.poll() is None and not self.frozen

    def start(self, *, piped: bool = False) -> None:
        """See `WorkerProcess`."""
        super().start(piped=piped)
        self.frozen = False

    def freeze(self) -> None:
        """Stops its process where it is, but not its JVM, as a machine that has no time for it."""
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        self.end(signal.SIGKILL)

    def cluster(self) -> dict[str, Any]:
        """Returns its answer about its group; empty while it does not answer."""
        status, body = self.ask("GET", "/cluster", timeout_s=5)
        return body if status == 200 and isinstance(body, dict) else {}

    def said_since(self, mark: int) -> str:
        """Returns what it has printed since the log had this length."""
        return self.text()[mark:]


class WorkerGroup:
    """Workers that share their work.

    Args:
        directory: for their files, one directory each.
        bootstrap_servers: Kafka.
        settings: more worker properties, of all of them.
        size: how many there are.
        name: of the group; one that no other has when None.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        size: int = 3,
        name: str | None = None,
    ) -> None:
        self.name = name or f"group-{uuid.uuid4().hex[:8]}"
        self.bootstrap_servers = bootstrap_servers
        self.workers = [
            GroupWorker(directory / f"worker-{number}", bootstrap_servers, self.name, settings)
            for number in range(size)
        ]

    def __enter__(self) -> WorkerGroup:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- life
    def start(self) -> None:
        """Starts those that do not run, side by side, and waits until all are in one group."""
        for worker in self.workers:
            if worker.running is None or worker.running.poll() is not None:
                worker.start()
        self.wait_while(self.apart, "the workers are one group", 120)

    def stop(self) -> None:
        """Ends all of them in order, at the same time."""
        present = self.present()
        for worker in present:
            os.kill(worker.pid, signal.SIGTERM)
        assert [worker.wait_ended() for worker in present] == [0] * len(present), self.logs()

    def clean(self) -> None:
        """Brings it back to what it was after its start: every worker runs, and there are no connectors."""
        for worker in self.workers:
            if worker.frozen:
                worker.thaw()
        self.start()
        self.delete(*self.known())

    def close(self) -> None:
        """Ends what still runs."""
        for worker in self.workers:
            worker.close()

    def present(self) -> list[GroupWorker]:
        """Those whose processes run, and are not frozen."""
        return [worker for worker in self.workers if worker.present]

    def logs(self) -> str:
        """The end of each worker's log."""
        return "\n".join(f"--- {worker.worker_id}\n{worker.text()[-_SHOWN:]}" for worker in self.workers)

    def wait(self, holds: Callable[[], object], what: str, timeout_s: float = 120) -> None:
        """Waits for something; fails with the logs when it does not come, or a worker ends by itself."""
        self.wait_while(lambda: "" if holds() else "not seen", what, timeout_s)

    def at_rest(self) -> int:
        """Waits until there was no round for longer than it takes a worker to ask for one; the generation."""
        generation, since_s = self.settled(), time.monotonic()

        def rested() -> bool:
            nonlocal generation, since_s
            if (now := self.settled()) != generation:
                generation, since_s = now, time.monotonic()
            return time.monotonic() - since_s > _REST_S

        self.wait(rested, "there are no more rounds")
        return generation

    def wait_while(self, lacking: Callable[[], str], what: str, timeout_s: float = 120) -> None:
        """As `wait`, for something that says what is lacking; an empty text when nothing is."""
        began, before, pause = time.monotonic(), self.present(), threading.Event()
        while text := lacking():
            for worker in before:
                ended = worker.running.poll() if worker.running else None
                assert ended is None, f"{what}: worker {worker.worker_id} ended with {ended}\n{worker.text()[-_SHOWN:]}"
            waited_s = time.monotonic() - began
            assert waited_s < timeout_s, f"{what}: not within {timeout_s} s: {text}\n{self.logs()}"
            pause.wait(max(_POLL_S, poll_s(waited_s)))

    # ---------------------------------------------------------------- requests
    def ask(self, method: str, path: str, body: object = None, *, worker: GroupWorker | None = None) -> tuple[int, Any]:
        """Status and body, of a worker or the first one that is there."""
        return (worker or self.present()[0]).ask(method, path, body, timeout_s=100)

    def create(self, name: str, config: Mapping[str, str], *, worker: GroupWorker | None = None) -> None:
        """Creates a connector."""
        answer = self.ask("POST", "/connectors", {"name": name, "config": dict(config)}, worker=worker)
        assert answer[0] == 201, answer

    def put(self, name: str, config: Mapping[str, str], *, worker: GroupWorker | None = None) -> None:
        """Changes a connector."""
        answer = self.ask("PUT", f"/connectors/{name}/config", dict(config), worker=worker)
        assert answer[0] == 200, answer

    def bring_to(self, name: str, request: str, *, worker: GroupWorker | None = None) -> None:
        """Asks for a state: ``pause``, ``resume`` or ``stop``."""
        answer = self.ask("PUT", f"/connectors/{name}/{request}", worker=worker)
        assert answer[0] == (204 if request == "stop" else 202), answer

    def delete(self, *names: str) -> None:
        """Deletes connectors, and waits until every worker has forgotten them."""
        for name in names:
            answer = self.ask("DELETE", f"/connectors/{name}")
            assert answer[0] == 204, (name, answer)
        self.wait(lambda: not set(names) & self.known(), f"{names} are gone")

    def known(self) -> set[str]:
        """The connectors that at least one worker knows."""
        return {name for worker in self.present() for name in self._views(worker)}

    def states(self, name: str) -> list[list[str]]:
        """State of a connector, then those of its tasks, as each worker says."""
        return [worker.states(name) for worker in self.present()]

    def wait_states(self, name: str, connector: str, *tasks: str, timeout_s: float = 120) -> None:
        """Waits until every worker says that a connector and its tasks have these states."""
        wanted = [connector, *tasks]

        def lacking() -> str:
            found = self.states(name)
            return "" if all(states == wanted for states in found) else f"{found} instead of {wanted}"

        self.wait_while(lacking, f"states of {name}", timeout_s)

    # ---------------------------------------------------------------- what runs where
    def leader(self) -> GroupWorker:
        """The worker that leads."""
        found = [worker for worker in self.present() if worker.cluster().get("is_leader")]
        assert len(found) == 1, [worker.cluster() for worker in self.present()]
        return found[0]

    def followers(self) -> list[GroupWorker]:
        """The workers that do not lead."""
        leader = self.leader()
        return [worker for worker in self.present() if worker is not leader]

    def where(self) -> dict[str, GroupWorker]:
        """Returns the worker of each unit, by the statuses of the moment."""
        by_id = {worker.worker_id: worker for worker in self.workers}
        found: dict[str, GroupWorker] = {}
        for name, view in self._views(self.present()[0]).items():
            found |= {unit: by_id[status["worker_id"]] for unit, status in _statuses(name, view).items()}
        return found

    def settled(self, *, resting: Sequence[str] = (), timeout_s: float = 120) -> int:
        """Waits until all workers are in one generation, and each unit is given to one of them, evenly, and runs there.

        A connector that was just made has tasks before that.

        Args:
            resting: connectors whose states are not looked at.
            timeout_s: for all of it.

        Returns:
            The generation.
        """
        self.wait_while(lambda: self.unsettled(resting=resting), "the group is settled", timeout_s)
        return int(self.present()[0].cluster()["generation"])

    def unsettled(self, *, resting: Sequence[str] = ()) -> str:
        """Describes what is lacking for that; empty if nothing is."""
        present = self.present()
        places = [worker.cluster() for worker in present]
        if text := _apart(places):
            return text
        given = [_given(place) for place in places]
        for kind in zip(*given, strict=True):
            loads = sorted(map(len, kind))
            if loads[-1] - loads[0] > 1:
                return f"loads {loads}"
        owners: dict[str, str] = {}
        for worker, kinds in zip(present, given, strict=True):
            for unit in (*kinds[0], *kinds[1]):
                if unit in owners:
                    return f"{unit} was given to {owners[unit]} and {worker.worker_id}"
                owners[unit] = worker.worker_id
        return next(filter(None, (self._unlike(worker, owners, resting) for worker in present)), "")

    def apart(self) -> str:
        """Describes what is lacking for all workers to be in one generation; empty if nothing is."""
        return _apart([worker.cluster() for worker in self.present()])

    def _unlike(self, worker: GroupWorker, owners: Mapping[str, str], resting: Sequence[str]) -> str:
        """In what a worker says something else than that just these units run, each where it was given to."""
        known: set[str] = set()
        for name, view in self._views(worker).items():
            units = {name, *(f"{name}-{one['task']}" for one in view["info"]["tasks"])}
            known |= units
            said = {unit: (one["state"], one["worker_id"]) for unit, one in _statuses(name, view).items()}
            if name not in resting and len(units) == 1:
                return f"{name} has no tasks yet"
            if name not in resting and said != {unit: ("RUNNING", owners.get(unit)) for unit in units}:
                return f"{worker.worker_id} says {said}, given are { ({unit: owners.get(unit) for unit in units}) }"
        return "" if known == owners.keys() else f"{worker.worker_id} knows {known}, given are {sorted(owners)}"

    @staticmethod
    def _views(worker: GroupWorker) -> dict[str, Any]:
        found = worker.ask("GET", "/connectors?expand=info&expand=status")[1]
        return found if isinstance(found, dict) else {}


def _apart(places: Sequence[Mapping[str, Any]]) -> str:
    if not all(places) or len({place["generation"] for place in places}) > 1:
        return f"generations {[place.get('generation') for place in places]}"
    leaders = [place for place in places if place["is_leader"]]
    if len(leaders) != 1 or len(leaders[0]["members"]) != len(places):
        return f"{len(leaders)} leaders, members {[place.get('members') for place in leaders]}"
    return "another round is planned" if any(place["next_rebalance_in_ms"] for place in places) else ""


def _given(place: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The connectors, and the tasks, that a worker was given."""
    return place.get("connectors", []), [f"{one['connector']}-{one['task']}" for one in place.get("tasks", ())]


def _statuses(name: str, view: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The statuses of a connector and its tasks, by unit."""
    status = view.get("status")
    if not status:
        return {}
    return {name: status["connector"], **{f"{name}-{task['id']}": task for task in status["tasks"]}}
