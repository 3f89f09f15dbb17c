"""`connect-standalone worker.properties [connector1.properties ...]`: one worker in one process.

Main objects: the click command `main`, and `StandaloneWorker`, which wires the parts. The REST server answers first;
Spark and the Kafka client are imported and started after it, on the thread ``startup``.

Threads: the main thread reads arguments, starts, waits for a signal and stops; ``startup`` (owned here) does what takes
long. Exit codes: 0 clean stop, 1 the worker cannot start, 2 wrong usage, 3 a connector of the command line failed.
Source: org.apache.kafka.connect.cli.ConnectStandalone; runtime.md section 1.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from penstock import __version__
from penstock.cli.connector_files import ConnectorFile, read_connector_files, read_text
from penstock.cli.file_limit import raise_file_limit
from penstock.cli.signals import Ending, Events
from penstock.config import ConfigProvider, ConfigTransformer
from penstock.config.properties import parse_properties
from penstock.errors import ConfigException, ConnectException, KafkaException, SparkUnavailableException
from penstock.herder import Health, StandaloneHerder
from penstock.herder.override_checks import parse_policy
from penstock.herder.plugin_catalog import PluginCatalog
from penstock.herder.setting_warnings import worker_warnings
from penstock.herder.validation import ConnectorValidator
from penstock.kafka.collector import collect_rarely
from penstock.plugins import PluginKind, Plugins
from penstock.rest.errors import own_paths
from penstock.rest.services import Services
from penstock.rest.setup import RestSettings, WorkerRest
from penstock.settings.worker import ProviderSettings, StandaloneSettings, resolve_placeholders
from penstock.stores.connectors import FileConnectorStore, StoredConnector
from penstock.telemetry import Metrics, configure_logging
from penstock.worker.active_topics import ActiveTopics
from penstock.worker.threads import OwnedThread

if TYPE_CHECKING:
    from penstock.pipeline.session import SparkRuntime
    from penstock.stores.file import FileOffsetStore
    from penstock.worker.worker import Worker

log = logging.getLogger(__name__)

#: The version of Kafka Connect whose REST API this is; clients decide by it what they may ask.
CONNECT_VERSION = "4.3.0"
EXIT_START_FAILED = 1
EXIT_CONNECTOR_FAILED = 3

_BROKER_TIMEOUT_S = 5.0
#: What stopping may take beyond the deadlines of connectors and tasks.
_STOP_SLACK_S = 15.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("worker_file", metavar="WORKER.PROPERTIES")
@click.argument("connector_files", nargs=-1, metavar="[CONNECTOR.PROPERTIES|CONNECTOR.JSON]...")
@click.option("--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARN", "ERROR"]))
@click.version_option(__version__, prog_name="connect-standalone")
def main(worker_file: str, connector_files: tuple[str, ...], log_level: str) -> None:
    """Run a standalone worker with these connectors until it is told to stop (SIGINT, SIGTERM)."""
    configure_logging({"WARN": "WARNING"}.get(log_level, log_level))
    # A connector written in the current directory is found by its module name; what is installed comes first.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    _exit(run(worker_file, connector_files))


def run(worker_file: str, connector_paths: Sequence[str], *, probe: Callable[[str], None] = lambda point: None) -> int:
    """Runs a worker from its start to its end.

    Args:
        worker_file: The worker's properties.
        connector_paths: The connectors' files.
        probe: Told the named points of the data path, for tests that end the process there.

    Returns:
        The exit code.
    """
    try:
        settings, plugins, transformer = load_worker(worker_file)
    except (ConfigException, ConnectException, KafkaException) as error:
        log.error("The worker cannot start: %s", error)
        return EXIT_START_FAILED
    try:
        files = read_connector_files(connector_paths)
    except ConfigException as error:
        log.error("The worker does not start: %s", error)
        return EXIT_CONNECTOR_FAILED
    events = Events()
    events.install()
    try:
        raise_file_limit()
        collect_rarely()
        worker = StandaloneWorker(settings, plugins, transformer, files, events, probe=probe)
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


def load_worker(path: str) -> tuple[StandaloneSettings, Plugins, ConfigTransformer]:
    """Reads the worker's file: its settings, the plugins it names, and its config providers.

    Raises:
        ConfigException: the file cannot be read, or settings are wrong (all faults are listed).
    """
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

    settings = StandaloneSettings.parse(resolve_placeholders(raw, new_provider))
    # Refused before anything starts; used by what checks connectors.
    parse_policy(settings.override_policy, settings.override_allowlist)
    transformer = ConfigTransformer({one.name: new_provider(one) for one in settings.config_providers})
    RestSettings.of(settings)
    return settings, plugins, transformer


class StandaloneWorker:
    """The parts of one standalone worker.

    Args:
        settings: Of the worker.
        plugins: Where classes come from.
        transformer: Resolves placeholders in connector configurations.
        files: Connectors to create.
        events: Told when the worker cannot go on.
        probe: Told the named points of the data path.

    Thread: ``start`` and ``stop`` by the main thread.
    """

    def __init__(
        self,
        settings: StandaloneSettings,
        plugins: Plugins,
        transformer: ConfigTransformer,
        files: Sequence[ConnectorFile],
        events: Events,
        *,
        probe: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._settings = settings
        self._probe = probe
        self._plugins = plugins
        self._transformer = transformer
        self._files = list(files)
        self._events = events
        self._stopping = threading.Event()
        self._opened = ExitStack()
        self._startup = OwnedThread("startup", self._start_rest_of_it)
        self._herder: StandaloneHerder | None = None
        self._runtime: SparkRuntime | None = None
        self._worker: Worker | None = None
        self._store: FileOffsetStore | None = None
        self._connectors: FileConnectorStore | None = None
        self._stored: dict[str, StoredConnector] = {}
        self._topics = ActiveTopics() if settings.topic_tracking_enable else None
        self.metrics = Metrics()

    def start(self) -> None:
        """Listens, then starts the rest in the background.

        Raises:
            ConnectException: the REST server cannot listen.
        """
        rest = WorkerRest(RestSettings.of(self._settings))
        self._opened.callback(rest.stop)
        self._herder = herder = StandaloneHerder(rest.advertised, self._topics, self._forget)
        herder.start()
        rest.start(
            Services(
                herder,
                CONNECT_VERSION,
                f"penstock-{__version__}",
                PluginCatalog(self._plugins),
                metrics=self.metrics,
                topic_tracking=self._settings.topic_tracking_enable,
                topic_reset=self._settings.topic_tracking_allow_reset,
                own_paths=own_paths(self._settings.raw),
            )
        )
        self._startup.start()

    def stop(self, ending: Ending | None = None) -> None:
        """Stops REST, tasks, connectors, Spark and the offset store, in this order; Spark first while it boots."""
        if ending is not None:
            log.info("Stopping: %s", ending.reason)
        self._stopping.set()
        self._opened.close()
        if self._runtime is not None and not self._runtime.generation:
            # What was read waits for the first session; it is read again, and nobody has to wait for the session.
            self._runtime.stop()
        if self._herder is not None:
            budget = self._settings.task_shutdown_graceful_timeout_ms / 1000 + _STOP_SLACK_S
            if not self._herder.stop(budget):
                log.error("Not everything had ended in time; its last offsets were not committed")
        self._startup.join(_BROKER_TIMEOUT_S)
        if self._runtime is not None:
            self._runtime.stop()
        if self._store is not None:
            self._store.stop()
        if self._connectors is not None:
            self._connectors.stop()
        self._transformer.close()
        if ending is not None:
            log.info("Stopped")

    def _forget(self, connector: str) -> None:
        """Called by the herder when a connector was deleted."""
        self.metrics.remove(connector=connector)

    # ------------------------------------------------------------------ thread "startup"
    def _start_rest_of_it(self) -> None:
        try:
            self._serve()
        except (ConnectException, ConfigException, KafkaException) as error:
            self._give_up(f"The worker cannot start: {error}", EXIT_START_FAILED)
            return
        except Exception as error:
            log.exception("The worker cannot start")
            self._give_up(f"The worker cannot start: {type(error).__name__}: {error}", EXIT_START_FAILED)
            return
        for file in self._files:
            if self._stopping.is_set() or not self._create(file):
                return

    def _serve(self) -> None:
        """Starts Spark, opens the offset store, waits for the broker, and lets the herder serve requests."""
        # Imported here: these bring Spark, Arrow and the Kafka client, which take seconds; REST answers meanwhile.
        from penstock.pipeline.memory_pool import choose_memory_pool
        from penstock.pipeline.session import SparkRuntime
        from penstock.stores.file import FileOffsetStore
        from penstock.stores.identity import kept_id
        from penstock.worker.task_factory import TaskBuilder
        from penstock.worker.task_parts import check_worker_converters
        from penstock.worker.worker import Worker, WorkerParts

        settings, herder = self._settings, self._herder
        assert herder is not None
        if self._stopping.is_set():
            return
        choose_memory_pool()
        self._runtime = runtime = SparkRuntime(settings.spark_settings(), on_failure=self._spark_failed)
        runtime.start()
        self._store = store = FileOffsetStore(settings.offset_file, at_point=self._probe)
        store.start()
        check_worker_converters(settings, self._plugins)
        self._warn_of_settings()
        self._connectors = self._open_connectors()
        policy = parse_policy(settings.override_policy, settings.override_allowlist)
        builder = TaskBuilder(
            settings,
            self._plugins,
            runtime,
            store,
            self.metrics,
            probe=self._probe,
            topics=self._topics,
            static_id=kept_id(settings.offset_file) if settings.static_members else None,
        )
        cluster_id = self._await_broker(herder)
        if cluster_id is None:
            return
        previewer = builder.previewer()
        self._opened.callback(previewer.close)
        parts = WorkerParts(
            worker_id=herder.worker_id,
            plugins=self._plugins,
            transformer=self._transformer,
            offset_reader=builder.offset_reader,
            make_task=builder,
            offsets=builder.connector_offsets(),
            preview=previewer.preview,
            settings=settings.raw,
            spark_up=lambda: runtime.up,
            task_stop_timeout_s=settings.task_shutdown_graceful_timeout_ms / 1000,
            task_gone=builder.forget,
            metrics=self.metrics,
            connector_metrics=builder.connector_metrics,
        )
        self._worker = Worker(parts, herder, herder)
        herder.serve(
            self._worker,
            ConnectorValidator(self._plugins, policy, settings.raw),
            cluster_id,
            store=self._connectors,
            except_for=[file.name for file in self._files],
        )
        log.info("The worker serves; Kafka cluster id %s", cluster_id)

    def _spark_failed(self, error: SparkUnavailableException) -> None:
        """Tasks that wait for data would not find out before there is some. Thread: the session's."""
        if self._worker is not None:
            self._worker.fail_tasks(error)

    def _warn_of_settings(self) -> None:
        """Names settings that nobody reads, and those that tasks with such a client would fail with."""
        for warning in worker_warnings(self._settings.raw, self._plugins):
            log.warning("The worker's setting %s", warning)
        from penstock.kafka.client_settings import refused_for_all
        from penstock.kafka.client_table import ClientKind

        for kind in ClientKind:
            for fault in refused_for_all(kind, self._settings.raw):
                log.error(
                    "The worker's setting %s.%s = %s cannot be used, and tasks with such a client fail: %s",
                    kind.value,
                    fault.name,
                    fault.value,
                    fault.reason,
                )

    def _open_connectors(self) -> FileConnectorStore | None:
        """The store of connectors, read; None when they are to be forgotten."""
        path, offsets = self._settings.connector_file, self._settings.offset_file
        # Offsets in a device such as /dev/null are to be forgotten; connectors have no place beside it.
        beside = self._settings.values["config.storage.file.filename"] is None
        if path is None or (beside and os.path.exists(offsets) and not os.path.isfile(offsets)):
            return None
        store = FileConnectorStore(path)
        store.start()
        self._stored = store.connectors()
        from_files = {file.name for file in self._files}
        kept = [name for name in self._stored if name not in from_files]
        if kept:
            log.info("Connectors kept in %s come back: %s", path, ", ".join(kept))
        return store

    def _await_broker(self, herder: StandaloneHerder) -> str | None:
        """The id of the Kafka cluster, asked for until it answers; None when the worker is to stop first."""
        from penstock.kafka.admin import TopicAdmin
        from penstock.kafka.client_settings import admin_settings

        servers = ",".join(self._settings.bootstrap_servers)
        client = admin_settings(self._settings.raw, client_id="penstock-standalone").checked()
        admin = TopicAdmin(client.librdkafka, name="the worker", timeout_s=_BROKER_TIMEOUT_S)
        try:
            while not self._stopping.is_set():
                try:
                    return admin.cluster_id()
                except KafkaException as error:
                    text = f"Kafka at {servers} does not answer; the worker keeps trying (Ctrl-C ends it)"
                    herder.say(Health.STARTING, f"Worker is starting up. {text}")
                    log.warning("%s: %s", text, error)
                self._stopping.wait(1.0)
            return None
        finally:
            admin.close()

    def _create(self, file: ConnectorFile) -> bool:
        """Creates one connector of the command line; False when that ends the worker."""
        assert self._herder is not None
        stored = self._stored.get(file.name)
        if stored is not None:
            log.warning(
                "Connector %s of the file %s takes the place of the one kept in %s (target state %s), which was made "
                "over REST or by an earlier version",
                file.name,
                file.path,
                self._settings.connector_file,
                stored.target.value,
            )
        try:
            # Its file is its home: also what was made over REST since the worker began to serve gives way.
            created = self._herder.put_connector(
                file.name, file.config, target=file.target, replace=True, kept=False
            ).result()
        except Exception as error:
            reason = f"Stopping after an error of connector {file.name} ({file.path}): {error}"
            self._give_up(reason, EXIT_CONNECTOR_FAILED)
            return False
        log.info("Created connector %s with %d tasks", created.info.name, len(created.info.tasks))
        return True

    def _give_up(self, reason: str, exit_code: int) -> None:
        if not self._stopping.is_set():
            log.error("%s", reason)
            self._events.end(reason.splitlines()[0], exit_code)


def _exit(code: int) -> None:
    """Ends the process, also when a plugin's own thread would keep it alive."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    main_thread = threading.main_thread()
    if any(not thread.daemon and thread is not main_thread for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
