"""Manages the only Spark session of a worker: starts, monitors and replaces it.

The JVM of a classic session can die (killed, frozen, out of memory). `SparkRuntime` runs jobs again that were in
flight: jobs are pure functions from Arrow to Arrow, so a second run is harmless. With `spark.remote` the session is one
on a Spark Connect server, which is not ours to kill; a lost session is replaced the same way, and a server that was
there before gets two minutes to come back. Thread: `spark-session` (owned here) boots and watches.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from penstock.errors import (
    ConnectException,
    SparkOverdueException,
    SparkSessionLostException,
    SparkStoppedException,
    SparkUnavailableException,
)
from penstock.pipeline.spark.cluster import TIMEOUT_S, ExecutorWatch, NoExecutorsException, is_clustered, planned_cores
from penstock.pipeline.spark.gate import MemoryBudget
from penstock.pipeline.spark.isolated_session import IsolatedSession, Loss
from penstock.pipeline.spark.jvm import DriverJvm, JavaMissingException, SessionRefusedException, Silence, brief
from penstock.pipeline.spark.remote_session import RemoteSession
from penstock.telemetry import waiting_for
from penstock.telemetry.logs import SeldomLog
from penstock.threads import FILES_USED_UP, lacks_descriptor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.5
_seldom = SeldomLog(logging.getLogger(__name__))


class Shortage:
    """The retries of a job that failed because the worker had no free file descriptor: such a shortage is often
    temporary.
    """

    def __init__(
        self, pause: Callable[[float], object] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pause = pause or threading.Event().wait
        self._clock = clock
        self._until: float | None = None

    def wait(self, error: BaseException) -> None:
        """Waits for a moment, after which the job may be tried again; raises ConnectException after a minute."""
        now = self._clock()
        self._until = now + PATIENCE_S if self._until is None else self._until
        if now >= self._until:
            raise ConnectException(
                f"The worker has no file descriptor left to hand a batch to Spark, for {PATIENCE_S:.0f} s now. "
                f"{FILES_USED_UP}"
            ) from error
        _seldom.warning("files", "A batch waits: the worker has no file descriptor left. %s", FILES_USED_UP)
        self._pause(PAUSE_S)


T = TypeVar("T")
log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_TIMEOUT_S = 10.0
#: The most that a round without a response counts: a longer one means that this process was frozen together with the
#: JVM.
MAX_ROUND_S = 3.0
BOOT_ATTEMPTS = 3
BOOT_PAUSE_S = 0.5
MAX_BOOT_PAUSE_S = 5.0
#: A Spark Connect server that was there before has so long to come back before its tasks fail.
RETURN_TIME_S = 120.0
MAX_LOSSES_PER_JOB = 3
_LOST = "the Spark session was lost, and with it the DataFrame that was made on it"

#: The runtime of this process that was started last and not stopped: PySpark has one session for a process, too.
_started: SparkRuntime | None = None


def coming_session(timeout_s: float) -> SparkSession | None:
    """The session of this process's worker; None if none was requested, it cannot start, or is not up in time. Any
    thread.

    The timeout is measured from the beginning of its start.
    """
    runtime = _started
    if runtime is None:
        return None
    began = runtime.boot_began
    left_s = timeout_s if began is None else max(0.0, began + timeout_s - time.monotonic())
    try:
        return runtime.session(left_s)
    except SparkUnavailableException:
        return None


class SparkRuntime:
    """The worker's Spark session, replaced when it is lost.

    A JVM that does not respond for ``heartbeat_timeout_s`` counts as frozen and is killed; a session on a cluster
    without executors for ``executors_timeout_s`` counts as lost. A job fails after ``most_losses`` lost sessions.
    ``on_failure`` is called from the session thread with the cause when no session can be started: callers that wait
    for a session get an exception; this is for tasks that wait for data and would otherwise notice only with their next
    batch.

    Thread: created and stopped by the worker's owner; `run`, `session` and `want` from any thread.
    """

    def __init__(
        self,
        conf: Mapping[str, str],
        *,
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        executors_timeout_s: float = TIMEOUT_S,
        on_failure: Callable[[SparkUnavailableException], None] = lambda _: None,
        most_losses: int = MAX_LOSSES_PER_JOB,
    ) -> None:
        self._conf = {key: value for key, value in conf.items() if key.startswith("spark.")}
        self._remote = self._conf.get("spark.remote")
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._on_failure = on_failure
        self._most_losses = most_losses
        self._executors = ExecutorWatch(self._conf, executors_timeout_s) if is_clustered(self._conf) else None
        self._changed = threading.Condition()
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None
        self._boot_began: float | None = None
        self._generation = 0
        self._lost_generation = 0
        # By what all sessions of a JVM, or of a connection, share.
        self._generations: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._wanted = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._driver: DriverJvm | RemoteSession | None = None
        self._booting: subprocess.Popen[bytes] | None = None
        # Jobs in progress on the session of a generation, or in progress when it was lost.
        self._jobs: Counter[int] = Counter()
        # How sessions ended, by their generation, and whether for lack of memory.
        self._ends: dict[int, tuple[str, bool]] = {}
        #: Room for the rows of jobs in the session's memory.
        self.memory = MemoryBudget()
        #: For jobs that have cost a session; None on Spark Connect, where a session is not ours to end.
        self.isolated = None if self._remote else IsolatedSession(self._conf)

    @property
    def generation(self) -> int:
        """Counts the sessions that came up; 0 before the first."""
        return self._generation

    @property
    def up(self) -> bool:
        """True if there is a session now."""
        return self._usable() is not None

    @property
    def trouble(self) -> str | None:
        """The reason why the session, there or starting, does nothing: no executors; None if it has, or needs none."""
        return None if self._executors is None else self._executors.trouble

    @property
    def boot_began(self) -> float | None:
        """When the last start of a session began, by ``time.monotonic``; None before the first."""
        return self._boot_began

    @property
    def parallelism(self) -> int:
        """Cores that the session uses: on a cluster as Spark has counted them last, before that as its settings ask.

        For a Spark Connect server, and a cluster that says nothing, the cores of this machine.
        """
        if self._executors is not None:
            return self._executors.cores or planned_cores(self._conf) or os.cpu_count() or 1
        master = self._conf.get("spark.master", "local[*]")
        count = master.removeprefix("local[").partition("]")[0].partition(",")[0]
        return int(count) if master.startswith("local[") and count.isdigit() else os.cpu_count() or 1

    @property
    def jvm_pid(self) -> int | None:
        """Process id of the driver JVM; None without a classic session."""
        driver = self._driver
        return driver.pid if driver is not None else None

    def start(self) -> None:
        """Begins to boot in the background and returns at once."""
        with self._changed:
            if self._thread is not None:
                return
            global _started
            _started = self
            self._wanted = True
            self._thread = threading.Thread(target=self._live, name="spark-session", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the session and its JVM; waits for the session thread."""
        global _started
        with self._changed:
            if _started is self:
                _started = None
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
            if self._booting is not None:
                self._booting.kill()
        if self.isolated is not None:
            self.isolated.close()
        if thread is not None:
            thread.join(30)
        if self._executors is not None:
            self._executors.close()

    def session(self, timeout_s: float | None = None) -> SparkSession:
        """Waits for the session; without ``timeout_s`` until it is up or has failed.

        Raises:
            SparkUnavailableException: it cannot start (with the cause), or is not up in time.
        """
        found = self.current(timeout_s)
        if found is None:
            raise SparkUnavailableException(f"the Spark session is not up after {timeout_s} s")
        return found[0]

    def current(self, timeout_s: float | None = None) -> tuple[SparkSession, int] | None:
        """Waits for the session and its generation; None if it is neither up nor has failed in time.

        Raises:
            SparkUnavailableException: it cannot start (with the cause), or the worker is stopping.
        """
        self.want()
        with self._changed:
            settled = self._changed.wait_for(
                lambda: self._stopping or self._failure is not None or self._usable() is not None, timeout_s
            )
            session = self._usable()
            if session is not None:
                return session, self._generation
            if self._stopping:
                raise SparkStoppedException("the worker is stopping")
            if not settled:
                return None
            raise _cannot_start(self._failure)

    @waiting_for("spark")
    def run(
        self, job: Callable[[SparkSession], T], instead: Callable[[Loss], Callable[[], T] | None] | None = None
    ) -> T:
        """Runs a job on the session; when the session is lost meanwhile, again on the next one. Invariant 6.

        ``job`` may run more than once: it is a pure function of its Arrow data. ``instead`` is asked with each loss;
        what it gives is called in the place of running the job again.

        Raises:
            SparkUnavailableException: no session can be started, or the job has brought down several.
            SparkOverdueException: what the job does under ``within`` took too long.
            ConnectException: the worker has had no file descriptor for the job for a minute.
            Exception: what the job raised on a healthy session.
        """
        losses, shortage = 0, Shortage()
        while True:
            found = self.current()
            assert found is not None, "it was waited for"
            session, generation = found
            self._count(generation, 1)
            try:
                result = job(session)
            except SparkOverdueException:
                self._count(generation, -1)
                raise
            except Exception as error:
                if lacks_descriptor(error):
                    self._count(generation, -1)
                    shortage.wait(error)
                    continue
                if not self.is_lost(generation, error):
                    self._count(generation, -1)
                    raise
                losses += 1
                ended, out_of_memory = self._ends.get(generation, ("was lost", False))
                loss = Loss(losses, out_of_memory, f"the Spark JVM {ended}", self._jobs[generation])
                other = instead(loss) if instead is not None and losses < self._most_losses else None
                how = "which runs again on a new one" if other is None else "which moves to a separate session"
                log.warning("The Spark session was lost during a job, %s: %s (%s)", how, loss.ended, brief(error))
                if other is not None:
                    return other()
                if losses >= self._most_losses:
                    raise SparkUnavailableException(
                        f"a batch was tried on {losses} Spark sessions and each was lost, the last one because "
                        f"{loss.ended}; raise spark.driver.memory or lower batch.max.bytes"
                    ) from error
            else:
                self._count(generation, -1)
                return result

    @waiting_for("spark")
    def run_on(self, session: SparkSession, job: Callable[[], T]) -> T:
        """Runs a job once, over what was made on a session: on another one it cannot run.

        Raises:
            SparkSessionLostException: the session was lost before or meanwhile.
            Exception: what the job raised on a healthy session.
        """
        with self._changed:
            # A session of the task's own has none, and its end is the task's own matter.
            generation = self._generations.get(self._root(session))
            gone = generation is not None and self._lost_generation >= generation
        if gone:
            raise SparkSessionLostException(_LOST)
        try:
            return job()
        except Exception as error:
            if generation is None or not self.is_lost(generation, error):
                raise
            raise SparkSessionLostException(_LOST) from error

    @contextmanager
    def within(self, limit_s: float | None) -> Iterator[None]:
        """Gives up the session when what is done on it inside takes longer. Part of a job of ``run``.

        Nothing less helps: a pattern that Java looks for, or a plan that Spark makes, cannot be interrupted.

        Raises:
            SparkOverdueException: it took longer.
        """
        if limit_s is None:
            yield
            return
        generation, overdue = self._generation, threading.Event()

        def give_up() -> None:
            overdue.set()
            log.error("A batch has run on Spark for %.0f s, its limit; the session is replaced", limit_s)
            self._report_lost(generation)

        timer = threading.Timer(limit_s, give_up)
        timer.name, timer.daemon = "spark-limit", True
        timer.start()
        try:
            yield
        except Exception as error:
            if overdue.is_set():
                raise SparkOverdueException(f"it took longer than {limit_s:.0f} s") from error
            raise
        finally:
            timer.cancel()

    def is_lost(self, generation: int, error: BaseException) -> bool:
        """True if the session of that generation is gone, as opposed to something that failed on a healthy one.

        After that it is gone for all callers, even before the watch notices it. If the error is about the connection, a
        JVM that is about to end is given a moment to do so.
        """
        with self._changed:
            if self._lost_generation >= generation:
                return True
            driver = self._driver
        lost = driver is None or driver.lost_by(error)
        if lost:
            self._report_lost(generation)
        return lost

    def want(self) -> None:
        """Asks for a session, and returns at once: after a failed start it is tried again."""
        self.start()
        with self._changed:
            if self._failure is not None and self._session is None:
                # Callers that waited then have received the earlier failure.
                self._failure = None
                self._wanted = True
                self._changed.notify_all()

    def _usable(self) -> SparkSession | None:
        return self._session if self._generation > self._lost_generation else None

    def _root(self, session: SparkSession) -> object:
        """The part that dies together with all sessions that share it."""
        return session.client if self._remote else session.sparkContext

    def _report_lost(self, generation: int) -> None:
        with self._changed:
            self._note_end(generation)
            if self._lost_generation < generation:
                self._lost_generation = generation
                self._changed.notify_all()

    def _count(self, generation: int, change: int) -> None:
        with self._changed:
            if generation not in self._jobs:
                self._jobs.clear()
            self._jobs[generation] += change

    def _note_end(self, generation: int) -> None:
        """Notes how the session ended, while its JVM is at hand. The lock is held."""
        driver = self._driver
        if generation == self._generation and isinstance(driver, DriverJvm) and generation not in self._ends:
            self._ends = {generation: (driver.how_ended(), driver.ran_out_of_memory)}

    # ------------------------------------------------------------------ the session thread
    def _live(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._wanted)
                if self._stopping:
                    break
            if self._boot():
                self._watch()
            self._tear_down()

    def _boot(self) -> bool:
        """Starts a session; True when it is up. After the last failed attempt the cause goes to the waiters."""
        cause: BaseException | None = None
        self._boot_began = started = time.monotonic()
        attempt = 0
        while cause is None or self._tries_again(cause, attempt, time.monotonic() - started):
            attempt += 1
            began = time.monotonic()
            try:
                session = self._connect()
            except Exception as error:
                cause = error
                if self._stopping:
                    return False
                log.error("Spark session start, attempt %d: %s", attempt, brief(error))
                self._tear_down()
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, min(BOOT_PAUSE_S * attempt, MAX_BOOT_PAUSE_S)):
                        return False
                continue
            with self._changed:
                self._booting = None
                self._session = session
                self._generation += 1
                self._generations[self._root(session)] = self._generation
                self._failure = None
                assert self._driver is not None
                self.memory.set_heap(self._driver.heap_bytes)
                self._changed.notify_all()
            log.info("Spark session %d is up after %.1f s", self._generation, time.monotonic() - began)
            return True
        with self._changed:
            self._failure = cause
            self._wanted = False
            self._changed.notify_all()
        self._on_failure(_cannot_start(cause))
        return False

    def _tries_again(self, cause: BaseException, attempts: int, elapsed_s: float) -> bool:
        if isinstance(cause, NoExecutorsException):
            return True
        if isinstance(cause, SessionRefusedException) and self._executors is not None and self._generation:
            # It was up with these settings before: its master is away, or is coming back.
            return True
        if isinstance(cause, (JavaMissingException, SessionRefusedException)):
            return False
        return attempts < BOOT_ATTEMPTS or bool(self._remote and self._generation and elapsed_s < RETURN_TIME_S)

    def _connect(self) -> SparkSession:
        driver = RemoteSession(self._remote, self._conf) if self._remote else DriverJvm(self._conf, self._launched)
        self._driver = driver
        session = driver.session
        # PySpark and Py4J log what they also raise; the raised error is handled where it belongs.
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        logging.getLogger().addFilter(_not_by_py4j)
        # The first query loads a few thousand classes; better here than in the first batch.
        if self._executors is None or not isinstance(driver, DriverJvm):
            session.range(1).select("id").toArrow()
        else:
            self._await_first_query(self._executors, driver)
        return session

    def _await_first_query(self, executors: ExecutorWatch, driver: DriverJvm) -> None:
        """Runs the first query of a session on a cluster, which waits for an executor."""
        executors.begin()
        driver.watch = executors
        outcome: Future[object] = Future()

        def query() -> None:
            try:
                outcome.set_result(driver.session.range(1).select("id").toArrow())
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=query, name="spark-first-query", daemon=True).start()
        while not wait([outcome], HEARTBEAT_INTERVAL_S).done:
            driver.answers()
            if (lost := executors.lost) is not None:
                executors.replaced()
                raise NoExecutorsException(lost)
        outcome.result()

    def _launched(self, process: subprocess.Popen[bytes]) -> None:
        """Notes the JVM of a session that is still starting, so that ``stop`` can end it."""
        with self._changed:
            self._booting = process
            if self._stopping:
                process.kill()

    def _watch(self) -> None:
        """Returns when the session is lost or the runtime stops."""
        silence = Silence(MAX_ROUND_S)
        generation = self._generation
        driver = self._driver
        assert driver is not None
        while True:
            with self._changed:
                gone = self._changed.wait_for(
                    lambda: self._stopping or self._lost_generation >= generation, HEARTBEAT_INTERVAL_S
                )
                if self._stopping:
                    return
            end = driver.ended()
            if end is not None:
                log.error("%s", end)
                return
            if self._executors is not None and (lost := self._executors.lost) is not None:
                log.error("%s", lost)
                self._executors.replaced()
                return
            if gone:
                return
            if silence.after(answered=driver.answers()) > self._heartbeat_timeout_s:
                log.error("Spark has not answered for %.0f s; its session is replaced", self._heartbeat_timeout_s)
                return

    def _tear_down(self) -> None:
        with self._changed:
            self._note_end(self._generation)
            self._session = None
            self._lost_generation = self._generation
            driver, self._driver = self._driver, None
            self._booting = None
            self._changed.notify_all()
        if driver is not None:
            driver.close()


def _cannot_start(cause: BaseException | None) -> SparkUnavailableException:
    error = SparkUnavailableException(f"the Spark session cannot start: {cause}")
    error.__cause__ = cause
    return error


def _not_by_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs the end of a connection to the root logger, with a trace, whenever a JVM is ended or dies."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
