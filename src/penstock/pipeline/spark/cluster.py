"""The settings of a session whose executors are processes of a cluster: its cores, and the address for its executors.

Functions: ``is_clustered``, ``cluster_settings`` (pure but for ``reach``), ``planned_cores``, ``address_towards``,
``addresses_of``. A user's settings always win. This module does not use Spark itself. Thread: any.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

log = logging.getLogger(__name__)

STANDALONE: Final = "spark://"
#: Cores of a standalone cluster that a worker takes. Without a number the first application takes all of them, and each
#: further one waits for ever. Batches are small plans, which two cores do side by side.
DEFAULT_CORES: Final = 2
_MASTER_PORT: Final = 7077
#: They tell Spark itself which address to take.
_OWN_CHOICE: Final = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
_ADDRESSES: Final = ("spark.driver.host", "spark.driver.bindAddress")


def is_clustered(conf: Mapping[str, str]) -> bool:
    """If a session's executors are processes of a cluster.

    >>> is_clustered({"spark.master": "spark://spark:7077"}), is_clustered({"spark.master": "local[2]"})
    (True, False)
    >>> is_clustered({}), is_clustered({"spark.remote": "sc://spark:15002"})
    (False, False)
    """
    master = conf.get("spark.master", "local")
    return "spark.remote" not in conf and master.partition("[")[0] != "local"


def address_towards(host: str, port: int) -> str | None:
    """The address of this machine that packets to another one come from.

    Resolves the name; sends nothing.

    Returns:
        None if the name does not resolve, or no route leads there. An IPv6 address is in brackets.

    >>> address_towards("127.0.0.1", 7077)
    '127.0.0.1'
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                own = str(probe.getsockname()[0])
        except OSError:
            continue
        return f"[{own}]" if family == socket.AF_INET6 else own
    return None


def cluster_settings(
    conf: Mapping[str, str],
    reach: Callable[[str, int], str | None] = address_towards,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str | None]:
    """The settings that a session on a cluster has by default.

    Executors connect to the driver, so a driver that listens on the loopback address has none that are elsewhere. With
    a standalone master the driver's address is the one that leads to the master; other clusters' masters are asked by
    Spark, which takes the address of this machine's name.

    Args:
        conf: The worker's ``spark.*`` properties.
        reach: See ``address_towards``.
        environment: Of the process.

    Returns:
        Settings by their names; None for one that is left to Spark. Empty where there is no cluster.

    >>> cluster_settings({"spark.master": "spark://spark:7077"}, lambda host, port: "10.0.0.5", {})
    {'spark.driver.host': '10.0.0.5', 'spark.driver.bindAddress': None, 'spark.cores.max': '2'}
    """
    master = conf.get("spark.master", "")
    if not is_clustered(conf) or master.startswith("local-cluster"):
        return {}
    # Spark binds to the driver's host by itself; where that is another machine's address the user says so.
    found: dict[str, str | None] = dict.fromkeys(_ADDRESSES)
    if master.startswith(STANDALONE):
        if "spark.driver.host" not in conf and not any(environment.get(name) for name in _OWN_CHOICE):
            masters = addresses_of(master)
            own = next(filter(None, (reach(host, port) for host, port in masters)), None)
            if own is None:
                log.warning(
                    "No route leads to %s, so Spark chooses the address at which executors reach this worker; "
                    "spark.driver.host says another one",
                    master,
                )
            found["spark.driver.host"] = own
        if conf.get("spark.dynamicAllocation.enabled", "false").strip().lower() != "true":
            found["spark.cores.max"] = str(DEFAULT_CORES)
    return {name: value for name, value in found.items() if name not in conf}


def addresses_of(master: str) -> list[tuple[str, int]]:
    """Hosts and ports of a standalone master and its standby masters.

    >>> addresses_of("spark://one:7077,two"), addresses_of("spark://[::1]:7070")
    ([('one', 7077), ('two', 7077)], [('::1', 7070)])
    """
    found = []
    for text in master.removeprefix(STANDALONE).split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdecimal():
            host, port = text.strip(), str(_MASTER_PORT)
        found.append((host.strip("[]"), int(port)))
    return found


def planned_cores(conf: Mapping[str, str]) -> int | None:
    """The cores that the settings of a session on a cluster ask for, before Spark can be asked how many it has.

    >>> planned_cores({"spark.master": "spark://spark:7077"}), planned_cores({"spark.master": "local[3]"})
    (2, None)
    >>> planned_cores({"spark.master": "yarn", "spark.executor.instances": "4", "spark.executor.cores": "3"})
    12
    """
    if not is_clustered(conf):
        return None
    settings = {**cluster_settings(conf, lambda host, port: host), **conf}
    if settings["spark.master"] is not None and settings["spark.master"].startswith(STANDALONE):
        return _number(settings.get("spark.cores.max"))
    dynamic = (conf.get("spark.dynamicAllocation.enabled") or "").strip().lower() == "true"
    executors = _number(conf.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"))
    if executors is None and not dynamic:
        executors = 2
    return None if executors is None else executors * (_number(conf.get("spark.executor.cores")) or 1)


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else None
