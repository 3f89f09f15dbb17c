"""Requests of the hostile suite, asked of the leader of a group and of the worker that passes them on to it.

All of them are asked of one worker in ``tests/unit/hostile/test_java_answers.py``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from differential.hostile_cases import CASES, KEPT, MARK, Answer, Case, ask, prepare
from testkit.processes.worker_group import WorkerGroup
from tests.unit.hostile.native_code import build
from tests.unit.hostile.test_java_answers import faults

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

USERS = {
    user: f"Basic {base64.b64encode(f'{user}:{word}'.encode()).decode()}"
    for user, word in {"admin": "much", "reader": "little"}.items()
}
#: A plugin that lies in the directory of each worker, and says when it is imported.
PLANTED = """
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
class Plugin: ...
"""


@pytest.fixture
def group(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[WorkerGroup]:
    users = tmp_path / "users"
    users.write_text("admin=much\nreader=little\n")
    users.chmod(0o600)
    settings = {"rest.basic.auth.file": str(users), "rest.basic.auth.read.only.users": "reader"}
    made = WorkerGroup(tmp_path / "group", broker.bootstrap_servers, settings, size=2)
    for worker in made.workers:
        worker.headers["Authorization"] = USERS["admin"]
        (worker.directory / "planted.py").write_text(PLANTED)
    with made:
        yield made
        made.stop()


#: One in three, and each that names a library, which a real client would load.
ASKED = [case for number, case in enumerate(CASES) if number % 3 == 0 or "/nowhere/evil.so" in repr(case.body)]


class Asking:
    """Asks the leader, then the follower, each with nothing but the kept connector before."""

    def __init__(self, group: WorkerGroup, library: Path) -> None:
        self._group = group
        self._workers = (group.leader(), *group.followers())
        self._library = str(library)
        self._clean = False

    def answers(self, case: Case) -> list[Answer]:
        found = []
        for worker in self._workers:
            if not self._clean:
                self._prepare(worker.port)
            answer = ask(worker.port, self._loading(case), USERS)
            self._clean = case.method == "GET" or answer.status >= 400 or case.path.endswith("/validate")
            found.append(answer)
        return found

    def _prepare(self, port: int) -> None:
        # A worker may not have read yet what another one has made.
        self._group.wait(
            lambda: prepare(port, USERS).status in (200, 201, 204) and self._group.known() == {KEPT},
            "only the kept connector is there",
        )

    def _loading(self, case: Case) -> Case:
        """The same with a library that there is."""
        if not isinstance(case.body, dict):
            return case
        return replace(case, body=json.loads(json.dumps(case.body).replace("/nowhere/evil.so", self._library)))


def test_leader_and_follower_refuse_the_same_and_nothing_runs(group: WorkerGroup, tmp_path: Path) -> None:
    native = build(tmp_path)
    pids = [worker.pid for worker in group.workers]
    asking = Asking(group, native.library)
    wrong: list[str] = []
    for case in ASKED:
        led, followed = asking.answers(case)
        wrong += [*faults(case, led), *faults(case, followed)]
        if (led.status, led.message, led.wrong) != (followed.status, followed.message, followed.wrong):
            wrong.append(f"{case.name}: {led.status} {led.message} but {followed.status} {followed.message}")
    assert wrong == []
    assert [worker.pid for worker in group.present()] == pids
    assert not native.was_loaded()
    assert [path for worker in group.workers for path in worker.directory.glob("*.ran")] == []
    for worker in group.workers:
        assert str(native.library) not in Path(f"/proc/{worker.pid}/maps").read_text(encoding="utf-8")
        assert MARK not in worker.text()
        assert "Spark session 2" not in worker.text()
