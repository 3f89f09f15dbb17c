"""A real worker is asked to load a library with a client setting: over REST, under each override policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from testkit.processes.worker_process import WorkerProcess
from tests.unit.hostile.native_code import NativeCode, build

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(200)]

_POLICY: Final = "connector.client.config.override.policy"
_LOADING: Final = ("plugin.library.paths", "ssl.engine.location", "ssl.providers")
SOURCE: Final = {"connector.class": "FileStreamSource", "topic": "t", "file": "/nowhere"}
SINK: Final = {"connector.class": "FileStreamSink", "topics": "t", "file": "/tmp/nowhere"}


@pytest.fixture(params=["All", "None", "Principal", "Allowlist"])
def worker(request: pytest.FixtureRequest, tmp_path: Path, broker: EmbeddedBroker) -> Iterator[WorkerProcess]:
    """A running worker of a policy; the allow list names all that loads code."""
    own = {_POLICY: request.param, "connector.client.config.override.allowlist": ",".join(_LOADING)}
    made = WorkerProcess(tmp_path, broker.bootstrap_servers, own)
    made.start()
    yield made
    made.close()


def test_no_request_loads_a_library_into_the_worker(worker: WorkerProcess, tmp_path: Path) -> None:
    native = build(tmp_path)
    with httpx.Client(base_url=f"http://127.0.0.1:{worker.port}", timeout=60) as client:
        worker.wait(lambda: answers(client), "REST")
        for number, (connector, kind) in enumerate(
            (connector, kind) for connector in (SOURCE, SINK) for kind in ("producer", "consumer", "admin")
        ):
            config = {**connector, **{f"{kind}.override.{name}": text(native, name) for name in _LOADING}}
            plugin = f"/connector-plugins/{connector['connector.class']}"
            name = f"c-{number}"
            validated = client.put(f"{plugin}/config/validate", json={"name": name, **config})
            assert validated.status_code == 200
            wrong = {one["value"]["name"] for one in validated.json()["configs"] if one["value"]["errors"]}
            assert wrong == {f"{kind}.override.{setting}" for setting in _LOADING}
            records = [{"topic": "t", "value": "x"}]
            assert client.post(f"{plugin}/preview", json={"config": config, "records": records}).status_code == 400
            assert client.put(f"/connectors/{name}/config", json=config).status_code == 400
            assert client.post("/connectors", json={"name": name, "config": config}).status_code == 400
            assert client.put("/connectors/plain/config", json=connector).status_code in (200, 201)
            patched = client.patch("/connectors/plain/config", json=config)
            assert patched.status_code == 400
            assert "A connector may not set 'plugin.library.paths', whatever the policy" in patched.text
            assert str(native.library) not in Path(f"/proc/{worker.pid}/maps").read_text(encoding="utf-8")
        assert client.get("/connectors").json() == ["plain"]
    assert not native.was_loaded()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/connectors").status_code == 200
    except httpx.TransportError:
        return False


def text(native: NativeCode, setting: str) -> str:
    return (
        f"default,../../../../../..{native.library.with_suffix('')}" if "providers" in setting else str(native.library)
    )
