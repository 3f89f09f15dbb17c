"""Clients that are slow, broken or gone: nobody else notices, and their connections end."""

from __future__ import annotations

import itertools
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE, running
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serve, serving

from penstock.rest.server import BoundedConnection, Listener, open_listeners


@pytest.mark.slow
def test_a_thousand_slow_and_broken_connections_keep_nobody_from_being_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than anything here: a request that waited for the slow ones would not be answered in its time.
    monkeypatch.setattr(BoundedConnection, "request_timeout_s", 600.0)
    with many_files(), serving() as api, ExitStack() as opened:
        assert api.create("running")[0] == 201
        clients = broken_clients(api, opened)
        assert served(clients[0])
        effort = []
        for name in ("a", "b", "c"):
            began = time.process_time()
            assert api.create(name)[0] == 201
            assert api.call("GET", f"/connectors/{name}/status")[0] == 200
            assert api.call("PUT", f"/connectors/{name}/pause")[0] == 202
            effort.append(time.process_time() - began)
        assert served(clients[0]), "nobody has waited until the slow ones were let go"
        # The processor's time, which does not depend on what else the machine does.
        assert min(effort) < 0.15, f"three requests took {effort} s of the processor"
        assert api.call("GET", "/connectors/running/status")[1]["connector"]["state"] == "RUNNING"


@pytest.mark.slow
def test_a_thousand_connections_without_a_whole_request_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "request_timeout_s", 1.0)
    with many_files(), serving() as api, ExitStack() as opened:
        before = open_sockets()
        for client in broken_clients(api, opened):
            drain(client)
        await_true(lambda: open_sockets() <= before + 1000)


def test_without_file_descriptors_the_log_gets_one_line_and_clients_are_served_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving() as api, ExitStack() as taken:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        client = taken.enter_context(socket.socket())
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 20, hard))
        try:
            with ExitStack() as used_up:
                with suppress(OSError):
                    while True:
                        used_up.callback(os.close, os.open("/dev/null", os.O_RDONLY))
                client.connect(("127.0.0.1", api.http.base_url.port or 0))
                client.sendall(b"GET /connectors HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                await_true(lambda: "The REST server can take no connection" in caplog.text)
                threading.Event().wait(1.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.settimeout(10)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    assert [line for line in caplog.messages if "connection" in line or "resource" in line] == [caplog.messages[0]]


def broken_clients(api: Api, opened: ExitStack) -> list[socket.socket]:
    """A thousand connections that send something broken, or half of a request, or nothing."""
    address = ("127.0.0.1", api.http.base_url.port or 0)
    clients = []
    for number in range(1000):
        clients.append(opened.enter_context(socket.create_connection(address, timeout=20)))
        clients[-1].sendall(BROKEN[number % len(BROKEN)])
    return clients


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_no_part_of_an_answer_waits_for_the_client_to_acknowledge_another(host: str) -> None:
    (listening,) = open_listeners([Listener(host, 0)])
    with listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=20):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_request_to_talk_otherwise_than_with_http_is_answered_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as api, caplog.at_level("WARNING"):
        answer = api.http.get("/connectors", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
        assert (answer.status_code, answer.json()) == (200, [])
    assert caplog.records == []


def test_a_client_that_takes_no_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "answer_timeout_s", 0.2)
    with serving() as api, socket.socket() as client:
        api.create("a", filler="x" * 4_000_000)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", api.http.base_url.port or 0))
        await_true(lambda: served(client))
        client.sendall(b"GET /connectors/a HTTP/1.1\r\nHost: x\r\n\r\n")
        await_true(lambda: not served(client))


def test_a_request_that_comes_drop_by_drop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "request_timeout_s", 0.3)
    with serving() as api:
        for first in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", api.http.base_url.port or 0), timeout=0.02) as client:
                client.sendall(first)
                with pytest.raises(ConnectionError):
                    dribble(client)
        monkeypatch.undo()
        assert api.call("GET", "/connectors") == (200, [])


_HEAD = b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BROKEN = (
    _HEAD + b"Content-Length: 100\r\n\r\n{",
    _HEAD,
    b"\x16\x03\x01garbage",
    b"GET / HTTP/none\r\n\r\n",
    b"",
)


@contextmanager
def many_files() -> Iterator[None]:
    """Allows this process a few thousand open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def open_sockets() -> int:
    """How many sockets this process has, client and server side."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def served(client: socket.socket) -> bool:
    """Whether this process still has the server's end of the connection: the system knows it, with an inode."""
    ends = f"{client.getpeername()[1]:04X}", f"{client.getsockname()[1]:04X}"
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return any((row[1][-4:], row[2][-4:]) == ends and row[9] != "0" for row in rows)


def dribble(client: socket.socket) -> None:
    """Sends one header after another, until the server ends the connection."""
    for number in itertools.count():
        client.sendall(b"X-%d: x\r\n" % number)
        with suppress(TimeoutError):
            if not client.recv(65536):
                raise ConnectionResetError


def drain(client: socket.socket) -> None:
    """Reads until the server ends the connection."""
    with suppress(ConnectionError):
        while client.recv(65536):
            pass


def test_a_request_that_the_end_of_the_worker_cuts_off_is_answered_with_an_error_body() -> None:
    with running() as setup:
        server = serve(setup.herder)
        BOARD.block["a", "start"] = leave = threading.Event()
        body = {"name": "a", "config": {"connector.class": SOURCE}}
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(httpx.post, f"http://127.0.0.1:{server.ports[0]}/connectors", json=body, timeout=20)
            await_true(lambda: ("a", "start") in BOARD.calls)
            server.stop()
            assert answer.result().json() == {"error_code": 500, "message": "Worker is shutting down"}
        leave.set()
