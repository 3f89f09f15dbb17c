"""`connect-distributed worker.properties`: a worker that shares the work of a group, and keeps everything in topics.

Exit codes: 0 clean stop, 1 the worker cannot start, 2 wrong usage.
Source: org.apache.kafka.connect.cli.ConnectDistributed.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from penstock import __version__
from penstock.cli.worker.worker import EXIT_START_FAILED, ConnectWorker, Stores, begin, end_process, load_worker
from penstock.cli.worker.worker import run as run_worker
from penstock.herder import Herder
from penstock.herder.control_plane import ControlPlane
from penstock.rest.server import client_context
from penstock.rest.services import SignedRequests, WorkerClient
from penstock.settings import DistributedSettings, ExactlyOnceSourceSupport
from penstock.telemetry import no_probe

if TYPE_CHECKING:
    from penstock.herder.cluster.member import WorkerGroup
    from penstock.herder.cluster.worker_cluster import WorkerCluster

log = logging.getLogger(__name__)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("worker_file", metavar="WORKER.PROPERTIES")
@click.argument("connector_files", nargs=-1, metavar="")
@click.option("--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARN", "ERROR"]))
@click.version_option(__version__, prog_name="connect-distributed")
def main(worker_file: str, connector_files: tuple[str, ...], log_level: str) -> None:
    """Run a worker of a group until SIGINT or SIGTERM. Connectors are created over its REST API."""
    begin(log_level)
    if connector_files:
        raise click.UsageError(
            f"A distributed worker takes no connector files ({connector_files[0]}): its group keeps connectors in a "
            f"topic. Start it, then create them over REST: penstock connectors create {connector_files[0]}"
        )
    end_process(run(worker_file))


def run(worker_file: str, *, probe: Callable[[str], None] = no_probe) -> int:
    """Runs a worker from its start to its end; returns the exit code.

    Args:
        probe: Called at the named points of the data path, for tests that end the process there.
    """
    if (loaded := load_worker(worker_file, DistributedSettings.parse)) is None:
        return EXIT_START_FAILED
    for name, value in loaded[0].defaulted:
        log.warning("The worker's file does not set %s; it is %s", name, value)
    return run_worker(lambda events: DistributedWorker(*loaded, events, probe=probe))


class DistributedWorker(ConnectWorker[DistributedSettings]):
    """The parts of one distributed worker.

    Args:
        probe: Called at the named points of the data path.
    """

    @property
    def exactly_once(self) -> ExactlyOnceSourceSupport | None:
        return self.settings.exactly_once

    @property
    def group_id(self) -> str | None:
        return self.settings.group_id

    def worker_client(self) -> WorkerClient:
        return WorkerClient(lambda: client_context(self.settings.rest_tls_settings()))

    def open_stores(self, opened: ExitStack) -> Stores | None:
        from penstock.kafka.admin import TopicAdmin
        from penstock.kafka.topic_log import internal_topics as log_settings
        from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind, ensure
        from penstock.kafka.topic_log.log import TopicLog
        from penstock.stores.config import ConfigTopicStore
        from penstock.stores.offsets import OffsetTopicStore
        from penstock.stores.status import StatusTopicStore
        from penstock.worker.source.delivery_guarantee import SourceOffsets

        settings, raw = self.settings, self.settings.raw
        topics = [InternalTopic.of(kind, raw) for kind in (Kind.CONFIG, Kind.OFFSET, Kind.STATUS)]
        if self.await_broker() is None:
            return None
        admin = TopicAdmin(log_settings.shared_admin(raw).librdkafka, name="the worker's topics")
        opened.callback(admin.close)
        if not all(self.until_answered(partial(ensure, admin, topic)) for topic in topics):
            return None
        fenced = settings.exactly_once.leader_is_fenced
        exactly_once = settings.exactly_once is ExactlyOnceSourceSupport.ENABLED
        configs, offsets, statuses = (topic.name for topic in topics)
        config = ConfigTopicStore(
            TopicLog(configs, log_settings.config_log(raw, transactional=fenced), admin), transactional=fenced
        )
        offset = OffsetTopicStore(
            TopicLog(offsets, log_settings.offset_log(raw, transactional=exactly_once), admin), offsets
        )
        status = StatusTopicStore(TopicLog(statuses, log_settings.status_log(raw), admin))
        opened.callback(config.stop)
        for store in (offset, status):
            opened.callback(store.stop)
            if not self.until_answered(store.start):
                return None
        # A task that moves to another worker keeps its member id, so that its old member is fenced.
        static_id = settings.group_id if settings.static_members else None
        return Stores(config, status, SourceOffsets(offset, raw, exactly_once=exactly_once), static_id)

    def place(self, herder: Herder, stores: Stores) -> tuple[WorkerGroup, WorkerCluster]:
        from penstock.herder.cluster.leader import FencingRounds, LeaderDuties
        from penstock.herder.cluster.session_keys import Signer, Verifier
        from penstock.herder.cluster.worker_cluster import WorkerCluster
        from penstock.kafka.producer.transaction import fence_zombies

        settings, plane = self.settings, herder.plane
        group = self._group(plane)
        duties = LeaderDuties(plane, group, settings, clock_ms=_now_ms)
        group.on_round = duties.on_round
        signer = Signer(settings.keys.signature, _now_ms, lambda: uuid.uuid4().hex)
        assert self.workers is not None
        others = SignedRequests(self.workers, signer, lambda: plane.snapshot.session_key)
        verifier = Verifier(settings.keys.verified, _now_ms)
        fencing = None
        if settings.exactly_once is ExactlyOnceSourceSupport.ENABLED:
            fencing = FencingRounds(
                plane, group.require_leader, settings.group_id, partial(fence_zombies, settings.raw)
            )
        return group, WorkerCluster(plane, group, duties, verifier, others, self.loggers.set_level, fencing)

    def _group(self, plane: ControlPlane) -> WorkerGroup:
        """The worker's membership in its group, with its metrics."""
        from penstock.herder.cluster.group_metrics import publish_member, publish_rounds
        from penstock.herder.cluster.member import WorkerGroup
        from penstock.kafka.group.member import GroupMember
        from penstock.kafka.group.settings import group_settings

        own = group_settings(self.settings.raw, client_id=f"connect-{plane.worker_id}")
        group = WorkerGroup(plane, self.settings, self.advertised_url, partial(GroupMember, own), clock_ms=_now_ms)
        publish_rounds(self.metrics, lambda: group.place, group.rounds)
        publish_member(self.metrics, lambda: group.place, lambda: group.member.metrics, time.monotonic)
        return group


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
