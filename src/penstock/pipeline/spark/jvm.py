"""The driver JVM of a classic Spark session: process, settings, heartbeat, log, temporary directory, class archive.

PySpark keeps process-wide references to the JVM; `DriverJvm.close` clears them, which is what lets a new JVM start in
the same Python process. Each question of a ``JvmProbe`` runs on a ``spark-heartbeat`` thread that ends with its answer.
The allocators of the worker's own process are chosen here, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.broker.jars import ArchiveFailedException, archive_file, java_command, make_archive, sharing
from penstock.errors import SparkUnavailableException
from penstock.pipeline.spark.cluster import ExecutorWatch, cluster_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


class Silence:
    """The time without an answer, measured by rounds of requests instead of only the clock.

    A round that takes longer than ``max_round_s`` was frozen itself, as a whole container or machine is, and says
    nothing about the JVM.

    >>> moments = iter([0.0, 2.0, 4.0, 3600.0, 3602.0, 3604.0])
    >>> silence = Silence(3.0, lambda: next(moments))
    >>> [silence.after(answered=answered) for answered in (True, False, False, False, True)]
    [0.0, 2.0, 5.0, 7.0, 0.0]
    """

    def __init__(self, max_round_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_round_s = max_round_s
        self._clock = clock
        self._latest = clock()
        self._seconds = 0.0

    def after(self, *, answered: bool) -> float:
        """Seconds without an answer, after one more round."""
        before, self._latest = self._latest, self._clock()
        self._seconds = 0.0 if answered else self._seconds + min(self._max_round_s, self._latest - before)
        return self._seconds


class JvmProbe:
    """Puts one question again and again; what does not answer blocks the thread of the question, not the asker.

    The question may raise, and it may block for ever. Such a thread ends when its connection is closed.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._thread: threading.Thread | None = None
        self._answered = threading.Event()
        self._refused: BaseException | None = None

    @property
    def refused(self) -> BaseException | None:
        """The exception of the latest question that came back, or None if it was answered."""
        return self._refused

    def answers(self, wait_s: float) -> bool:
        """True if the latest question was answered; waits for that up to ``wait_s``. Asks the next one."""
        if self._thread is not None and self._thread.is_alive():
            return self._joined(wait_s)
        ok = self._thread is None or self._answered.is_set()
        self._answered.clear()
        self._thread = threading.Thread(target=self._put, name="spark-heartbeat", daemon=True)
        self._thread.start()
        return self._joined(wait_s) and ok

    def _joined(self, wait_s: float) -> bool:
        assert self._thread is not None
        self._thread.join(wait_s)
        return self._answered.is_set()

    def _put(self) -> None:
        try:
            self._ask()
        except Exception as error:
            self._refused = error
            log.debug("Heartbeat of Spark: %s", error)
        else:
            self._refused = None
            self._answered.set()


#: Settings a pipeline's results or latency depend on; a user's value for any but the last group wins.
REQUIRED_SETTINGS: Mapping[str, str] = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Text in any of the JVM's character sets; what cannot be said in one becomes "?" or U+FFFD, as with Java's String.
    "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.codingErrorAction": "true",
}
DEFAULT_SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.localRelationThreshold": "200k",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.shuffle.partitions": "2",
    # Each array within another one takes the analyzer two rounds or more.
    "spark.sql.analyzer.maxIterations": "1000",
    "spark.sql.adaptive.enabled": "false",
    # A file is no table: ``SELECT * FROM text.`/etc/passwd``` reads whatever the worker's user may.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.codegen.cache.maxEntries": "200",
    "spark.sql.ui.retainedExecutions": "5",
}
CLASSIC_SETTINGS: Mapping[str, str] = {
    "spark.master": "local[*]",
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "50",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.maxResultSize": "0",
    "spark.task.maxDirectResultSize": "64m",
    "spark.rpc.message.maxSize": "512",
    "spark.cleaner.periodicGC.interval": "5min",
    # PySpark would tell the JVM for every column which line of Python made it: four calls each, and a process has this
    # or not by the thread that makes its first column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Spark goes through nested data by recursion: this is several times what ``nesting.py`` lets through takes.
STACK_OPTION = "-Xss16m"
# Code that Spark compiles for a function over an array reads each element before it checks for null. Arrow refuses to
# read a null number, unless this option turns that off.
NULL_OPTION = "-Darrow.enable_null_check_for_get=false"
# An out-of-memory JVM limps on and fails jobs at random; one that exits is replaced.
JVM_OPTIONS = (
    f"{STACK_OPTION} {NULL_OPTION} -XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError -Xmn300m -XX:GCTimeRatio=19 "
    # A long chain is one method of more than 8,000 bytes, which the JVM would only ever interpret.
    "-XX:-DontCompileHugeMethods "
    # A batch calls what it does with each record 100,000 times; Spark's planner reaches the JVM's own thresholds while
    # it starts, and a core is busy for many seconds with compiling code that hardly runs.
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=1000000"
)
#: Classes that PySpark looks up by name whenever it builds a column or a DataFrame. To find a class, Py4J tries each
#: package that was imported, and each miss looks into all of Spark's jars: a fifth of a small batch's time in the JVM.
KEPT_NAMES: Final = (
    "System",
    "PythonUtils",
    "PythonSQLUtils",
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
)
#: Exit codes of a JVM without memory: the JVM's own, because of ``ExitOnOutOfMemoryError``, and Spark's.
_OUT_OF_MEMORY: Final = (3, 52)
ANSWER_WAIT_S = 1.0
EXIT_GRACE_S = 2.0
#: A path of a Unix socket may have 108 bytes; PySpark's names in its directory have 42.
_LONGEST_SOCKET_DIR = 60
#: Settings for ``spark-submit`` itself.
_LAUNCH = (
    *("spark.master", "spark.app.name", "spark.driver.", "spark.jars", "spark.files", "spark.archives"),
    *("spark.submit.", "spark.local.dir", "spark.pyspark.", "spark.log."),
)


class JavaMissingException(SparkUnavailableException):
    """No Java runtime was found; trying again does not help."""


class SessionRefusedException(SparkUnavailableException):
    """Spark itself said no, usually to a setting; trying again does not help."""


class DriverJvm:
    """The driver JVM of a classic session with its process, heartbeat and log. Owned by the session thread."""

    def __init__(
        self, conf: Mapping[str, str], on_launch: Callable[[subprocess.Popen[bytes]], None] = lambda process: None
    ) -> None:
        """Starts the JVM and its session; `on_launch` gets the process as soon as it is there."""
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        require_java()
        # JVMs of killed processes had no time to do it.
        remove_stale_scratch()
        self._scratch = make_scratch()
        self._heartbeat = JvmProbe(self._ask)
        #: Receives the executors of the session with each heartbeat.
        self.watch: ExecutorWatch | None = None
        settings = classic_settings(conf, self._scratch)
        if "SharedArchiveFile" not in settings["spark.driver.extraJavaOptions"]:
            settings["spark.driver.extraJavaOptions"] += f" {archive_option()}".rstrip()
        self._memory = settings["spark.driver.memory"]
        spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        launch_conf = SparkConf(loadDefaults=False).setAll(list(launch_settings(settings).items()))
        # Spark takes python3 from PATH otherwise, which need not have PySpark or be the same version.
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
        # Arrow's memory in the JVM is from the C library, whose heaps for each few threads keep what these have freed.
        os.environ.setdefault(HEAPS_VARIABLE, str(MOST_HEAPS))
        gateway: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        reader, writer = os.pipe()
        self._log = _LogTail(reader)
        try:
            launch: Any = launch_gateway
            # Signals to the worker's process group are the worker's: it still needs the JVM to stop in order.
            gateway = launch(launch_conf, {"stdout": writer, "stderr": writer, "process_group": 0})
        except Exception as error:
            os.close(writer)
            self._log.join()
            remove_scratch(self._scratch)
            raise SparkUnavailableException(f"the Spark JVM did not start: {self._log.text() or error}") from error
        os.close(writer)
        self._process = gateway.proc
        self._gateway = gateway
        on_launch(gateway.proc)
        _ignore_sigterm(gateway.jvm)
        try:
            context = SparkContext(conf=spark_conf, gateway=gateway)
            context.setLogLevel("ERROR")
            # It prints a trace when the JVM ends while Python workers are there.
            vars(context._accumulatorServer)["handle_error"] = lambda request, address: None
            self.session: SparkSession = SparkSession.builder.getOrCreate()
            #: The maximum memory of its objects.
            self.heap_bytes = int(gateway.jvm.java.lang.Runtime.getRuntime().maxMemory())
            for name in KEPT_NAMES:
                setattr(gateway.jvm, name, getattr(gateway.jvm, name))
        except Exception as error:
            cause = brief(error)  # a Java exception's text is fetched from the JVM, so before it is gone
            self.close()
            raise SessionRefusedException(f"Spark refused to start: {cause}") from None

    @property
    def pid(self) -> int | None:
        """The process id of the JVM; None before it was started."""
        return self._process.pid if self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the JVM, or None while it runs, and before it was started."""
        return self._process.poll() if self._process is not None else None

    def is_gone(self, grace_s: float) -> bool:
        """True if the process has ended, waiting up to `grace_s` for one that is about to."""
        if self._process is None:
            return False
        try:
            self._process.wait(grace_s) if grace_s else None
        except subprocess.TimeoutExpired:
            return False
        return self._process.poll() is not None

    def ended(self) -> str | None:
        """Describes how the process ended, if it has."""
        return f"The Spark JVM {self.how_ended()}" if self.is_gone(0.0) else None

    @property
    def ran_out_of_memory(self) -> bool:
        """True if the process has ended because its heap was full."""
        return self.exit_code in _OUT_OF_MEMORY

    def how_ended(self) -> str:
        """Describes how the process ended, as the end of a sentence, and what to do about it."""
        return how_ended(self.exit_code, self._memory)

    def _ask(self) -> None:
        self._gateway.jvm.System.currentTimeMillis()
        session = getattr(self, "session", None)
        if self.watch is not None and session is not None:
            self.watch.ask(session)

    def answers(self) -> bool:
        """True if the JVM has answered the latest question; asks the next one.

        A frozen JVM blocks the thread of the question until the process is killed.
        """
        return self._heartbeat.answers(ANSWER_WAIT_S)

    def lost_by(self, error: BaseException) -> bool:
        """True if a job failed because the JVM is gone, as opposed to one that failed on a healthy JVM."""
        return self.is_gone(EXIT_GRACE_S if _is_connection_error(error) else 0.0) or any(
            text in _text_of(error) for text in ("stopped SparkContext", "SparkContext was shut down")
        )

    def close(self) -> None:
        """Kills the JVM and forgets PySpark's process-wide references to it, so that a new one can start."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        process = self._process
        if process is not None:
            # A clean stop of a healthy JVM has nothing to save, and of a frozen one never ends.
            process.kill()
            process.wait(10)
            if process.stdin is not None:
                process.stdin.close()
        context = SparkContext._active_spark_context
        if context is not None and getattr(context, "_accumulatorServer", None) is not None:
            context._accumulatorServer.shutdown()
        try:
            self._gateway.shutdown()
        except Exception as error:
            log.debug("Closing the gateway of a dead JVM: %s", error)
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        self._log.join()
        remove_scratch(self._scratch)


def how_ended(code: int | None, memory: str) -> str:
    """Describes how a JVM with that exit code (negative for a signal, None while it runs) ended, as the end of a
    sentence.
    """
    if code in _OUT_OF_MEMORY:
        return f"ran out of memory (spark.driver.memory is {memory})"
    if code == -signal.SIGKILL:
        return "was killed, as the system does when memory runs out"
    return "does not answer" if code is None else f"ended with exit code {code}"


class _LogTail:
    """Reads what the JVM prints, passes it on at debug level and keeps the last lines for an error message."""

    def __init__(self, descriptor: int) -> None:
        self._lines: deque[str] = deque(maxlen=20)
        self._stream = os.fdopen(descriptor, "rb")
        self._thread = threading.Thread(target=self._read, name="spark-log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            for raw in self._stream:
                line = raw.decode(errors="replace").rstrip()
                # The frames of a Java trace would push its first line, the reason, out.
                if line.strip() and not line.lstrip().startswith("at "):
                    self._lines.append(line)
                log.debug("Spark: %s", line)

    def join(self) -> None:
        self._thread.join(2)

    def text(self) -> str:
        """Returns what was printed from the first error on; all that is kept if nothing looks like one."""
        lines = list(self._lines)
        first = next((row for row, line in enumerate(lines) if "Exception" in line or "Error" in line), 0)
        return " | ".join(lines[first:])


def classic_settings(conf: Mapping[str, str], scratch: str) -> dict[str, str]:
    """The settings of a session: the defaults, overridden by `conf`, and the settings that results depend on."""
    settings = {**CLASSIC_SETTINGS, **DEFAULT_SETTINGS, "spark.pyspark.python": sys.executable}
    settings["spark.local.dir"] = scratch
    settings["spark.sql.warehouse.dir"] = os.path.join(scratch, "warehouse")
    if conf.get("spark.master", settings["spark.master"]).partition("[")[0] == "local":
        # Only the JVM itself uses its ports; without a secret every user of the machine could.
        settings["spark.authenticate"] = "true"
        if len(os.fsencode(scratch)) <= _LONGEST_SOCKET_DIR:
            # PySpark's daemon starts a process for each connection to its port, before any message. A socket in a
            # directory of the user's excludes other users.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = scratch
    for name, value in cluster_settings(conf).items():
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value
    settings.update(conf)
    settings.update(REQUIRED_SETTINGS)
    executor_options = conf.get("spark.executor.extraJavaOptions", "")
    settings["spark.executor.extraJavaOptions"] = f"{STACK_OPTION} {NULL_OPTION} {executor_options}".strip()
    user_options = conf.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = (
        f"{JVM_OPTIONS} -Duser.timezone=UTC -Djava.io.tmpdir={scratch} {user_options}".strip()
    )
    return settings


def launch_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that start the JVM: they stand on its command line, which everybody on the machine may read.

    The others, which may have secrets, go to the session over the connection to the JVM.
    """
    return {name: value for name, value in settings.items() if name.startswith(_LAUNCH)}


def _ignore_sigterm(jvm: Any) -> None:
    """Keeps the JVM running when all processes of a service get SIGTERM, as systemd sends it by default.

    PySpark starts it with SIGINT ignored. It ends when its standard input does, which this process holds open.
    """
    try:
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)
    except Exception as error:
        log.debug("The Spark JVM does not ignore SIGTERM: %s", brief(error))


def require_java() -> None:
    """Raises JavaMissingException when neither JAVA_HOME nor PATH has a Java runtime."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return
    if shutil.which("java") is None:
        raise JavaMissingException(
            "no Java runtime was found; install Java 17 or newer (on Debian: apt-get install default-jre-headless) "
            "or set JAVA_HOME"
        )


def brief(error: BaseException) -> str:
    """One line for a log: class and first line of the message; of an exception in the JVM that one's, and its cause."""
    text = _text_of(error).strip()
    lines = text.splitlines()
    reasons = java_reasons(text)
    return f"{type(error).__name__}: {' | caused by '.join(reasons) or (lines[0] if lines else '')}"[:500]


def java_reasons(text: str) -> list[str]:
    """The exception that a trace in the message of a ``Py4JJavaError`` tells of, and its first cause; empty without
    one.
    """
    lines = text.splitlines()
    if len(lines) < 2 or not lines[1].startswith(": "):
        return []
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return [lines[1].removeprefix(": "), *causes[-1:]]


def _text_of(error: BaseException) -> str:
    """Its message; empty where that would have to be asked of a JVM that is gone."""
    try:
        return str(error)
    except Exception:
        return ""


def _is_connection_error(error: BaseException) -> bool:
    """True if an error, or one of its causes, is about the connection to the JVM rather than about the job."""
    seen: BaseException | None = error
    names = {"Py4JNetworkError", "Py4JError", "ArrowInvalid"}
    while seen is not None:
        if isinstance(seen, (OSError, EOFError)) or type(seen).__name__ in names:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


# -------------------------------------------------------------------------------------------------- temporary directory
# The owner of a directory holds a lock in it until its process ends: a process id is not unique if several containers
# or machines share temporary directories.
SCRATCH_PREFIX: Final = "penstock-spark-"
#: Its text is the name of the host: whether a lock of another one is seen depends on the file system.
_OWNER: Final = "owner"
_held: dict[str, int] = {}


def make_scratch() -> str:
    """A directory of this user's, which this process holds; its path."""
    made = tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-")
    descriptor = os.open(os.path.join(made, _OWNER), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, socket.gethostname().encode())
    _held[made] = descriptor
    return made


def remove_scratch(path: str) -> None:
    """Removes a directory that ``make_scratch`` has made; one that is gone is no error."""
    shutil.rmtree(path, ignore_errors=True)
    if (descriptor := _held.pop(path, None)) is not None:
        os.close(descriptor)


def remove_stale_scratch() -> None:
    """Removes the directories of this user and host that no process holds; others are left as they are."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*-*"):
        descriptor = _taken(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _taken(path: Path) -> int | None:
    """The lock of a directory of this user and host whose owner has ended; None for others."""
    try:
        state = path.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
            return None
        descriptor = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(descriptor, 1024).decode(errors="replace") == socket.gethostname():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


# -------------------------------------------------------------------------------------------------------- class archive
# A JVM can only write down its classes when it ends, and PySpark has one JVM in a process. So this module is run as a
# process of its own for that: it starts a session as a worker does, has it do what workers do, and ends it.
#: Starting Spark and writing some 150 MB, on a busy machine.
_TIME_S = 600
#: The expressions of chains; other classes are read from the jars.
_EXPRESSIONS = (
    "to_json(named_struct('line', value, 'n', length(value))) as json",
    "cast(encode(concat('{\"line\":\"', value, '\"}'), 'UTF-8') as binary) as bytes",
    "to_json(try_parse_json(concat('{\"a\":\"', value, '\"}'))) as variant",
    "regexp_replace(value, '^(x+)$', '$1') as replaced",
    "from_json(concat('{\"a\":\"', value, '\"}'), 'a string').a as parsed",
    "if(try_cast(value as bigint) is null, 'none', value) as chosen",
    "transform(array(value), v -> upper(v)) as several",
)


def archive_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """The archive of this Java and this PySpark, whether it is there or not; None without Java."""
    environment = os.environ if environment is None else environment
    java = java_command(environment)
    spark = find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    release = version("pyspark")
    return archive_file(f"spark-classes-{release}", Path(java), [release, spark.origin], environment)


def archive_option() -> str:
    """The JVM option that makes use of the archive; empty when there is none."""
    found = sharing(archive_path())
    return f'"{found[0]}" {found[1]}' if found else ""


def archive_spark(target: Path | None = None) -> Path:
    """Makes the archive, or makes it again; ``target`` None: where workers look for it.

    Raises:
        ArchiveFailedException: there is no Java, Spark does not start, or the file cannot be written.
    """
    target = archive_path() if target is None else target
    if target is None:
        raise ArchiveFailedException("No Java was found: install Java 17 or newer, or set JAVA_HOME")

    def record(made: Path) -> str:
        command = [sys.executable, "-m", __name__, str(made)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_TIME_S, check=False).stderr.strip()
        except subprocess.TimeoutExpired as error:
            return str(error)

    return make_archive(target, record)


def _record(made: str) -> None:
    """Run a session whose JVM writes its classes to this file at its end."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    scratch = os.path.join(os.path.dirname(made), "spark")
    os.mkdir(scratch)
    settings = classic_settings({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made}"}, scratch)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    # Few rows are worked on without a job, many with one.
    for rows in (3, 20_000):
        frame = session.createDataFrame(pa.table({"value": ["x" * 90] * rows}))
        frame.select("*").selectExpr(*_EXPRESSIONS).toArrow()
    process = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    process.stdin.close()
    process.wait(_TIME_S)


# ----------------------------------------------------------------------------------------------------------- allocators
# A batch is made by one thread, converted by another and freed by a third, and a worker with many tasks has a hundred
# threads. Arrow's own choice, mimalloc, keeps what each thread has freed for that thread: with twenty file sources five
# times of what is in use. jemalloc gives it back after a while, and is as fast. All else, messages of the Kafka client
# above all, is from the C library. The GNU one has a heap for each few threads and learns to put even large blocks
# there; between messages that come and go hardly a page of these is ever free. Four sink tasks with messages of 1 KB
# had 200 MB of such holes.
#: Arrow's own way for users to choose.
CHOICE: Final = "ARROW_DEFAULT_MEMORY_POOL"
#: The environment variable for the number of heaps of the GNU C library, and the number.
HEAPS_VARIABLE: Final = "MALLOC_ARENA_MAX"
MOST_HEAPS: Final = 2
#: The settings of the library: the environment variable, its number in ``malloc.h``, the value.
GNU_SETTINGS: Final = (
    (HEAPS_VARIABLE, -8, MOST_HEAPS),
    # A set value no longer grows: blocks of at least this size are pages of their own, returned at once.
    ("MALLOC_MMAP_THRESHOLD_", -3, 256 * 1024),
    ("MALLOC_TRIM_THRESHOLD_", -1, 64 * 1024 * 1024),
)
#: The time for which jemalloc keeps free memory, in milliseconds. The next batches use it again within this time; with
#: the default of a second, four tasks with messages of 1 KB had 70 MB more of unused memory.
DECAY_MS: Final = 300
_GNU_TUNABLES: Final = "GLIBC_TUNABLES"


def choose_memory_pool() -> str:
    """Sets the allocators up, before there are batches, and returns the name of Arrow's pool: jemalloc if it has it.

    Where the environment speaks of one, that one stays as it is.
    """
    _set_up_malloc(os.environ)
    if not os.environ.get(CHOICE) and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
        pa.jemalloc_set_decay_ms(DECAY_MS)
    return str(pa.default_memory_pool().backend_name)


def _set_up_malloc(environment: Mapping[str, str]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or environment.get(_GNU_TUNABLES) or any(name in environment for name, _, _ in GNU_SETTINGS):
        return
    for _, number, value in GNU_SETTINGS:
        mallopt(number, value)


if __name__ == "__main__":
    _record(sys.argv[1])
