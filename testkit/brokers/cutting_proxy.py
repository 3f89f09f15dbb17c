"""A proxy in front of a broker that cuts connections after so many bytes, or holds back what clients say.

Main type: `CuttingProxy`. TLS handshakes, encrypted records, requests and answers are cut wherever the bytes end. What
is held back reaches the broker later, when its client has long given up: as with a broker that was frozen.

Threads: one that accepts and two for each connection, from `start` to `stop`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Self


class CuttingProxy:
    """Passes bytes on; a context manager.

    Args:
        port: of the broker, on this machine; it may be set later.
        listen: where the proxy listens; a free port when 0.

    Attributes:
        port: Where it listens.
        target: The broker's port.
        cut: How many connections were cut.
    """

    def __init__(self, port: int, listen: int = 0) -> None:
        self.target = port
        self.port = listen
        self._holding = False
        self._held: list[tuple[socket.socket, bytes]] = []
        self.cut = 0
        self._after: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def cut_next(self, *, sent: int = 1 << 60, received: int = 1 << 60) -> None:
        """Cut the next connection that is made, once the client has sent, or received, as many bytes."""
        with self._lock:
            self._after.append((sent, received))

    def forget_cuts(self) -> None:
        """Cut no connection any more that is made from now on."""
        with self._lock:
            self._after.clear()

    def cut_open(self) -> None:
        """Cut all connections that there are."""
        with self._lock:
            for one in self._open:
                _end(one)
            self.cut += len(self._open) // 2

    def hold(self) -> None:
        """Hold back what clients say from now on, on the connections that there are."""
        with self._lock:
            self._holding = True

    def pass_new(self) -> None:
        """Let connections through that are made from now on."""
        with self._lock:
            self._holding = False

    def release(self) -> int:
        """Let the broker have what was held back; how many bytes that is."""
        with self._lock:
            held, self._held = self._held, []
        for to, found in held:
            with contextlib.suppress(OSError):
                to.sendall(found)
        return sum(len(found) for _, found in held)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="cutting-proxy")
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            for one in self._open:
                _end(one)
        for thread in self._threads:
            thread.join()
        # Those of which something was held back.
        for one in self._open:
            one.close()
        self._open = []

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                sent, received = self._after.pop(0) if self._after else (1 << 60, 1 << 60)
                self._open += [client, broker]
            ended = _Ended()
            self._threads = [one for one in self._threads if one.is_alive()]
            for source, to, limit in ((client, broker, sent), (broker, client, received)):
                args = (source, to, limit, source is client, ended)
                thread = threading.Thread(target=self._pass_on, args=args, name="cutting-proxy")
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, to: socket.socket, limit: int, from_client: bool, ended: _Ended) -> None:
        holds = False
        with contextlib.suppress(OSError):
            while limit > 0 and (found := source.recv(min(limit, 1 << 16))):
                with self._lock:
                    holds = holds or (from_client and self._holding)
                    if holds:
                        self._held.append((to, found))
                        continue
                to.sendall(found)
                limit -= len(found)
        if holds:
            # The broker does not learn yet that its client is gone.
            return
        if limit <= 0:
            with self._lock:
                self.cut += 1
        _end(source)
        _end(to)
        with self._lock:
            ended.count += 1
            if ended.count == 2:
                for one in (source, to):
                    self._open.remove(one)
                    one.close()


@dataclass
class _Ended:
    """How many of a connection's two directions have ended."""

    count: int = 0


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
