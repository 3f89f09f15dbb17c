"""One worker in one process, in either mode: creates its parts, starts and stops them.

The REST server answers first; Spark and the Kafka client are imported and started after it.

``Events`` turns SIGINT and SIGTERM into events of the main thread; a second signal ends the process at once. Handlers
run between two instructions, so they only use ``SimpleQueue.put`` and ``os._exit``, which are safe there. A second
process (``watchdog``) acts while no handler can run.

Threads: the main thread starts, waits for a signal and stops; ``startup`` (owned here) does the slow steps.
Source: org.apache.kafka.connect.cli.AbstractConnectCli.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from penstock import __version__
from penstock.cli.configurations import read_text
from penstock.cli.worker import watchdog
from penstock.config import ConfigProvider, ConfigTransformer
from penstock.config.properties import parse_properties
from penstock.errors import (
    ConfigException,
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    SparkUnavailableException,
)
from penstock.herder import Health, Herder, HerderParts
from penstock.herder.control_plane import Membership
from penstock.kafka.settings.table import parse_policy
from penstock.plugins import PluginKind, Plugins
from penstock.rest.errors import own_paths
from penstock.rest.server import WorkerRest, listeners_of
from penstock.rest.services import Services, WorkerClient
from penstock.settings.distributed import ExactlyOnceSourceSupport
from penstock.settings.worker import ProviderSettings, WorkerSettings, resolve_placeholders
from penstock.stores.interface import ConfigStore, StatusStore
from penstock.telemetry import Metrics, configure_logging, no_probe
from penstock.telemetry.logs import Loggers
from penstock.threads import OwnedThread
from penstock.validation.plugin_checks import PluginCatalog
from penstock.validation.settings import worker_warnings
from penstock.validation.validator import ConnectorValidator

if TYPE_CHECKING:
    from penstock.herder.cluster.worker_cluster import WorkerCluster
    from penstock.kafka.admin import TopicAdmin
    from penstock.pipeline.spark.session import SparkRuntime
    from penstock.worker.source.delivery_guarantee import SourceOffsets
    from penstock.worker.worker import Worker

log = logging.getLogger(__name__)

FORCED_EXIT = 130
_LOOK_S = 1.0
_WATCHDOG_END_S = 5.0


@dataclass(frozen=True)
class ExitReason:
    """The reason for the end of the process, and its exit code."""

    reason: str
    exit_code: int


class Events:
    """The events that end a worker: signals, or failures reported by other threads.

    Thread: ``install``, ``wait`` and ``restore`` by the main thread; ``end`` from any.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[ExitReason] = SimpleQueue()
        self._first: float | None = None
        self._previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def install(self) -> None:
        """Takes over SIGINT and SIGTERM, and starts the process that kills this one when it cannot react to them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        # A signal to a forked child does not concern this process, and no thread of the child waits for events.
        os.register_at_fork(after_in_child=self._let_go)
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        try:
            self._watchdog = subprocess.Popen(
                # Without site-packages: 10 ms, and only the memory of the interpreter itself.
                [sys.executable, "-I", "-S", watchdog.__file__],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd=os.sep,
            )
        except OSError as error:
            os.close(write_end)
            log.warning("A worker that does not react to signals can only be killed: no process for that: %s", error)
        else:
            self._pipe = write_end
            signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        finally:
            os.close(read_end)

    def restore(self) -> None:
        """Restores the former signal handlers."""
        self._let_go()
        if self._watchdog is None:
            return
        try:
            self._watchdog.wait(_WATCHDOG_END_S)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()

    def end(self, reason: str, exit_code: int) -> None:
        """Requests the end of the process."""
        self._queue.put(ExitReason(reason, exit_code))

    def wait(self) -> ExitReason:
        """Waits for the first reason to end. The caller then stops the worker."""
        while True:
            try:
                ending = self._queue.get(timeout=_LOOK_S)
            except Empty:
                # The handler of a signal that another thread received runs only once this thread runs Python code.
                continue
            self._tell(watchdog.BEGUN)
            return ending

    def _tell(self, what: int) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, bytes([what]))

    def _let_go(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._pipe)
            self._pipe = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        name = signal.Signals(number).name
        if self._first is None:
            self._first = now
            self._queue.put(ExitReason(f"{name} received", 0))
        elif now - self._first > watchdog.SAME_WISH_S:
            os.write(sys.stderr.fileno(), f"{name} again: ending at once\n".encode())
            os._exit(FORCED_EXIT)


#: The surplus of created over dropped objects that starts a collection of the youngest generation, and the intervals of
#: the older ones.
_THRESHOLDS: Final = (300_000, 20, 50)


def collect_rarely() -> None:
    """Configures the collector for a worker process: call it once, after all permanent objects exist.

    A task polls tens of thousands of records, each with several objects and none in a cycle. With Python's defaults the
    collector scans the live ones again and again, which costs more than creating them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def raise_file_limit() -> None:
    """Lets this process open as many files as its user may, as a JVM does for itself.

    Most shells set 1024: a thousand clients of the REST API would leave no files for connectors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("At most %d files and connections can be open; more was refused: %s", soft, error)


_PAUSE_S: Final = 1.0


def is_passing(error: Exception) -> bool:
    """True if Kafka may answer a retry: brokers are unreachable, or are starting."""
    return isinstance(error, KafkaRetriableException) or isinstance(error.__cause__, KafkaRetriableException)


def until_answered(
    call: Callable[[], object],
    stopping: threading.Event,
    tell: Callable[[Exception], None],
    passes: Callable[[Exception], bool] = is_passing,
    pause_s: float = _PAUSE_S,
) -> bool:
    """Makes a call to Kafka, and retries it while brokers do not answer.

    Args:
        call: The call, which may be repeated after a failure.
        tell: Called with each transient error.
        passes: True for a transient error.
        pause_s: The seconds between an error and the retry.

    Returns:
        False if the worker is to stop first.
    """
    while not stopping.is_set():
        try:
            call()
            return True
        except (ConnectException, KafkaException) as error:
            if not passes(error):
                raise
            tell(error)
            stopping.wait(pause_s)
    return False


W = TypeVar("W", bound=WorkerSettings)

#: The version of Kafka Connect whose REST API this is; clients use it to choose their requests.
CONNECT_VERSION: Final = "4.3.0"
EXIT_START_FAILED: Final = 1

_BROKER_TIMEOUT_S: Final = 5.0
#: The time that a stop may take after the deadlines of connectors and tasks.
_STOP_SLACK_S: Final = 15.0


@dataclass(frozen=True)
class Stores:
    """The stores of the data that outlives a worker.

    Attributes:
        config: The configuration; the herder starts it.
        offsets: The offsets of source connectors; the store that all of them share is started.
        static_id: The worker's part of the ids of its static group members; None for dynamic ones.
    """

    config: ConfigStore
    statuses: StatusStore
    offsets: SourceOffsets
    static_id: str | None


def begin(log_level: str) -> None:
    """Prepares the process of a command that runs a worker."""
    configure_logging({"WARN": "WARNING"}.get(log_level, log_level))
    # A connector written in the current directory is found by its module name; installed modules come first.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def load_worker(path: str, parse: Callable[[dict[str, str]], W]) -> tuple[W, Plugins, ConfigTransformer] | None:
    """Reads the worker's file: its settings, the plugins it names, and its config providers; None after an error.

    Args:
        parse: Makes the settings from its content, whose placeholders are resolved.
    """
    try:
        return _load(path, parse)
    except (ConfigException, ConnectException, KafkaException) as error:
        log.error("The worker cannot start: %s", error)
        return None


def _load(path: str, parse: Callable[[dict[str, str]], W]) -> tuple[W, Plugins, ConfigTransformer]:
    try:
        raw = parse_properties(read_text(path))
    except ConfigException as error:
        raise ConfigException(f"worker file {path}: {error}") from error
    plugins = Plugins.discover([entry for entry in raw.get("plugin.path", "").split(",") if entry.strip()])

    def new_provider(settings: ProviderSettings) -> ConfigProvider:
        provider = plugins.new(PluginKind.CONFIG_PROVIDER, settings.class_text)
        assert isinstance(provider, ConfigProvider)
        provider.configure(settings.params)
        return provider

    settings = parse(resolve_placeholders(raw, new_provider))
    # An invalid policy is refused before anything starts; the validator of connectors uses the policy.
    parse_policy(settings.override_policy, settings.override_allowlist)
    transformer = ConfigTransformer({one.name: new_provider(one) for one in settings.config_providers})
    listeners_of(settings)
    return settings, plugins, transformer


def run(make: Callable[[Events], ConnectWorker[W]]) -> int:
    """Runs a worker from its start to its end."""
    events = Events()
    events.install()
    try:
        raise_file_limit()
        collect_rarely()
        worker = make(events)
        try:
            worker.start()
        except (ConfigException, ConnectException) as error:
            log.error("The worker cannot start: %s", error)
            worker.stop()
            return EXIT_START_FAILED
        ending = events.wait()
        worker.stop(ending)
        return ending.exit_code
    finally:
        events.restore()


class ConnectWorker(ABC, Generic[W]):
    """The parts of one worker.

    Args:
        probe: Called at the named points of the data path.

    Thread: ``start`` and ``stop`` by the main thread; methods that subclasses implement, on ``startup``.
    """

    def __init__(
        self,
        settings: W,
        plugins: Plugins,
        transformer: ConfigTransformer,
        events: Events,
        *,
        probe: Callable[[str], None] = no_probe,
    ) -> None:
        self.settings = settings
        self.plugins = plugins
        self.stopping = threading.Event()
        self.probe = probe
        self.metrics = Metrics()
        self.loggers = Loggers()
        self.workers = self.worker_client()
        self.advertised_url = ""
        self._transformer = transformer
        self._events = events
        # The first is closed before the herder ends, the second after it.
        self._in_front = ExitStack()
        self._behind = ExitStack()
        self._startup = OwnedThread("startup", self._start_rest_of_it)
        self._herder: Herder | None = None
        self._runtime: SparkRuntime | None = None
        self._worker: Worker | None = None
        self._cluster_id: str | None = None

    # ------------------------------------------------------------------ for subclasses
    @property
    def exactly_once(self) -> ExactlyOnceSourceSupport | None:
        """The exactly-once support of sources, or None for a worker without it, which checks no settings of it."""
        return None

    @property
    def group_id(self) -> str | None:
        """The group of the workers; None for a worker that has none."""
        return None

    def worker_client(self) -> WorkerClient | None:
        """The client for requests to other workers of the group; None if there is no group."""
        return None

    @abstractmethod
    def open_stores(self, opened: ExitStack) -> Stores | None:
        """Opens the worker's stores; None if the worker is to stop first.

        Args:
            opened: Gets the functions that close them; runs them after everything that uses the stores has ended.
        """

    @abstractmethod
    def place(self, herder: Herder, stores: Stores) -> tuple[Membership, WorkerCluster | None]:
        """The worker's membership in its group, and its part in the group; None if there is no group."""

    def began(self, herder: Herder) -> None:
        """Called when the worker serves."""

    # ------------------------------------------------------------------ lifecycle
    def start(self) -> None:
        """Listens, then starts the rest in the background."""
        rest = WorkerRest(self.settings)
        self.advertised_url = rest.advertised_url
        self._in_front.callback(rest.stop)
        self._herder = herder = Herder(rest.advertised)
        herder.start()
        rest.start(
            Services(
                herder,
                CONNECT_VERSION,
                f"penstock-{__version__}",
                PluginCatalog(self.plugins),
                self.loggers,
                metrics=self.metrics,
                workers=self.workers,
                scheme=urlsplit(self.advertised_url).scheme,
                topic_tracking=self.settings.topic_tracking_enable,
                topic_reset=self.settings.topic_tracking_allow_reset,
                own_paths=own_paths(self.settings.raw),
            )
        )
        self._startup.start()

    def stop(self, ending: ExitReason | None = None) -> None:
        """Stops REST, tasks, connectors, Spark and the stores, in this order; Spark first if it is still starting."""
        if ending is not None:
            log.info("Stopping: %s", ending.reason)
        self.stopping.set()
        self._in_front.close()
        if self._runtime is not None and not self._runtime.generation:
            # Polled records wait for the first session; they are read again after a restart, so the stop need not wait
            # for it.
            self._runtime.stop()
        if self._herder is not None:
            budget = self.settings.task_shutdown_graceful_timeout_ms / 1000 + _STOP_SLACK_S
            if not self._herder.stop(budget):
                log.error("Not everything had ended in time; its last offsets were not committed")
        self._startup.join(_BROKER_TIMEOUT_S)
        if self._runtime is not None:
            self._runtime.stop()
        self._behind.close()
        self._transformer.close()
        if ending is not None:
            log.info("Stopped")

    def await_broker(self) -> str | None:
        """Asks Kafka for the id of the cluster until it answers; None if the worker is to stop first."""
        from penstock.kafka.admin import TopicAdmin
        from penstock.kafka.settings.client import admin_settings

        if self._cluster_id is not None:
            return self._cluster_id
        client = admin_settings(self.settings.raw, client_id="penstock-worker").checked()
        admin = TopicAdmin(client.librdkafka, name="the worker", timeout_s=_BROKER_TIMEOUT_S)
        try:
            self.until_answered(partial(self._learn_cluster, admin), lambda error: isinstance(error, KafkaException))
            return self._cluster_id
        finally:
            admin.close()

    def _learn_cluster(self, admin: TopicAdmin) -> None:
        self._cluster_id = admin.cluster_id()

    def until_answered(self, call: Callable[[], object], passes: Callable[[Exception], bool] = is_passing) -> bool:
        """See the function of that name; health and log report the wait."""
        herder = self._herder
        assert herder is not None
        text = f"Kafka at {','.join(self.settings.bootstrap_servers)} does not answer; the worker keeps trying"

        def tell(error: Exception) -> None:
            herder.say(Health.STARTING, f"Worker is starting up. {text} (Ctrl-C ends it)")
            log.warning("%s (Ctrl-C ends it): %s", text, error)

        return until_answered(call, self.stopping, tell, passes)

    def give_up(self, reason: str, exit_code: int) -> None:
        """Ends a failed worker with this exit code."""
        if not self.stopping.is_set():
            log.error("%s", reason)
            self._events.end(reason.splitlines()[0], exit_code)

    # ------------------------------------------------------------------ thread "startup"
    def _start_rest_of_it(self) -> None:
        try:
            serves = self._serve()
        except (ConnectException, ConfigException, KafkaException) as error:
            self.give_up(f"The worker cannot start: {error}", EXIT_START_FAILED)
            return
        except Exception as error:
            log.exception("The worker cannot start")
            self.give_up(f"The worker cannot start: {type(error).__name__}: {error}", EXIT_START_FAILED)
            return
        if serves:
            assert self._herder is not None
            self.began(self._herder)

    def _serve(self) -> bool:
        """Starts Spark, waits for the broker, opens the stores, and lets the herder serve; False when stopped first."""
        # Imported here: these modules bring Spark, Arrow and the Kafka client, which take seconds; REST answers in the
        # meantime.
        from penstock.pipeline.spark.jvm import choose_memory_pool
        from penstock.pipeline.spark.session import SparkRuntime
        from penstock.worker.backfill_tasks import BackfillPlanner
        from penstock.worker.preview.previewer import Previewer
        from penstock.worker.task_builder import TaskBuilder
        from penstock.worker.task_parts import check_worker_converters
        from penstock.worker.worker import Worker, WorkerParts

        settings, herder = self.settings, self._herder
        assert herder is not None
        if self.stopping.is_set():
            return False
        choose_memory_pool()
        self._runtime = runtime = SparkRuntime(
            settings.spark_settings(),
            executors_timeout_s=settings.spark_executors_timeout_ms / 1000,
            on_failure=self._spark_failed,
        )
        runtime.start()
        check_worker_converters(settings, self.plugins)
        self._warn_of_settings()
        policy = parse_policy(settings.override_policy, settings.override_allowlist)
        stores = self.open_stores(self._behind)
        cluster_id = self.await_broker()
        if stores is None or cluster_id is None:
            return False
        builder = TaskBuilder(
            settings,
            self.plugins,
            runtime,
            stores.offsets,
            self.metrics,
            probe=self.probe,
            note_topics=stores.statuses.note_topics if settings.topic_tracking_enable else None,
            static_id=stores.static_id,
            kafka_cluster_id=cluster_id,
        )
        previewer = Previewer(settings, self.plugins, runtime)
        self._in_front.callback(previewer.close)
        parts = WorkerParts(
            worker_id=herder.worker_id,
            plugins=self.plugins,
            transformer=self._transformer,
            offset_reader=builder.offset_reader,
            make_task=builder,
            plan_backfill=BackfillPlanner(settings, self.plugins, runtime),
            make_backfill=builder.backfill,
            offsets=builder.connector_offsets(),
            preview=previewer.preview,
            settings=settings.raw,
            spark_up=lambda: runtime.up,
            spark_trouble=lambda: runtime.trouble,
            task_stop_timeout_s=settings.task_shutdown_graceful_timeout_ms / 1000,
            task_gone=builder.forget,
            metrics=self.metrics,
            connector_metrics=builder.connector_metrics,
            exactly_once=stores.offsets.exactly_once,
        )
        self._worker = Worker(parts, herder, herder)
        membership, cluster = self.place(herder, stores)
        herder_parts = HerderParts(
            self._worker,
            ConnectorValidator(
                self.plugins, policy, settings.raw, exactly_once=self.exactly_once, group_id=self.group_id
            ),
            stores.config,
            stores.statuses,
            membership,
            cluster_id,
            on_deleted=lambda connector: self.metrics.remove(connector=connector),
            cluster=cluster,
        )
        if not self.until_answered(partial(herder.serve, herder_parts)):
            return False
        log.info("The worker serves; Kafka cluster id %s", cluster_id)
        return True

    def _spark_failed(self, error: SparkUnavailableException) -> None:
        """Fails all tasks at once: a task without data would not notice until data arrives. Thread: the session's."""
        if self._worker is not None:
            self._worker.fail_tasks(error)

    def _warn_of_settings(self) -> None:
        """Names settings that no class reads, and client settings with which tasks would fail."""
        for warning in worker_warnings(self.settings.raw, self.plugins):
            log.warning("The worker's setting %s", warning)
        from penstock.kafka.settings.client import refused_for_all
        from penstock.kafka.settings.table import ClientKind

        for kind in ClientKind:
            for fault in refused_for_all(kind, self.settings.raw):
                log.error(
                    "The worker's setting %s.%s = %s cannot be used, and tasks with such a client fail: %s",
                    kind.value,
                    fault.name,
                    fault.value,
                    fault.reason,
                )


def end_process(code: int) -> None:
    """Ends the process, even if a plugin's own thread would keep it alive."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    main_thread = threading.main_thread()
    if any(not thread.daemon and thread is not main_thread for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)
