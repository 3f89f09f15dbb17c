"""What a member makes of its connections, without brokers."""

from __future__ import annotations

import socket

from penstock.kafka.group.connections import _PlainTransport


def test_what_a_broker_says_just_before_it_closes_is_heard() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    transport = _PlainTransport(None, here)

    with there:
        there.sendall(b"no such mechanism")

    assert transport._sock_recv() == (b"no such mechanism", None)
    data, error = transport._sock_recv()
    assert (data, "disconnected" in str(error)) == (b"", True)
    here.close()
