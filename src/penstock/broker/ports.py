"""Free TCP ports of this machine, for brokers and servers that must be told their port.

Main functions: `free_port`, `free_ports`, `is_free`.

Thread: any.
"""

import socket
from contextlib import ExitStack


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find ports that nobody listens on, all different.

    Between the answer and the use another process may take one: a caller that starts a server should be ready to ask
    again. All are held open until the last is found, so that one call never returns a port twice.

    Args:
        count: how many.
        host: the address the server will bind.
    """
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            listener.bind((host, 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


def free_port(host: str = "127.0.0.1") -> int:
    """One port that nobody listens on (see `free_ports`)."""
    return free_ports(1, host)[0]


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True if a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # Connections of an earlier server that linger do not keep a new one away.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
        return True
