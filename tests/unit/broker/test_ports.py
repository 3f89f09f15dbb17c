import socket

import pytest

from penstock.broker import free_ports
from penstock.broker import jars as ports
from penstock.broker.jars import is_free, port_candidates


def test_a_port_with_a_server_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        assert not is_free(port)
    assert is_free(port)


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(20))) == 20


def test_no_outgoing_connection_gets_a_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_given_to_connections", lambda: (32768, 60999))

    assert all(10_000 <= port < 32768 for port in free_ports(20))


def test_a_process_is_given_no_port_twice() -> None:
    found = [free_ports(1)[0] for _ in range(200)]
    assert len(set(found)) == 200


def test_ports_that_are_taken_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken, free) = free_ports(2)
    monkeypatch.setattr(ports, "_given_before", set())
    monkeypatch.setattr(ports, "port_candidates", lambda given: [taken, free])

    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [free]


@pytest.mark.parametrize("given", [None, (1024, 65535), (10_500, 65_000)])
def test_the_system_chooses_where_it_leaves_no_range(
    monkeypatch: pytest.MonkeyPatch, given: tuple[int, int] | None
) -> None:
    assert not port_candidates(given)
    monkeypatch.setattr(ports, "_given_to_connections", lambda: given)

    assert is_free(free_ports(1)[0])
