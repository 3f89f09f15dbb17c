"""Cases of clients of the REST API that are slow, loud or broken.

Thread: the test's.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final

from tools.chaos.stage import Peak, Stage

_SLOW: Final = 1_000
_BODY: Final = 100_000_000
_LINE: Final = 1_000_000
_HEAD: Final = b"%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_CHUNK: Final = b"x" * 65_536


def hostile_clients(stage: Stage) -> None:
    """A thousand slow connections, bodies of 100 MB, request lines and headers of 1 MB, while others are served."""
    with ExitStack() as slow, Peak(stage.worker.pid) as peak, ThreadPoolExecutor(4) as pool:
        for number in range(_SLOW):
            client = slow.enter_context(_connection(stage))
            client.sendall(b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{"[: 10 + number % 70])
        loud = [
            pool.submit(_send, stage, head, _BODY)
            for head in (
                b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % _BODY,
                b"PUT /connectors/x/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n",
            )
            for _ in range(3)
        ]
        loud += [
            pool.submit(_send, stage, head, 0)
            for head in (
                b"GET /" + b"x" * _LINE + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * _LINE + b"\r\n\r\n",
                b"GET /connectors?" + b"a=b&" * (_LINE // 4) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            )
        ]
        answered = []
        while not all(one.done() for one in loud):
            began = time.monotonic()
            assert stage.worker.ask("GET", "/health")[0] == 200
            answered.append(time.monotonic() - began)
            threading.Event().wait(0.05)
        statuses = {one.result() for one in loud}
        assert statuses <= {400, 413, 414, 431}, statuses
        assert max(answered) < 3, f"{max(answered):.1f} s"
        stage.goes_on()
    assert peak.added_mb < 200, f"{peak.added_mb:.0f} MB"


def _connection(stage: Stage) -> socket.socket:
    return socket.create_connection(("127.0.0.1", stage.worker.port), timeout=60)


def _send(stage: Stage, head: bytes, body: int) -> int:
    """The status that a request is answered with; a refused one may be answered before all of it is sent."""
    with _connection(stage) as client:
        with suppress(ConnectionError):
            client.sendall(head)
            for _ in range(body // len(_CHUNK)):
                client.sendall(b"10000\r\n%s\r\n" % _CHUNK if b"chunked" in head else _CHUNK)
        answer = b""
        with suppress(ConnectionError):
            while b"\r\n" not in answer and (more := client.recv(4096)):
                answer += more
    return int(answer.split(b" ", 2)[1]) if answer else 0
