"""``TopicKeeper`` synchronizes topics of the target with the source; ``Timetable`` schedules it.

Owning thread: the connector's in ``start``, then the thread ``partitions``.

Source: org.apache.kafka.connect.mirror.MirrorSourceConnector (computeAndCreateTopicPartitions, syncTopicConfigs,
syncTopicAcls).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from penstock.clients import ClusterAdmin, TopicSetting
from penstock.connectors.mirror.selection import (
    NamePatterns,
    TopicSelection,
    changed_ids,
    rules_to_add,
    settings_changes,
    settings_to_copy,
    source_partitions,
)
from penstock.errors import KafkaException, KafkaRetriableException

log = logging.getLogger(__name__)

#: The wait before a failed action is retried, in seconds, unless it is due earlier.
RETRY_S: Final = 10.0
#: A thread cannot wait for longer than some hundred years.
NEVER_S: Final = 1e9


class Timetable:
    """The due times of several jobs.

    Args:
        every_s: The seconds between two runs of each job, by name; jobs that are not there are never due.
        clock: Seconds.

    >>> table = Timetable({"look": 60.0, "copy": 600.0}, lambda: 0.0)
    >>> table.due(), table.wait_s
    (['look', 'copy'], 0.0)
    >>> table.done("look"), table.failed("copy")
    (None, None)
    >>> table.due(), table.wait_s
    ([], 10.0)
    """

    def __init__(self, every_s: Mapping[str, float], clock: Callable[[], float]) -> None:
        self._every_s = dict(every_s)
        self._clock = clock
        self._next = dict.fromkeys(every_s, clock())

    def due(self) -> list[str]:
        """The jobs that are due."""
        now = self._clock()
        return [name for name, at in self._next.items() if at <= now]

    def done(self, job: str) -> None:
        """Notes that a job was done."""
        self._next[job] = self._clock() + self._every_s[job]

    def failed(self, job: str) -> None:
        """Notes that a job could not be done: it is tried again soon."""
        self._next[job] = self._clock() + min(RETRY_S, self._every_s[job])

    @property
    def wait_s(self) -> float:
        """Seconds until the next job is due."""
        now = self._clock()
        return min((max(0.0, at - now) for at in self._next.values()), default=NEVER_S)


class TopicKeeper:
    """Synchronizes topics, partitions and settings on the target with the source.

    Attributes:
        faults: Errors by source topic: texts for people.

    Args:
        source: The client of the source cluster.
        target: The client of the target cluster.
        selection: The topics.
        unsynced: Settings that are not copied.
        replication_factor: The replication factor of created topics.
        with_defaults: True if the source's defaults are copied.
    """

    def __init__(
        self,
        source: ClusterAdmin,
        target: ClusterAdmin,
        selection: TopicSelection,
        unsynced: NamePatterns,
        *,
        replication_factor: int,
        with_defaults: bool,
    ) -> None:
        self.faults: dict[str, str] = {}
        self._source = source
        self._target = target
        self._selection = selection
        self._unsynced = unsynced
        self._replication_factor = replication_factor
        self._with_defaults = with_defaults
        self._topics: list[str] = []
        self._ids: dict[str, str] = {}
        self._said: set[str] = set()

    def look(self) -> list[dict[str, object]]:
        """Finds topics and partitions of the source, and creates missing ones on the target.

        Returns:
            The partitions that can be mirrored, because they exist on the target.

        Raises:
            KafkaException: One of the clusters does not respond, or does not allow listing topics.
        """
        here = {name: count for name, count in self._source.topics().items() if self._selection.has(name)}
        there = self._target.topics()
        self.faults = {}
        missing = [name for name in here if self._selection.remote(name) not in there]
        settings = self._source.topic_settings(missing)
        mirrored: dict[str, int] = {}
        for name, count in here.items():
            have = there.get(self._selection.remote(name))
            try:
                mirrored[name] = self._make(name, count, have, settings.get(name, {}))
            except KafkaRetriableException:
                raise
            except KafkaException as error:
                self.faults[name] = self._fault(name, have, error)
                # Only partitions that exist on the target are mirrored.
                mirrored[name] = min(count, have or 0)
        self._say()
        self._note_ids(here)
        self._topics = [name for name, count in mirrored.items() if count]
        return source_partitions(self._selection.source, mirrored)

    def copy_settings(self) -> None:
        """Copies settings of topics from the source to the target, where they differ.

        Raises:
            KafkaException: A cluster does not answer, or refuses.
        """
        remote = {name: self._selection.remote(name) for name in self._topics}
        source = self._source.topic_settings(list(remote))
        target = self._target.topic_settings(list(remote.values()))
        for name, other in remote.items():
            if name not in source or other not in target:
                continue
            changed, removed = settings_changes(
                source[name], target[other], self._unsynced, with_defaults=self._with_defaults
            )
            if changed or removed:
                self._target.alter_topic_settings(other, changed, removed)
                log.info("Settings of %s are those of %s now: %s", other, name, ", ".join([*changed, *removed]))

    def copy_rules(self) -> None:
        """Copies access rules of topics from the source to the target.

        Raises:
            KafkaException: A cluster does not answer, or refuses.
        """
        rules = self._source.access_rules()
        if rules is None:
            log.debug("The source cluster has no authorizer: no access rules are copied")
            return
        wanted = rules_to_add(rules, self._selection)
        if wanted and self._target.access_rules() is None:
            log.debug("The target cluster has no authorizer: no access rules are copied")
        elif wanted:
            self._target.add_access_rules(wanted)

    def _make(self, topic: str, count: int, have: int | None, settings: Mapping[str, TopicSetting]) -> int:
        """Makes a topic or partitions, if need be; how many partitions can be mirrored."""
        remote = self._selection.remote(topic)
        if have is None:
            copied = settings_to_copy(settings, self._unsynced, with_defaults=self._with_defaults)
            made = self._target.create_topic(
                remote, partitions=count, replication_factor=self._replication_factor, settings=copied
            )
            if made:
                log.info("Made the topic %s with %d partitions on the target, for %s", remote, count, topic)
        elif have < count:
            self._target.add_partitions(remote, count)
            log.info("The topic %s has %d partitions on the target now, it had %d", remote, count, have)
        return count

    def _fault(self, topic: str, have: int | None, error: KafkaException) -> str:
        remote = self._selection.remote(topic)
        if have is None:
            return (
                f"the topic {remote} cannot be made on the target, so {topic} is not mirrored: {error}. Make it "
                "yourself, give the right to, or look at replication.factor (now "
                f"{self._replication_factor}) and config.properties.exclude"
            )
        return (
            f"the topic {remote} has {have} partitions on the target and cannot get more, so the others of {topic} are "
            f"not mirrored: {error}. Add partitions yourself, or give the right to"
        )

    def _say(self) -> None:
        """Logs new faults."""
        texts = set(self.faults.values())
        for text in sorted(texts - self._said):
            log.warning("%s; tried again at each look for topics", text[:1].upper() + text[1:])
        self._said = texts

    def _note_ids(self, topics: Mapping[str, int]) -> None:
        now = {name: one.topic_id for name, one in self._source.describe(list(topics)).items()}
        for name in changed_ids(self._ids, now):
            log.warning("The topic %s was deleted on the source and made again", name)
        self._ids = now
