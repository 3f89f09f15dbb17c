"""Finds a Java that can run Kafka, and free TCP ports for brokers and servers.

Main functions: `find_java`; `free_port`, `free_ports`, `is_free`, for servers that need a port number before they
start.

Thread: any.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from penstock.errors import ConnectException

MINIMUM_VERSION = 17


class JavaNotFoundException(ConnectException):
    """No Java, or one too old for Kafka 4.3: the message names the version to install."""


def parse_version(text: str) -> int | None:
    """The feature release in the output of `java -version`, or None.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_version('java version "1.8.0_392"')
    8
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def java_command(environment: Mapping[str, str]) -> str | None:
    """`JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the `java` on the path; None when it is not there.

    It is neither run nor asked for its version, see `find_java`.

    Args:
        environment: the environment of the process that is to run it.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java", path=environment.get("PATH", os.defpath))


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` command: `JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the one on the path.

    Args:
        environment: the process environment when None.

    Raises:
        JavaNotFoundException: there is none, it does not run, or it is older than 17.
    """
    environment = os.environ if environment is None else environment
    command = java_command(environment)
    if environment.get("JAVA_HOME"):
        origin = "JAVA_HOME is set, but it has no bin/java that can be executed"
    else:
        origin = "there is no java command on the PATH"
    advice = f"install a Java runtime, version {MINIMUM_VERSION} or later, or set JAVA_HOME to one"
    if command is None:
        raise JavaNotFoundException(f"Kafka needs Java {MINIMUM_VERSION} or later: {origin}; {advice}")
    try:
        shown = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaNotFoundException(f"The Java command {command} does not run: {error}; {advice}") from error
    version = parse_version(shown)
    if version is None or version < MINIMUM_VERSION:
        found = "of an unknown version" if version is None else f"version {version}"
        raise JavaNotFoundException(f"Kafka needs Java {MINIMUM_VERSION} or later, but {command} is {found}; {advice}")
    return Path(command)


_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Services that are known by their number are mostly below.
_LOWEST = 10_000
_HIGHEST = 65_535
#: With fewer ports outside the system's range, callers would get in each other's way.
_ENOUGH = 1_000
_TRIES = 50
_CHANCE = random.SystemRandom()
#: The ports that this process has returned before: their servers may not have started yet.
_given_before: set[int] = set()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find ports without a listener, all different.

    They are outside the range from which the system gives each outgoing connection a port, so that no connection takes
    one between the answer and the use, or while a server restarts. Another server may still do so; a process is given
    other ports each time.

    Args:
        count: the number of ports.
        host: the address the server will bind.
    """
    candidates = port_candidates(_given_to_connections())
    with ExitStack() as held:
        return [_bind(held.enter_context(socket.socket()), host, candidates) for _ in range(count)]


def free_port(host: str = "127.0.0.1") -> int:
    """One port without a listener (see `free_ports`)."""
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


def port_candidates(given: tuple[int, int] | None) -> range:
    """The larger range of ports that the system gives to no connection; empty if that is small.

    >>> port_candidates((32768, 60999)), port_candidates((10001, 20000)), port_candidates((1024, 65535))
    (range(10000, 32768), range(20001, 65536), range(0, 0))

    Args:
        given: the first and the last port that the system gives to connections; None if that is not known.
    """
    if given is None:
        return range(0)
    first, last = given
    below, above = range(_LOWEST, max(first, _LOWEST)), range(max(last + 1, _LOWEST), _HIGHEST + 1)
    larger = max(below, above, key=len)
    return larger if len(larger) >= _ENOUGH else range(0)


def _given_to_connections() -> tuple[int, int] | None:
    try:
        first, last = map(int, _RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return first, last


def _bind(listener: socket.socket, host: str, candidates: range) -> int:
    """Binds a socket to one of the candidates that is free; the system chooses if none is found. Returns the port."""
    for _ in range(_TRIES if candidates else 0):
        port = _CHANCE.choice(candidates)
        if port in _given_before:
            continue
        try:
            listener.bind((host, port))
        except OSError:
            continue
        _given_before.add(port)
        return port
    listener.bind((host, 0))
    return int(listener.getsockname()[1])
