import os
import socket
import stat
import struct
import threading
from pathlib import Path

import javaproperties
import pytest

from penstock.broker import free_ports
from penstock.broker.process import (
    BrokerAddress,
    BrokerException,
    BrokerView,
    ask_cluster,
    await_serving,
    new_cluster_id,
    node_properties,
    parse_metadata,
    stored_cluster_id,
    write_configuration,
)

CLUSTER = "cluster-of-the-test"


def metadata(correlation: int = 7, *brokers: tuple[int, str, int]) -> bytes:
    """A Metadata v2 response with these brokers and no topics."""
    body = struct.pack(">ii", correlation, len(brokers))
    for node, host, port in brokers:
        body += struct.pack(">ih", node, len(host)) + host.encode() + struct.pack(">ih", port, -1)
    return body + struct.pack(">h", len(CLUSTER)) + CLUSTER.encode() + struct.pack(">ii", 1, 0)


def answering(answers: list[bytes]) -> int:
    """A server that gives one answer to each connection and then closes; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_the_brokers_of_a_metadata_answer_are_read() -> None:
    assert parse_metadata(metadata(7, (1, "localhost", 9092), (2, "b", 19092))) == BrokerView(
        CLUSTER, (BrokerAddress(1, "localhost", 9092), BrokerAddress(2, "b", 19092))
    )


@pytest.mark.parametrize(
    ("response", "reason"),
    [(metadata(8), "belongs to request 8"), (metadata(7, (1, "h", 1))[:15], "ends too early")],
)
def test_another_answer_is_refused(response: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_metadata(response)


def test_a_peer_that_does_not_speak_kafka_is_told_apart() -> None:
    port = answering([b"HTTP/1.1 400 Bad Request\r\n\r\n"])

    with pytest.raises(ValueError, match=f"127.0.0.1:{port} does not speak Kafka's protocol"):
        ask_cluster("127.0.0.1", port, 5)


def running() -> None:
    return None


def test_waiting_ends_when_the_broker_names_itself() -> None:
    first = answering([framed(metadata(7)), b"", framed(metadata(7, (1, "other", 1)))])
    with pytest.raises(BrokerException, match=r"does not serve after 0\.3 s"):
        await_serving("127.0.0.1", first, CLUSTER, 0.3, running, lambda: "the log")

    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    listener.close()

    def serve_later() -> None:
        with socket.create_server(("127.0.0.1", port)) as server:
            for answer in (metadata(7), metadata(7, (1, "127.0.0.1", port))):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(framed(answer))

    server = threading.Thread(target=serve_later)
    server.start()
    await_serving("127.0.0.1", port, CLUSTER, 10, running, lambda: "")
    server.join(10)


def test_a_stranger_on_the_port_does_not_count() -> None:
    port = answering([framed(metadata(7, (1, "127.0.0.1", 1)))])

    with pytest.raises(BrokerException, match="another cluster answers there"):
        await_serving("127.0.0.1", port, "mine", 0, running, lambda: "")


def test_a_broker_that_ends_or_is_silent_is_reported_with_its_log() -> None:
    (port,) = free_ports(1)
    with pytest.raises(BrokerException, match=r"(?s)ended with exit code 3:.*out of disk"):
        await_serving("127.0.0.1", port, CLUSTER, 5, lambda: 3, lambda: "out of disk")
    with pytest.raises(BrokerException, match=r"(?s)does not serve after 0 s \(.*refused.*\):.*the log"):
        await_serving("127.0.0.1", port, CLUSTER, 0, running, lambda: "the log")


def test_a_node_is_broker_and_controller_and_overrides_win(tmp_path: Path) -> None:
    properties = node_properties(tmp_path, "127.0.0.1", 9092, 9093, {"num.partitions": "4"})

    assert properties["process.roles"] == "broker,controller"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert properties["auto.create.topics.enable"] == "true"
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["num.partitions"] == "4"


def test_the_configuration_reads_back_as_it_was_meant(tmp_path: Path) -> None:
    directory = tmp_path / "a b\\c"

    path = write_configuration(directory, {"log.dirs": str(directory / "log"), "x": "1"})

    with path.open(encoding="utf-8") as file:
        assert javaproperties.load(file) == {"log.dirs": str(directory / "log"), "x": "1"}
    with (directory / "log4j2.properties").open(encoding="utf-8") as file:
        logging = javaproperties.load(file)
    assert logging["appender.file.fileName"] == str(directory / "server.log")
    assert logging["rootLogger.level"] == "INFO"


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(BrokerException, match="file/data cannot be written to: Not a directory; choose another"):
        write_configuration(tmp_path / "file" / "data", {})


def test_storage_belongs_to_a_cluster_once_it_is_formatted(tmp_path: Path) -> None:
    properties = {"log.dirs": str(tmp_path)}
    assert stored_cluster_id(properties) is None

    (tmp_path / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\n", encoding="utf-8")
    assert stored_cluster_id(properties) == "abc"

    (tmp_path / "meta.properties").write_text("", encoding="utf-8")
    with pytest.raises(BrokerException, match="names no cluster"):
        stored_cluster_id(properties)


def test_cluster_ids_have_kafkas_form_and_differ() -> None:
    ids = {new_cluster_id() for _ in range(200)}

    assert len(ids) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_the_directory_of_a_node_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_configuration(tmp_path / "node", {})
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "node").stat().st_mode) == 0o700
