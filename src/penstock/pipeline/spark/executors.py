"""Checks that a session on a Spark cluster has executors: a session without executors is up and responds, but never
runs a job.

Main types: ``ExecutorWatch``, one for all sessions of a worker; ``NoExecutorsException``. A session that has had no
executor for some time counts as lost and is replaced: a master that was killed and started again without recovery
does not know the application, and gives it no executor. If all Spark workers are gone, or other applications have all
cores, the next session has no executor either; each further session gets more time than the one before.

A session with dynamic allocation may have no executor while it has nothing to do: there only jobs that wait count.

Thread: ``ask`` is called by the heartbeat of the session, everything else by the session thread; ``trouble`` by any.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from penstock.errors import SparkUnavailableException
from penstock.telemetry.standstills import goes_on, stands_still

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
#: Executors of a new session take a moment to come, and one that has ended is replaced by its Spark worker.
_WORTH_A_WORD_S: Final = 5.0
#: The longest wait of a session that never had any, in times of the first one's: each is given twice the time of the
#: one before, since some clusters take minutes to start an executor.
_MOST_TIMES: Final = 10.0
_OWNER: Final = "Spark"
REASON: Final = "spark_executors"


class NoExecutorsException(SparkUnavailableException):
    """A new session has had no executor for too long; another one is tried."""


class ExecutorWatch:
    """Counts the executors of the session that is up, or starting.

    Args:
        conf: The worker's ``spark.*`` properties.
        timeout_s: After how long without an executor a session counts as lost.
        clock: Monotonic seconds.

    Attributes:
        ended: How many sessions in a row ended for having none.
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
        self.count(executors, waits=not self._dynamic or len(context.statusTracker().getActiveJobIds()) > 0)

    def count(self, executors: int, *, waits: bool = True) -> None:
        """Notes how many executors there are.

        Args:
            executors: Their number.
            waits: Whether there should be some.
        """
        now = self._clock()
        if executors > 0 or not waits:
            self._had_some = self._had_some or executors > 0
            if self._told:
                log.info("Spark has %d executor(s) again", executors)
            self._since = self._session_since = None
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
        return (
            f"Spark at {self._master} {had} {began}: this worker waits for cores of the cluster. Other applications "
            "have all of them, or their memory (spark.cores.max and spark.executor.memory of each), its Spark workers "
            "are gone or cannot reach this worker (spark.driver.host), or its master was started anew and does not "
            "know this worker"
        )

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
