"""Asking a broker whether it serves, without a Kafka client.

Main function: `ask_cluster`, one Metadata request (version 2, without topics) over a fresh connection.

Source: the Kafka protocol guide, Metadata API key 3.
Thread: any.
"""

import socket
import struct
from typing import NamedTuple

_METADATA = 3
_VERSION = 2
_CORRELATION = 7
_CLIENT_ID = b"penstock-probe"


class BrokerAddress(NamedTuple):
    """A broker as the cluster advertises it."""

    node_id: int
    host: str
    port: int


class ClusterView(NamedTuple):
    """A broker's view of its cluster; no brokers while the node is still being registered."""

    cluster_id: str | None
    brokers: tuple[BrokerAddress, ...]


def ask_cluster(host: str, port: int, timeout_s: float) -> ClusterView:
    """The cluster of the broker at this address, with the brokers that are alive.

    Raises:
        OSError: nobody listens, or the peer closed the connection or was silent for too long.
        ValueError: the answer is not Kafka's.
    """
    body = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT_ID)) + _CLIENT_ID + struct.pack(">i", 0)
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        if not 8 <= size <= 1 << 20:
            raise ValueError(f"the peer at {host}:{port} does not speak Kafka's protocol")
        return parse_metadata(_read(connection, size))


def parse_metadata(response: bytes) -> ClusterView:
    """The first part of a Metadata v2 response.

    Raises:
        ValueError: the bytes are not such a response.
    """
    try:
        correlation, count = struct.unpack_from(">ii", response, 0)
        if correlation != _CORRELATION:
            raise ValueError(f"the answer belongs to request {correlation}, not {_CORRELATION}")
        position = 8
        brokers = []
        for _ in range(count):
            node_id, length = struct.unpack_from(">ih", response, position)
            position += 6
            host = response[position : position + length].decode()
            position += length
            (port, rack_length) = struct.unpack_from(">ih", response, position)
            position += 6 + max(rack_length, 0)
            brokers.append(BrokerAddress(node_id, host, port))
        (length,) = struct.unpack_from(">h", response, position)
        cluster_id = response[position + 2 : position + 2 + length].decode() if length >= 0 else None
        return ClusterView(cluster_id, tuple(brokers))
    except struct.error as error:
        raise ValueError("the metadata answer ends too early") from error


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = connection.recv(size)
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
