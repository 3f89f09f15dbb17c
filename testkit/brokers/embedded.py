"""The embedded broker with what only tests need: further listeners, and pauses like those of a machine that swaps."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.broker import EmbeddedBroker, free_ports

_HOST = "127.0.0.1"
_STILL_CHECKS = 500


class SecuredBroker(EmbeddedBroker):
    """A broker with further listeners.

    Args:
        data_dir: See ``EmbeddedBroker``.
        listeners: By name, each with its settings: ``security.protocol`` (by default the name) and the settings that
            Kafka reads below ``listener.name.<name>.``.
        more: The other arguments of ``EmbeddedBroker``.
    """

    def __init__(self, data_dir: Path, *, listeners: Mapping[str, Mapping[str, str]], **more: Any) -> None:
        super().__init__(data_dir, **more)
        self._listeners = dict(listeners)
        self._ports = dict(zip(self._listeners, free_ports(len(self._listeners)), strict=True))

    def bootstrap_of(self, listener: str) -> str:
        """The ``bootstrap.servers`` of clients for one of the further listeners."""
        return f"{_HOST}:{self._ports[listener]}"

    def _node_properties(self, controller_port: int) -> dict[str, str]:
        return with_listeners(super()._node_properties(controller_port), _HOST, self._ports, self._listeners)


def with_listeners(
    properties: Mapping[str, str], host: str, ports: Mapping[str, int], listeners: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Adds listeners to the properties of a node; ``ports`` and ``listeners`` are by their names.

    >>> base = {"listeners": "A://h:1", "advertised.listeners": "A://h:1", "listener.security.protocol.map": "A:SSL"}
    >>> found = with_listeners(base, "h", {"SSL": 2}, {"SSL": {"ssl.client.auth": "required"}})
    >>> found["listeners"], found["listener.security.protocol.map"], found["listener.name.ssl.ssl.client.auth"]
    ('A://h:1,SSL://h:2', 'A:SSL,SSL:SSL', 'required')
    """
    found = dict(properties)
    for name, settings in listeners.items():
        place = f",{name}://{host}:{ports[name]}"
        found["listeners"] += place
        found["advertised.listeners"] += place
        found["listener.security.protocol.map"] += f",{name}:{settings.get('security.protocol', name)}"
        for key, text in settings.items():
            if key != "security.protocol":
                found[f"listener.name.{name.lower()}.{key}"] = text
    return found


def freeze(broker: EmbeddedBroker) -> None:
    """Suspends the broker's process, and waits until it is suspended; see ``thaw``."""
    pid = broker.pid
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)
    pause = threading.Event()
    for _ in range(_STILL_CHECKS):
        if _stands_still(pid):
            return
        pause.wait(0.01)


def thaw(broker: EmbeddedBroker) -> None:
    """Lets a frozen broker continue."""
    if broker.pid is not None:
        os.kill(broker.pid, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """True if no thread of a process runs any more; a signal to stop reaches them one after the other."""
    try:
        states = [
            stat.read_text().rpartition(")")[2].split()[0] for stat in Path("/proc", str(pid), "task").glob("*/stat")
        ]
    except OSError:
        return False
    return all(state in "TtZX" for state in states)
