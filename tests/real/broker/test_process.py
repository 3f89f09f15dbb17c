import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest
from click.testing import CliRunner
from testkit.brokers.embedded import freeze, thaw

from penstock.broker import BrokerException, EmbeddedBroker, free_port
from penstock.broker.process import ask_cluster
from penstock.cli.servers import broker as command

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def send(servers: str, topic: str, *values: str) -> None:
    # The topic may be on its way still, and what is sent again must not come behind what was sent after it.
    producer = ck.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def receive(servers: str, topic: str, count: int) -> list[str]:
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    try:
        messages = consumer.consume(count, timeout=30)
    finally:
        consumer.close()
    return [(message.value() or b"").decode() for message in messages]


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_records_survive_a_restart_on_the_same_ports(tmp_path: Path, end: Callable[[EmbeddedBroker], None]) -> None:
    node = EmbeddedBroker(tmp_path / "kafka").start()
    try:
        servers = node.bootstrap_servers
        send(servers, "kept", "one", "two")
        end(node)
        assert not node.is_running

        node.start()
        assert node.bootstrap_servers == servers
        send(servers, "kept", "three")
        assert receive(servers, "kept", 3) == ["one", "two", "three"]
    finally:
        node.stop()


def test_a_frozen_broker_is_silent_until_thawed(broker: EmbeddedBroker) -> None:
    freeze(broker)
    try:
        with pytest.raises(TimeoutError):
            ask_cluster("127.0.0.1", broker.port, 0.5)
    finally:
        thaw(broker)

    assert [found.port for found in ask_cluster("127.0.0.1", broker.port, 20).brokers] == [broker.port]


def test_a_port_that_is_taken_is_reported(tmp_path: Path, broker: EmbeddedBroker) -> None:
    second = EmbeddedBroker(tmp_path / "kafka", port=broker.port, heap="128m")

    with pytest.raises(BrokerException, match=f"cannot listen on 127.0.0.1:{broker.port}: the port is in use"):
        second.start()
    assert not second.is_running


OWNER = """
import sys
from pathlib import Path
from penstock.broker import EmbeddedBroker
node = EmbeddedBroker(Path(sys.argv[1])).start()
print(node.pid, flush=True)
sys.stdin.read()
"""


def test_no_broker_outlives_its_killed_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "kafka")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())

    owner.kill()
    owner.communicate(timeout=10)

    assert owner.returncode == -signal.SIGKILL
    ended = subprocess.run(["timeout", "10", "tail", f"--pid={pid}", "-f", "/dev/null"], check=False)
    assert ended.returncode == 0


def test_the_command_starts_reports_and_stops_a_broker_that_outlives_it(tmp_path: Path) -> None:
    data, port = str(tmp_path / "kafka"), str(free_port())
    runner = CliRunner()

    def run(*arguments: str) -> tuple[int, str]:
        result = runner.invoke(command, [*arguments, "--data-dir", data])
        return result.exit_code, result.output

    assert run("status") == (3, f"no broker runs on {data}\n")
    code, output = run("start", "--port", port)
    try:
        assert code == 0, output
        assert f"Kafka runs at 127.0.0.1:{port}" in output
        assert run("status")[0] == 0
        assert "runs already" in run("start", "--port", port)[1]
        assert "stop it or use another directory" in run("start", "--port", str(free_port()))[1]
        other = runner.invoke(command, ["start", "--port", port, "--data-dir", str(tmp_path / "other")])
        assert other.exit_code == 1
        assert "the port is in use" in other.output
    finally:
        code, output = run("stop")
    assert (code, output) == (0, f"Kafka at 127.0.0.1:{port} stopped\n")
    assert run("status")[0] == 3
    assert run("stop") == (0, f"no broker runs on {data}\n")


def test_two_starts_of_one_object_at_most_make_one_broker(broker: EmbeddedBroker) -> None:
    pid = broker.pid
    starters = [threading.Thread(target=broker.start) for _ in range(2)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(10)

    assert broker.pid == pid
