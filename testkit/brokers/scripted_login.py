"""The login of clients at a `ScriptedBroker`: with PLAIN, for sessions that may end.

Main type: `ScriptedLogin`.

Thread: that of each connection; the counts may be read by any.

Source: KIP-152, KIP-368.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping

UNSUPPORTED_MECHANISM = 33
AUTHENTICATION_FAILED = 58


class ScriptedLogin:
    """Users, passwords and sessions.

    Args:
        users: passwords by name.
        session_ms: when a session ends; 0 for never.
        mechanisms: what is offered; only PLAIN works.

    Attributes:
        logins: How many have succeeded.
        expired: How many requests came on connections whose sessions were over.
    """

    def __init__(
        self, users: Mapping[str, str], *, session_ms: int = 0, mechanisms: tuple[str, ...] = ("PLAIN",)
    ) -> None:
        self.users = dict(users)
        self.session_ms = session_ms
        self.logins = 0
        self.expired = 0
        self._mechanisms = mechanisms
        self._until: dict[int, float] = {}
        self._lock = threading.Lock()

    def admits(self, connection: int) -> bool:
        """True if a request is taken from this connection now."""
        with self._lock:
            until = self._until.get(connection)
            self.expired += until is not None and time.monotonic() > until
            return until is not None and time.monotonic() <= until

    def handshake(self, mechanism: str | None) -> bytes:
        """The answer to a client that wants this mechanism."""
        known = mechanism in self._mechanisms
        names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in self._mechanisms)
        return struct.pack(">hi", 0 if known else UNSUPPORTED_MECHANISM, len(self._mechanisms)) + names

    def authenticate(self, connection: int, said: bytes) -> bytes:
        """The answer to user and password."""
        _, user, password = said.decode().split("\0")
        with self._lock:
            if self.users.get(user) != password:
                text = b"Authentication failed: Invalid username or password"
                return struct.pack(">hh", AUTHENTICATION_FAILED, len(text)) + text + struct.pack(">iq", 0, 0)
            self.logins += 1
            self._until[connection] = time.monotonic() + (self.session_ms / 1000 if self.session_ms else 3600.0)
        return struct.pack(">hhiq", 0, -1, 0, self.session_ms)
