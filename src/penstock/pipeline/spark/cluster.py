"""A session whose executors are processes of a cluster: its settings, and the watch over its executors.

A session without executors is up and responds, but never runs a job. One that has had none for some time counts as lost
and is replaced: a master that was killed and started again without recovery does not know the application, and gives it
no executor. If all Spark workers are gone, or other applications have all cores, the next session has no executor
either; each further session gets more time than the one before. With dynamic allocation a session may have no executor
while it has nothing to do: there only jobs that wait count.

Thread: ``ExecutorWatch.ask`` is called by the heartbeat of the session, everything else by the session thread;
``trouble`` by any. ``spark-master`` asks the master.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import SparkUnavailableException
from penstock.telemetry.waits import goes_on, stands_still
from penstock.threads import NoThreadException, in_own_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ------------------------------------------------------------------------------------------------------------- settings
STANDALONE: Final = "spark://"
#: Cores of a standalone cluster that a worker takes. Without a number the first application takes all of them, and each
#: further one waits for ever. Batches are small plans, which two cores do side by side.
DEFAULT_CORES: Final = 2
_MASTER_PORT: Final = 7077
#: They tell Spark itself which address to take.
_OWN_CHOICE: Final = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
_ADDRESSES: Final = ("spark.driver.host", "spark.driver.bindAddress")


def is_clustered(conf: Mapping[str, str]) -> bool:
    """True if a session's executors are processes of a cluster."""
    master = conf.get("spark.master", "local")
    return "spark.remote" not in conf and master.partition("[")[0] != "local"


def address_towards(host: str, port: int) -> str | None:
    """The address of this machine that packets to another one come from; None if no route leads there.

    Resolves the name; sends nothing. An IPv6 address is in brackets.
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
    """The settings that a session on a cluster has by default; a user's own always win.

    Executors connect to the driver, so a driver that listens on the loopback address has none that are elsewhere. With
    a standalone master the driver's address is the one that leads to the master; other clusters' masters are asked by
    Spark, which takes the address of this machine's name.

    Args:
        conf: The worker's ``spark.*`` properties.
        reach: See ``address_towards``.

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
                    "No route leads to %s: Spark chooses the address at which executors reach this worker, unless "
                    "spark.driver.host names one",
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


# ------------------------------------------------------------------------------------------------------------ executors
TIMEOUT_S: Final = 30.0
#: Executors of a new session take a moment to come, and one that has ended is replaced by its Spark worker.
_WORTH_A_WORD_S: Final = 5.0
#: The longest wait of a session that never had any, in times of the first one's: each is given twice the time of the
#: one before, since some clusters take minutes to start an executor.
_MOST_TIMES: Final = 10.0
_OWNER: Final = "Spark"
#: The time after which the reason is asked for, first and again, and the time limit of an answer.
_ASK_WHY_S: Final = 2.0
_ANSWER_S: Final = 2.0
_MOST_BYTES: Final = 4 << 20
_UI_PORT: Final = "spark.master.ui.port"
_DEFAULT_UI_PORT: Final = "8080"
#: Applications that are named.
_MOST_NAMED: Final = 3
REASON: Final = "spark_executors"


#: What is said where the reason cannot be asked for.
_NOT_KNOWN: Final = (
    "Other applications have all of them, or their memory (spark.cores.max and spark.executor.memory of each), its "
    "Spark workers are gone or cannot reach this worker (spark.driver.host), or its master was started anew and does "
    "not know this worker"
)


@dataclass(frozen=True)
class StandaloneMaster:
    """A standalone master, or several of which one leads, as it can be asked from outside.

    The driver is not told why it gets no executor.
    """

    addresses: Sequence[tuple[str, int]]
    ui_port: int

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> StandaloneMaster | None:
        """The master of a session's settings; None for other clusters."""
        master = conf.get("spark.master", "")
        port = conf.get(_UI_PORT, "").strip() or _DEFAULT_UI_PORT
        return cls(addresses_of(master), int(port)) if master.startswith(STANDALONE) and port.isdecimal() else None

    def why(self, application: str) -> str:
        """The reason why an application has no executor; "" if it cannot be known. Blocks for some seconds at most."""
        silent = []
        for host, port in self.addresses:
            state = self._state(host)
            if state is not None and state.get("status") == "ALIVE":
                return reason_of(state, application)
            if state is None and (failure := _failure(host, port)):
                silent.append(f"{host}:{port} ({failure})")
        if len(silent) < len(self.addresses):
            return ""
        return f"The master at {', '.join(silent)} does not answer"

    def _state(self, host: str) -> Mapping[str, Any] | None:
        """The state that the master's web UI shows; None if there is none that can be read."""
        name = f"[{host}]" if ":" in host else host
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{name}:{self.ui_port}/json/", timeout=_ANSWER_S) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and isinstance(found.get("workers"), list) else None


def _failure(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), _ANSWER_S):
            return ""
    except OSError as error:
        return str(error)


def reason_of(state: Mapping[str, Any], application: str) -> str:
    """The reason why a master with this answer to ``/json/`` gives an application no executor; "" if its state has
    none.
    """
    workers = [one for one in state["workers"] if one.get("state", "ALIVE") == "ALIVE"]
    applications = {str(one.get("id")): one for one in state.get("activeapps", [])}
    own = applications.pop(application, None)
    if own is None:
        return "The master does not know this worker's application: it was started anew, or has ended the application"
    if not workers:
        return "No workers are registered with the master: start some, or look why they cannot reach it"
    cores = sum(_count_of(one, "cores") for one in workers)
    free = [one for one in workers if _free(one, "cores") > 0]
    if not free:
        having = sorted(applications.values(), key=lambda one: -_count_of(one, "cores"))
        taken = [f"{one.get('name')} ({one.get('id')}, {_count_of(one, 'cores')})" for one in having]
        more = f" and {len(taken) - _MOST_NAMED} more" if len(taken) > _MOST_NAMED else ""
        by = f"{', '.join(taken[:_MOST_NAMED])}{more}" if taken else "applications that are ending"
        return (
            f"All {cores} cores of the cluster are taken by {by}: end one of them, lower its spark.cores.max, or add "
            "Spark workers"
        )
    needed = _count_of(own, "memoryperexecutor") or _count_of(own, "memoryperslave")
    most = max(_free(one, "memory") for one in free)
    if most < needed:
        return (
            f"{sum(_free(one, 'cores') for one in free)} cores of the cluster are free, but no Spark worker that has "
            f"one has the {needed} MiB that an executor needs ({most} MiB are free): lower spark.executor.memory, or "
            "add memory"
        )
    return (
        f"The cluster has {sum(_free(one, 'cores') for one in free)} free cores and the memory for an executor: "
        "executors cannot start or cannot reach this worker (spark.driver.host, spark.executor.cores); the logs of "
        "the Spark workers and of their executors say why"
    )


def _count_of(of: Mapping[str, Any], name: str) -> int:
    value = of.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _free(worker: Mapping[str, Any], name: str) -> int:
    return _count_of(worker, name) - _count_of(worker, f"{name}used")


def removal_of(context: Any) -> str:
    """The reason why a session's last executor was removed; "" if the driver does not know it."""
    found = context.statusStore().executorList(False)
    removed = [found.apply(place) for place in range(found.size())]
    reasons = [
        (one.removeTime().get().getTime(), str(one.removeReason().get()))
        for one in removed
        if one.removeTime().isDefined() and one.removeReason().isDefined()
    ]
    return max(reasons)[1].strip().splitlines()[0] if reasons else ""


class NoExecutorsException(SparkUnavailableException):
    """A new session has had no executor for too long; another one is tried."""


class ExecutorWatch:
    """Counts the executors of the session that is up, or starting.

    A session counts as lost after ``timeout_s`` without one. ``ended`` counts the sessions in a row that ended so.
    """

    def __init__(
        self, conf: Mapping[str, str], timeout_s: float = TIMEOUT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._master = conf.get("spark.master", "")
        self._dynamic = conf.get("spark.dynamicAllocation.enabled", "false").strip().lower() == "true"
        self._timeout_s = timeout_s
        self._clock = clock
        #: Since when there is none; and the same of the present session.
        self._since: float | None = None
        self._session_since: float | None = None
        self._had_some = False
        self._told = False
        self._asker = StandaloneMaster.of(conf)
        self._asked_at = 0.0
        self._answer: Future[str] | None = None
        #: Why there is none, as the master says; and why the last one was removed, as the driver does.
        self._why = self._removed = ""
        self.ended = 0
        #: Cores of the executors, as Spark counts them; None before it was asked.
        self.cores: int | None = None

    def begin(self) -> None:
        """Notes that another session starts, which gets the existing executors."""
        self._session_since = None

    def ask(self, session: SparkSession) -> None:
        """Asks a session for its executors, and whether it has jobs. Blocks like any call to the JVM."""
        context = session.sparkContext._jsc.sc()
        # The driver counts as well.
        executors = int(context.getExecutorMemoryStatus().size()) - 1
        if executors > 0:
            self.cores = int(context.defaultParallelism())
        elif self._since is not None and not self._removed:
            # A word more for people: without it the session is the same.
            with suppress(Exception):
                self._removed = removal_of(context)
        self.count(executors, waits=not self._dynamic or len(context.statusTracker().getActiveJobIds()) > 0)
        if executors == 0:
            self._ask_why(str(context.applicationId()))

    def _ask_why(self, application: str) -> None:
        """Has the master asked, in a thread of its own, and takes its answer when it is there."""
        if self._answer is not None and self._answer.done():
            with suppress(Exception):
                self._why = self._answer.result()
            self._answer = None
        since, now, asker = self._since, self._clock(), self._asker
        if asker is None or since is None or self._answer is not None:
            return
        if now - since >= _ASK_WHY_S and now - self._asked_at >= _ASK_WHY_S:
            self._asked_at = now
            with suppress(NoThreadException):
                self._answer, _ = in_own_thread("spark-master", lambda: asker.why(application))

    def count(self, executors: int, *, waits: bool = True) -> None:
        """Notes how many executors there are, and whether there should be some."""
        now = self._clock()
        if executors > 0 or not waits:
            self._had_some = self._had_some or executors > 0
            if self._told:
                log.info("Spark has %d executor(s) again", executors)
            self._since = self._session_since = None
            self._why = self._removed = ""
            self._told, self.ended = False, 0
            goes_on(_OWNER)
            return
        self._since = now if self._since is None else self._since
        self._session_since = now if self._session_since is None else self._session_since
        trouble = self.trouble
        if trouble is None:
            return
        stands_still(_OWNER, REASON, trouble, since=self._began())
        if not self._told:
            self._told = True
            log.warning("%s. Batches wait; a session without executors is replaced", trouble)

    @property
    def trouble(self) -> str | None:
        """Since when there is no executor, and why that may be; None as long as there is one."""
        since = self._since
        if since is None or self._clock() - since < _WORTH_A_WORD_S:
            return None
        began = self._began().isoformat(timespec="seconds")
        had = "has had no executor any more since" if self._had_some else "has given this worker no executor since"
        why = self._why or _NOT_KNOWN
        removed = f" (the last executor was removed: {self._removed})" if self._removed else ""
        return f"Spark at {self._master} {had} {began}: this worker waits for cores of the cluster. {why}{removed}"

    @property
    def lost(self) -> str | None:
        """The reason why the present session counts as lost, or None while it does not."""
        since, now = self._session_since, self._clock()
        limit_s = self._timeout_s * min(_MOST_TIMES, 2.0**self.ended)
        if since is None or now - since < limit_s:
            return None
        return (
            f"{self.trouble or f'Spark at {self._master} has no executor'}. The session had none for {now - since:.0f} "
            "s (penstock.spark.executors.timeout.ms) and is replaced"
        )

    def replaced(self) -> None:
        """The present session ends for having none."""
        self.ended += 1

    def close(self) -> None:
        """The worker ends."""
        goes_on(_OWNER)

    def _began(self) -> datetime:
        assert self._since is not None
        return datetime.now(UTC) - timedelta(seconds=self._clock() - self._since)


log = logging.getLogger(__name__)
