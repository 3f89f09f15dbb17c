"""A worker whose Kafka encrypts and asks who is there: source, sink and dead letters, while sessions end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

TLS = Path(__file__).parents[2] / "data" / "tls"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENER = {
    "sasl.enabled.mechanisms": "PLAIN",
    "plain.sasl.jaas.config": f'{PLAIN} required user_me="secret";',
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": str(TLS / "server.p12"),
    "ssl.keystore.password": "storepass",
    "ssl.key.password": "storepass",
}
CLIENT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} required username="me" password="secret";',
    "ssl.truststore.location": str(TLS / "trust.jks"),
    "ssl.truststore.password": "storepass",
}
#: The same, where a session has to be renewed every two seconds.
SHORT_SESSIONS = {**LISTENER, "plain.connections.max.reauth.ms": "2000"}
#: The settings of a worker whose own clients, and those of all its connectors, log in there.
SECURED_WORKER = {
    f"{kind}{key}": text for kind in ("", "producer.", "consumer.", "admin.") for key, text in CLIENT.items()
}
FILE = "org.apache.kafka.connect.file.FileStream"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "kafka", listeners={"SASL_SSL": SHORT_SESSIONS}) as made:
        yield made


def test_lines_and_dead_letters_pass_while_sessions_end(broker: EmbeddedBroker, tmp_path: Path) -> None:
    source, sink, letters = (tmp_path / name for name in ("source.txt", "sink.txt", "letters.txt"))
    worker = WorkerProcess(tmp_path / "worker", broker.bootstrap_of("SASL_SSL"), SECURED_WORKER)
    lines = [f'{{"number": {number}}}' if number % 10 else f"line {number}" for number in range(1000)]
    sinks = {"connector.class": f"{FILE}SinkConnector", "tasks.max": "1"}
    json = "org.apache.kafka.connect.json.JsonConverter"
    worker.add(
        "source.properties",
        {"name": "source", "connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": "lines"},
    )
    worker.add(
        "sink.properties",
        {
            "name": "sink",
            **sinks,
            "topics": "lines",
            "file": str(sink),
            "value.converter": json,
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "letters",
            "errors.deadletterqueue.topic.replication.factor": "1",
        },
    )
    worker.add("letters.properties", {"name": "letters", **sinks, "topics": "letters", "file": str(letters)})
    source.touch()
    worker.start()
    try:
        with source.open("a", encoding="utf-8") as out:
            for first in range(0, 1000, 100):
                out.write("".join(f"{line}\n" for line in lines[first : first + 100]))
                out.flush()
                threading.Event().wait(0.7)

        def written(path: Path) -> list[str]:
            return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

        worker.wait(lambda: len(written(sink)) >= 900 and len(written(letters)) >= 100, "all arrive", timeout_s=150)
        assert sorted(written(letters)) == sorted(line for line in lines if line.startswith("line"))
        assert len(written(sink)) == 900
        assert worker.end() == 0, worker.text()[-3000:]
    finally:
        worker.close()
    assert "secret" not in worker.text()
