"""`connect-standalone worker.properties [connector1.properties ...]`: one worker, which keeps everything in files.

Exit codes: 0 clean stop, 1 the worker cannot start, 2 wrong usage, 3 a connector of the command line failed.
Source: org.apache.kafka.connect.cli.ConnectStandalone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import click

from penstock import __version__
from penstock.cli.configurations import ConnectorFile, read_connector_files
from penstock.cli.worker.worker import EXIT_START_FAILED, ConnectWorker, Events, Stores, begin, end_process, load_worker
from penstock.cli.worker.worker import run as run_worker
from penstock.config import ConfigTransformer
from penstock.errors import ConfigException
from penstock.herder import Herder, Membership
from penstock.plugins import Plugins
from penstock.settings.worker import StandaloneSettings
from penstock.stores.config import FileConnectorStore, LocalConfigStore, StoredConnector
from penstock.stores.status import LocalStatusStore
from penstock.telemetry import no_probe

log = logging.getLogger(__name__)

EXIT_CONNECTOR_FAILED = 3


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("worker_file", metavar="WORKER.PROPERTIES")
@click.argument("connector_files", nargs=-1, metavar="[CONNECTOR.PROPERTIES|CONNECTOR.JSON]...")
@click.option("--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARN", "ERROR"]))
@click.version_option(__version__, prog_name="connect-standalone")
def main(worker_file: str, connector_files: tuple[str, ...], log_level: str) -> None:
    """Run a standalone worker with these connectors until SIGINT or SIGTERM."""
    begin(log_level)
    end_process(run(worker_file, connector_files))


def run(worker_file: str, connector_paths: Sequence[str], *, probe: Callable[[str], None] = no_probe) -> int:
    """Runs a worker from its start to its end; returns the exit code.

    Args:
        probe: Called at the named points of the data path, for tests that end the process there.
    """
    if (loaded := load_worker(worker_file, StandaloneSettings.parse)) is None:
        return EXIT_START_FAILED
    try:
        files = read_connector_files(connector_paths)
    except ConfigException as error:
        log.error("The worker does not start: %s", error)
        return EXIT_CONNECTOR_FAILED
    return run_worker(lambda events: StandaloneWorker(*loaded, events, files=files, probe=probe))


class StandaloneWorker(ConnectWorker[StandaloneSettings]):
    """The parts of one standalone worker.

    Args:
        probe: Called at the named points of the data path.
    """

    def __init__(
        self,
        settings: StandaloneSettings,
        plugins: Plugins,
        transformer: ConfigTransformer,
        events: Events,
        *,
        files: Sequence[ConnectorFile],
        probe: Callable[[str], None] = no_probe,
    ) -> None:
        super().__init__(settings, plugins, transformer, events, probe=probe)
        self._files = list(files)
        self._stored: dict[str, StoredConnector] = {}
        self._config: LocalConfigStore | None = None

    def open_stores(self, opened: ExitStack) -> Stores:
        from penstock.stores.config import kept_id
        from penstock.stores.offset_file import FileOffsetStore
        from penstock.worker.source.delivery_guarantee import SourceOffsets

        offsets = FileOffsetStore(self.settings.offset_file, at_point=self.probe)
        offsets.start()
        opened.callback(offsets.stop)
        connectors = self._open_connectors(opened)
        self._config = LocalConfigStore(connectors, except_for=[file.name for file in self._files])
        statuses = LocalStatusStore()
        static_id = kept_id(self.settings.offset_file) if self.settings.static_members else None
        return Stores(self._config, statuses, SourceOffsets(offsets), static_id)

    def place(self, herder: Herder, stores: Stores) -> tuple[Membership, None]:
        """See ``ConnectWorker``: a standalone worker has no group."""
        return Membership(), None

    def began(self, herder: Herder) -> None:
        """Creates the connectors of the command line, one after the other."""
        for file in self._files:
            if self.stopping.is_set() or not self._create(herder, file):
                return

    def _open_connectors(self, opened: ExitStack) -> FileConnectorStore | None:
        """The store of connectors, after reading it; None if connectors are not kept."""
        path, offsets = self.settings.connector_file, self.settings.offset_file
        # If offsets go to a device such as /dev/null they are not kept; connectors cannot be stored next to it.
        beside = self.settings.config_storage_file_filename is None
        if path is None or (beside and os.path.exists(offsets) and not os.path.isfile(offsets)):
            return None
        store = FileConnectorStore(path)
        store.start()
        opened.callback(store.stop)
        self._stored = store.connectors()
        from_files = {file.name for file in self._files}
        kept = [name for name in self._stored if name not in from_files]
        if kept:
            log.info("Connectors kept in %s come back: %s", path, ", ".join(kept))
        return store

    def _create(self, herder: Herder, file: ConnectorFile) -> bool:
        """Creates one connector of the command line; returns False if its failure ends the worker."""
        stored = self._stored.get(file.name)
        if stored is not None:
            log.warning(
                "Connector %s of the file %s takes the place of the one kept in %s (target state %s), which was made "
                "over REST or by an earlier version",
                file.name,
                file.path,
                self.settings.connector_file,
                stored.target.value,
            )
        assert self._config is not None
        try:
            # The file of the command line wins, also over a connector of this name that was created over REST since the
            # start.
            self._config.in_memory(file.name)
            created = herder.put_connector(file.name, file.config, target=file.target, replace=True).result()
        except Exception as error:
            reason = f"Stopping after an error of connector {file.name} ({file.path}): {error}"
            self.give_up(reason, EXIT_CONNECTOR_FAILED)
            return False
        log.info("Created connector %s with %d tasks", created.view.name, len(created.view.task_configs))
        return True


if __name__ == "__main__":
    main()
