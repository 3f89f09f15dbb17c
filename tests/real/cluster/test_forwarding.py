"""Requests that workers pass on to each other at http and https addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import WorkerGroup

from penstock.broker import EmbeddedBroker, free_port

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

CERTIFICATES = Path(__file__).parents[2] / "data" / "tls"
TLS = {
    "listeners.https.ssl.keystore.type": "PEM",
    "listeners.https.ssl.keystore.location": str(CERTIFICATES / "server.pem"),
    "listeners.https.ssl.truststore.type": "PEM",
    "listeners.https.ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
}


def test_workers_pass_requests_on_to_http_and_https_addresses(
    broker: EmbeddedBroker, probes: Probes, tmp_path: Path
) -> None:
    group = WorkerGroup(tmp_path / "group", broker.bootstrap_servers, TLS, size=2)
    secure, plain = group.workers
    port = free_port()
    listeners = f"http://127.0.0.1:{secure.port},https://127.0.0.1:{port}"
    secure.change({"listeners": listeners, "rest.advertised.listener": "https"})
    with group:
        for name, worker in (("by-secure", secure), ("by-plain", plain)):
            group.create(name, probes.config(4), worker=worker)
            group.wait_states(name, *["RUNNING"] * 5)
        tasks = [(name, task) for name in ("by-secure", "by-plain") for task in range(4)]
        owners = {
            one["worker_id"] for name, _ in tasks for one in group.ask("GET", f"/connectors/{name}/status")[1]["tasks"]
        }
        assert owners == {f"127.0.0.1:{port}", plain.worker_id}
        assert {worker.cluster()["leader"] for worker in group.workers} <= {
            f"https://127.0.0.1:{port}/",
            f"http://{plain.worker_id}/",
        }
        for worker in group.workers:
            for name, task in tasks:
                before = probes.count(f"{name}-{task}", "start")
                assert group.ask("POST", f"/connectors/{name}/tasks/{task}/restart", worker=worker) == (204, None)
                group.wait(lambda: probes.count(f"{name}-{task}", "start") > before, "it was restarted")  # noqa: B023
        assert group.ask("DELETE", "/connectors/by-plain", worker=secure) == (204, None)
        assert group.ask("DELETE", "/connectors/by-secure", worker=plain) == (204, None)
        group.wait(lambda: not group.known(), "every worker has forgotten them")
        group.stop()
