"""The herder of a standalone worker: everything runs here, configurations and target states are kept in a store.

Main type: ``StandaloneHerder``. Thread: ``herder``, owned by its ``HerderLoop``, owns the state; the public methods are
for any thread. It never waits for a user's code: requests that do are coroutines, and hold ``ConnectorEntry.bounded``
only for steps that have a deadline.

Source: org.apache.kafka.connect.runtime.standalone.StandaloneHerder; runtime.md sections 3, 11, 12 and 20.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from penstock.errors import (
    AlreadyExistsException,
    BadRequestException,
    ConnectException,
    NotFoundException,
    stack_trace,
)
from penstock.herder.config_infos import ConfigInfos
from penstock.herder.interface import Created, Health
from penstock.herder.loop import HerderLoop
from penstock.herder.offset_changes import OffsetChanges
from penstock.herder.offset_requests import AlterRequest, OffsetEntry
from penstock.herder.questions import Questions
from penstock.herder.registry import ConnectorEntry, Registry, other_name
from penstock.herder.secrets import check_known, unmasked
from penstock.herder.setting_warnings import placeholder_warnings
from penstock.herder.validation import Checked, Validator
from penstock.model import ConnectorStatus, ConnectorTaskId, ConnectorType, State, TargetState, TaskStatus
from penstock.model.payloads import ConnectorView
from penstock.model.preview import GivenRecord, PreviewLimits
from penstock.stores.connectors import ConnectorStore, StoredConnector
from penstock.worker.active_topics import ActiveTopics
from penstock.worker.connector_runner import PreemptedException
from penstock.worker.task_configs import TooManyTasksException, changed, check_count, complete
from penstock.worker.worker import TaskRequest, Worker

log = logging.getLogger(__name__)


class StandaloneHerder:
    """Creates, changes, restarts and deletes the connectors of one process.

    Args:
        worker_id: ``host:port`` of the worker.
        topics: Knows the topics that connectors use.
        on_deleted: Told the name of each connector that was deleted.

    Requests made before ``serve`` wait for it; reads are answered from the first moment.
    """

    def __init__(
        self,
        worker_id: str,
        topics: ActiveTopics | None = None,
        on_deleted: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._topics = topics or ActiveTopics()
        self._on_deleted = on_deleted
        self._store: ConnectorStore | None = None
        # Held while a change is stored and comes into force, so that both happen in the same order.
        self._storing = asyncio.Lock()
        self._stages: dict[str, str] = {}
        self._worker_id = worker_id
        self._loop = HerderLoop("herder")
        self._registry = Registry()
        self._questions = Questions(self._loop, self._registry, self._ready, self._stage, self._stages)
        self._parts: tuple[Worker, Validator] | None = None
        self._served = asyncio.Event()
        self._health = (Health.STARTING, "Worker is starting up.")
        self._cluster_id: str | None = None

    # ------------------------------------------------------------------ life
    def start(self) -> None:
        """Starts the thread."""
        self._loop.start()

    def serve(
        self,
        worker: Worker,
        validator: Validator,
        kafka_cluster_id: str | None,
        *,
        store: ConnectorStore | None = None,
        except_for: Iterable[str] = (),
    ) -> None:
        """Begins to serve requests with this worker, and starts the connectors that are stored.

        Args:
            worker: Runs them.
            validator: Checks configurations.
            kafka_cluster_id: For readers.
            store: Where connectors outlive the worker; None to forget them at its end.
            except_for: Stored connectors that are passed over: the command line has others of these names, which take
                their place when they are put.
        """
        passed_over = set(except_for)
        stored = {} if store is None else store.connectors()

        def begin() -> None:
            self._parts = (worker, validator)
            self._store = store
            self._cluster_id = kafka_cluster_id
            for name, one in stored.items():
                if name not in passed_over:
                    self._add_stored(name, one)
                    self._loop.spawn(f"Starting the stored connector {name}", self._restorer(name))
            self._health = (Health.HEALTHY, "Worker has completed startup and is ready to handle requests.")
            self._served.set()

        self._loop.post(begin)

    def say(self, health: Health, message: str) -> None:
        """What the health endpoint answers from now on."""
        self._health = (health, message)

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stops every task and connector (each with its own deadline), then the thread.

        Returns:
            False when something had to be left behind.
        """
        return self._loop.stop(self._shut_down, timeout_s)

    # ------------------------------------------------------------------ reads
    @property
    def worker_id(self) -> str:
        """``host:port`` of the worker."""
        return self._worker_id

    @property
    def kafka_cluster_id(self) -> str | None:
        """The id of the Kafka cluster; None while it is not known."""
        return self._cluster_id

    def health(self) -> tuple[Health, str]:
        """How the worker is, with a message."""
        return self._health

    def connectors(self) -> Mapping[str, ConnectorView]:
        """All connectors as they are now; never waits."""
        return self._registry.views

    def active_topics(self, name: str) -> list[str]:
        """The topics that a connector has used since they were reset; never waits."""
        return self._topics.of(name)

    def reset_active_topics(self, name: str) -> None:
        """Forgets them."""
        self._topics.reset(name)

    def busy_with(self, name: str) -> str | None:
        """What a request about this connector waits for now, with the time it began; None when nothing."""
        return self._stages.get(name)

    # ------------------------------------------------------------------ requests
    def put_connector(
        self,
        name: str,
        config: Mapping[str, str | None],
        *,
        target: TargetState | None = None,
        replace: bool = False,
        kept: bool = True,
    ) -> Future[Created]:
        """Creates a connector, or with ``replace`` changes one that is there.

        Args:
            name: Its name.
            config: Its settings.
            target: The state to bring it to; None for the one that it has, or STARTED.
            replace: Whether it may be there already.
            kept: False for a connector whose home is a file of the command line: what was stored under its name is
                forgotten, and it does not outlive the worker, whatever is changed about it.

        Returns:
            Done when it has started and its tasks are configured.
        """
        return self._loop.submit(lambda: self._put(name, dict(config), target, replace, kept))

    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> Future[Created]:
        """Changes some settings of a connector; None removes one."""
        return self._loop.submit(lambda: self._patch(name, dict(patch)))

    def delete_connector(self, name: str) -> Future[None]:
        """Ends a connector and forgets it; its offsets stay."""
        return self._loop.submit(lambda: self._delete(name))

    def pause_connector(self, name: str) -> Future[None]:
        """Makes PAUSED the target; done when that is noted, not when it is reached."""
        return self._loop.submit(lambda: self._set_target(name, TargetState.PAUSED))

    def resume_connector(self, name: str) -> Future[None]:
        """Makes STARTED the target; done when that is noted, not when it is reached."""
        return self._loop.submit(lambda: self._set_target(name, TargetState.STARTED))

    def stop_connector(self, name: str) -> Future[None]:
        """Makes STOPPED the target; done when its tasks have ended."""
        return self._loop.submit(lambda: self._set_target(name, TargetState.STOPPED))

    def restart_connector(self, name: str) -> Future[None]:
        """Replaces the connector's instance; its tasks go on unless their configurations change."""
        return self._loop.submit(lambda: self._restart_connector(name))

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[dict[str, object]]:
        """Restarts what matches; answers the status with RESTARTING for that, before it is done."""
        return self._loop.submit(lambda: self._restart_plan(name, include_tasks, only_failed))

    def restart_task(self, name: str, task: int) -> Future[None]:
        """Replaces one task."""
        return self._loop.submit(lambda: self._restart_one_task(name, task))

    def validate_config(self, config: Mapping[str, str | None]) -> Future[ConfigInfos]:
        """Checks a configuration without creating anything."""
        return self._loop.submit(lambda: self._questions.validate(dict(config)))

    def preview(
        self, config: Mapping[str, str | None], records: Sequence[GivenRecord] | None, limits: PreviewLimits
    ) -> Future[dict[str, object]]:
        """Shows what a configuration would do to some records; creates and commits nothing."""
        return self._loop.submit(lambda: self._questions.preview(dict(config), records, limits))

    def explain(self, name: str) -> Future[dict[str, object]]:
        """Settings with their origin, offsets, and what connector and tasks wait for."""
        return self._loop.submit(lambda: self._questions.explain(name))

    def read_offsets(self, name: str) -> Future[Sequence[OffsetEntry]]:
        """The committed offsets of a connector."""
        return self._loop.submit(lambda: self._questions.read_offsets(name))

    def alter_offsets(self, name: str, request: AlterRequest) -> Future[dict[str, object]]:
        """Changes the offsets of a stopped connector; done when every reader sees them."""
        if request.dry_run:
            return self._loop.submit(
                lambda: self._questions.plan_offsets(name, lambda changes: changes.plan_alter(request))
            )
        return self._loop.submit(
            lambda: self._questions.change_offsets(name, "altered", lambda changes: changes.prepare_alter(request))
        )

    def reset_offsets(self, name: str, *, dry_run: bool) -> Future[dict[str, object]]:
        """Removes the offsets of a stopped connector; done when no reader sees them."""
        if dry_run:
            return self._loop.submit(lambda: self._questions.plan_offsets(name, OffsetChanges.plan_reset))
        return self._loop.submit(lambda: self._questions.change_offsets(name, "reset", OffsetChanges.prepare_reset))

    # ------------------------------------------------------------------ from connectors and tasks, any thread
    def request_task_reconfiguration(self, connector: str) -> None:
        """Queues that the connector is asked for its task configurations again."""
        self._loop.spawn(f"Reconfiguring the tasks of {connector}", lambda: self._reconfigure_on_request(connector))

    def restart_tasks(self, connector: str, task_ids: Sequence[int] | None) -> None:
        """Queues restarts of these tasks, or all."""
        self._loop.spawn(f"Restarting tasks of {connector}", lambda: self._restart_some(connector, task_ids))

    def on_connector_state(self, connector: str, state: State, trace: str | None) -> None:
        """A connector says what it is doing."""
        self._loop.post(lambda: self._note_connector(connector, state, trace))

    def on_task_state(self, task: ConnectorTaskId, state: State, trace: str | None) -> None:
        """A task says what it is doing."""
        self._loop.post(lambda: self._note_task(task, state, trace))

    # ------------------------------------------------------------------ the herder's thread
    def _note_connector(self, connector: str, state: State, trace: str | None) -> None:
        entry = self._registry.entries.get(connector)
        if entry is not None:
            entry.status = ConnectorStatus(connector, state, self._worker_id, trace, entry.checked.version)
            self._registry.publish(connector)

    def _note_task(self, task: ConnectorTaskId, state: State, trace: str | None) -> None:
        entry = self._registry.entries.get(task.connector)
        if entry is not None and task.task < len(entry.tasks):
            entry.tasks[task.task] = TaskStatus(task, state, self._worker_id, trace, entry.checked.version)
            self._registry.publish(task.connector)

    async def _ready(self) -> tuple[Worker, Validator]:
        await self._served.wait()
        assert self._parts is not None
        return self._parts

    async def _put(
        self, name: str, config: dict[str, str | None], target: TargetState | None, replace: bool, kept: bool = True
    ) -> Created:
        worker, validator = await self._ready()
        known = self._registry.entries.get(name)
        config = {**config, "name": name}
        if known is not None:
            config = unmasked(config, known.config, known.checked.secrets)

        def check() -> tuple[dict[str, str], dict[str, str], Checked]:
            given = {key: value for key, value in config.items() if value is not None}
            found = worker.resolvable(given)
            checked = validator(config, {**config, **found.complete()})
            for warning in (*checked.warnings, *placeholder_warnings(found.unresolved)):
                log.warning("Connector %s: %s", name, warning)
            return given, found.data, checked

        with self._stage(name, "validating the configuration"):
            given, resolved, checked = await self._loop.off_loop(f"validate-{name}", check)
        check_known(given, checked.secrets)
        while True:
            await self._settled(name)
            async with self._no_offset_change(name), self._storing:
                entry = self._registry.entries.get(name)
                if entry is not None and entry.gone:
                    continue
                if entry is not None and not replace:
                    raise AlreadyExistsException(f"Connector {name} already exists")
                created = entry is None
                state = target or (TargetState.STARTED if entry is None else entry.target)
                kept = kept and (entry is None or entry.kept)
                await self._keep(name, StoredConnector(given, state, checked.secrets), kept)
                if entry is None:
                    entry = ConnectorEntry(name, given, resolved, checked, state)
                    self._registry.entries[name] = entry
                entry.config, entry.checked, entry.target, entry.kept = given, checked, state, kept
                self._registry.publish(name)
                break
        await self._start_instance(worker, entry, resolved)
        return Created(created, entry.view().info())

    async def _keep(self, name: str, connector: StoredConnector, kept: bool) -> None:
        """Stores a connector; or, when its home is a file, sees to it that none of its name is stored."""
        store = self._store
        if store is None:
            return
        if not kept and name in self._registry.entries:
            log.info("Connector %s is one of the command line: what is changed lasts until the worker ends", name)
        await self._loop.off_loop(f"store-{name}", lambda: store.put(name, connector) if kept else store.remove(name))

    def _add_stored(self, name: str, stored: StoredConnector) -> None:
        """Shows a stored connector; what it is, its validation tells."""
        checked = Checked(ConnectorType.UNKNOWN, secrets=stored.secrets)
        self._registry.entries[name] = entry = ConnectorEntry(name, dict(stored.config), {}, checked, stored.target)
        entry.status = ConnectorStatus(name, State.UNASSIGNED, self._worker_id)
        self._registry.publish(name)

    def _restorer(self, name: str) -> Callable[[], Coroutine[object, object, None]]:
        async def restore() -> None:
            entry = self._registry.entries.get(name)
            if entry is None or entry.gone:
                return
            try:
                await self._put(name, dict(entry.config), None, True)
            except Exception as error:
                # What was taken once is kept, and shown with the reason why it does not run.
                if entry.checked.type is ConnectorType.UNKNOWN and not entry.gone:
                    self._note_connector(name, State.FAILED, stack_trace(error))
                raise

        return restore

    @contextmanager
    def _stage(self, name: str, doing: str) -> Iterator[None]:
        """Says what requests about a connector wait for."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"{doing} of connector {name}, which began at {since}"
        self._stages[name] = text
        try:
            yield
        finally:
            if self._stages.get(name) == text:
                del self._stages[name]

    async def _patch(self, name: str, patch: dict[str, str | None]) -> Created:
        await self._ready()
        entry = self._registry.entry(name, f"Connector {name} not found")
        inside = patch.get("name", name)
        if inside is None:
            raise BadRequestException("The name of a connector cannot be removed from its configuration")
        if inside != name:
            raise other_name(name, inside)
        merged = {**entry.config, **unmasked(patch, entry.config, entry.checked.secrets)}
        return await self._put(name, {key: value for key, value in merged.items() if value is not None}, None, True)

    @asynccontextmanager
    async def _no_offset_change(self, name: str) -> AsyncIterator[None]:
        """Waits until a request about the connector's offsets has ended, and lets none begin meanwhile."""
        while (entry := self._registry.entries.get(name)) is not None:
            async with entry.offsets:
                if self._registry.entries.get(name) is entry:
                    yield
                    return
        yield

    async def _settled(self, name: str) -> ConnectorEntry | None:
        """The entry of that name, after a deletion under way has ended."""
        while (entry := self._registry.entries.get(name)) is not None and entry.gone:
            async with entry.bounded:
                pass
        return entry

    async def _start_instance(self, worker: Worker, entry: ConnectorEntry, resolved: dict[str, str]) -> None:
        """Replaces the connector's instance, waits for its start, and configures its tasks."""
        async with entry.bounded:
            # First, so that whoever asks the one that ends now knows why it does not answer.
            entry.instance += 1
            instance = entry.instance
            await self._end_instance(worker, entry.name)
            if entry.gone:
                raise NotFoundException(f"Connector {entry.name} was deleted meanwhile")
            entry.resolved = resolved
            target = entry.target
            started = worker.start_connector(entry.name, resolved, target)
        try:
            with self._stage(entry.name, "calling start()"):
                await asyncio.wrap_future(started)
        except Exception:
            # A pause, stop or resume that came while it started decides on its own.
            if entry.instance == instance and entry.target is target:
                raise
            return
        await self._reconfigure(worker, entry, instance)

    async def _end_instance(self, worker: Worker, name: str) -> None:
        ended = asyncio.wrap_future(worker.stop_connector(name))
        await asyncio.wait({ended}, timeout=worker.connector_stop_timeout_s)
        worker.forget_connector(name)

    async def _end_tasks(self, worker: Worker, tasks: Iterable[ConnectorTaskId]) -> None:
        """Ends tasks side by side; each has its own deadline."""
        tasks = list(tasks)
        if tasks:
            await asyncio.wait({asyncio.wrap_future(worker.stop_task(task)) for task in tasks})
        for task in tasks:
            worker.forget_task(task)

    async def _reconfigure(self, worker: Worker, entry: ConnectorEntry, instance: int) -> None:
        """Asks the connector for its tasks and restarts them when they changed."""
        if entry.target is not TargetState.STARTED:
            return
        checked = entry.checked
        try:
            with self._stage(entry.name, "calling task_configs()"):
                plan = await asyncio.wrap_future(worker.task_plan(entry.name, checked.max_tasks))
            if checked.enforce_max_tasks:
                check_count(entry.name, len(plan.configs), checked.max_tasks)
        except Exception as error:
            if entry.instance != instance or entry.gone or entry.target is not TargetState.STARTED:
                return
            if worker.connector_running(entry.name):
                worker.fail_connector(entry.name, error)
            if isinstance(error, TooManyTasksException):
                raise
            raise ConnectException(f"Connector {entry.name} failed to configure its tasks: {error}") from error
        if len(plan.configs) > checked.max_tasks:
            log.warning("Connector %s has %d tasks, more than tasks.max", entry.name, len(plan.configs))
        configs = complete(
            plan.configs,
            task_class=plan.task_class,
            sink=checked.type is ConnectorType.SINK,
            raw=entry.config,
            resolved=entry.resolved,
        )
        async with entry.bounded:
            if entry.instance != instance or entry.gone or entry.target is not TargetState.STARTED:
                return
            if not changed(
                configs, entry.task_configs, connector_now=entry.config, connector_then=entry.applied_config
            ):
                return
            await self._end_tasks(worker, entry.task_ids())
            entry.task_configs = configs
            entry.applied_config = dict(entry.config)
            entry.tasks = [
                TaskStatus(task, State.UNASSIGNED, self._worker_id, None, checked.version) for task in entry.task_ids()
            ]
            self._registry.publish(entry.name)
            for task in entry.task_ids():
                await self._start_task(worker, entry, task)

    async def _start_task(self, worker: Worker, entry: ConnectorEntry, task: ConnectorTaskId) -> None:
        config = dict(entry.task_configs[task.task])

        def resolved() -> tuple[dict[str, str], dict[str, str]]:
            # What a task was given is the connector's word: a text in it that looks like a placeholder may be none.
            return worker.resolve(entry.config), worker.resolvable(config).data

        try:
            connector_config, task_config = await self._loop.off_loop(f"resolve-{task}", resolved)
        except Exception as error:
            worker.startups.task().reached(State.FAILED)
            self._note_task(task, State.FAILED, stack_trace(error))
            return
        request = TaskRequest(
            task,
            entry.checked.type,
            connector_config,
            task_config,
            lambda: worker.resolvable(config).data,
            entry.target is TargetState.PAUSED,
            len(entry.task_configs),
        )
        worker.start_task(request, entry.checked.max_tasks if entry.checked.enforce_max_tasks else None)

    async def _delete(self, name: str) -> None:
        worker, _ = await self._ready()
        store = self._store
        async with self._no_offset_change(name), self._storing:
            entry = self._registry.entry(name, f"Connector {name} not found")
            if store is not None:
                await self._loop.off_loop(f"store-{name}", lambda: store.remove(name))
            entry.gone = True
        with self._stage(name, "ending the tasks"):
            async with entry.bounded:
                await self._end_tasks(worker, entry.task_ids())
                await self._end_instance(worker, name)
                self._registry.entries.pop(name, None)
                self._registry.publish(name)
                self._topics.reset(name)
                self._on_deleted(name)
        log.info("Deleted connector %s", name)

    async def _set_target(self, name: str, target: TargetState) -> None:
        worker, _ = await self._ready()
        async with self._no_offset_change(name), self._storing:
            entry = self._registry.entry(name, f"Unknown connector {name}")
            await self._keep(name, StoredConnector(entry.config, target, entry.checked.secrets), entry.kept)
            entry.target = target
            self._registry.publish(name)
        if entry.instance == 0:
            # It has never run: a stored one whose class is missing, or one that is about to start with this target.
            if entry.checked.type is ConnectorType.UNKNOWN and target is not TargetState.STARTED:
                self._note_connector(name, State(target.value), None)
            elif entry.checked.type is ConnectorType.UNKNOWN:
                self._loop.spawn(f"Resuming {name}", self._restorer(name))
            return
        instance = entry.instance
        reached = worker.transition_connector(name, target)
        if target is TargetState.STOPPED:
            with self._stage(name, "ending the tasks"):
                async with entry.bounded:
                    if entry.target is target and not entry.gone:
                        await self._end_tasks(worker, entry.task_ids())
                        entry.task_configs, entry.applied_config, entry.tasks = [], None, []
                        self._registry.publish(name)
        for task in entry.task_ids():
            (worker.resume_task if target is TargetState.STARTED else worker.pause_task)(task)

        async def follow() -> None:
            try:
                await asyncio.wrap_future(reached)
            except PreemptedException as error:
                log.info("%s", error)
                return
            if target is TargetState.STARTED and entry.instance == instance:
                await self._reconfigure(worker, entry, instance)

        self._loop.spawn(f"Changing the state of {name} to {target.value}", follow)

    async def _restart_connector(self, name: str) -> None:
        worker, _ = await self._ready()
        async with self._no_offset_change(name):
            entry = self._registry.entry(name, f"Unknown connector: {name}")
        if entry.checked.type is ConnectorType.UNKNOWN:
            await self._restorer(name)()
            return
        # A secret that cannot be read must not end what runs.
        resolved = await self._loop.off_loop(f"resolve-{name}", lambda: worker.resolve(entry.config))
        entry.mark_restarting(True, [])
        self._registry.publish(name)
        await self._start_instance(worker, entry, resolved)

    async def _restart_one_task(self, name: str, number: int) -> None:
        worker, _ = await self._ready()
        entry = self._registry.entry(name, f"Unknown connector: {name}")
        if not 0 <= number < len(entry.task_configs):
            raise NotFoundException(f"Task {name}-{number} not found")
        await self._loop.off_loop(f"resolve-{name}", lambda: worker.resolve(entry.config))
        await self._replace_tasks(worker, entry, [number])

    async def _replace_tasks(self, worker: Worker, entry: ConnectorEntry, numbers: Iterable[int]) -> None:
        async with entry.bounded:
            if entry.gone:
                return
            tasks = [task for task in entry.task_ids() if task.task in set(numbers)]
            entry.mark_restarting(False, [task.task for task in tasks])
            self._registry.publish(entry.name)
            await self._end_tasks(worker, tasks)
            for task in tasks:
                await self._start_task(worker, entry, task)

    async def _restart_plan(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, object]:
        worker, _ = await self._ready()
        async with self._no_offset_change(name):
            entry = self._registry.entry(name, f"Unknown connector: {name}")
        if entry.status is None:
            raise NotFoundException(f"Status for connector {name} not found")
        connector = not only_failed or entry.status.state is State.FAILED
        tasks = [
            number
            for number, task in enumerate(entry.tasks)
            if include_tasks and (not only_failed or task.state is State.FAILED)
        ]
        resolved = await self._loop.off_loop(f"resolve-{name}", lambda: worker.resolve(entry.config))
        entry.mark_restarting(connector, tasks)
        self._registry.publish(name)

        async def restart() -> None:
            if tasks:
                await self._replace_tasks(worker, entry, tasks)
            if connector:
                await self._start_instance(worker, entry, resolved)

        answer = entry.view().status_json()
        self._loop.spawn(f"Restarting {name}", restart)
        assert answer is not None
        return answer

    async def _restart_some(self, name: str, numbers: Sequence[int] | None) -> None:
        worker, _ = await self._ready()
        entry = self._registry.entries.get(name)
        if entry is not None and not entry.gone:
            await self._replace_tasks(worker, entry, range(len(entry.task_configs)) if numbers is None else numbers)

    async def _reconfigure_on_request(self, name: str) -> None:
        worker, _ = await self._ready()
        entry = self._registry.entries.get(name)
        # While it starts, the start itself asks for the tasks afterwards.
        if entry is None or entry.gone or entry.reconfigure_queued or not worker.connector_running(name):
            return
        entry.reconfigure_queued = True
        # Requests that come in one go are served once.
        await asyncio.sleep(0)
        entry.reconfigure_queued = False
        await self._reconfigure(worker, entry, entry.instance)

    async def _shut_down(self) -> None:
        self._health = (Health.UNHEALTHY, "Worker is shutting down.")
        if self._parts is None:
            return
        worker, _ = self._parts

        async def end(entry: ConnectorEntry) -> None:
            entry.gone = True
            async with entry.bounded:
                await self._end_tasks(worker, entry.task_ids())
                await self._end_instance(worker, entry.name)
                self._registry.entries.pop(entry.name, None)

        await asyncio.gather(*(end(entry) for entry in list(self._registry.entries.values())))
