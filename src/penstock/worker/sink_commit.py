"""When a sink task commits, which of the offsets its ``pre_commit`` returns are committed, and which answers count.

Main types: ``CommitProgress`` (due, in progress, sequence numbers, late answers) and ``accept_offsets`` (what of
``pre_commit``'s answer may be committed). Pure: no thread, clock or I/O.

Owning thread: the task's thread.

Source: ``WorkerSinkTask.commitOffsets`` and ``onCommitCompleted``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.api import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class AcceptedOffsets:
    """What to commit, and what to tell the author of the task.

    Attributes:
        to_commit: Offsets of all partitions asked for: the task's where it gave a valid one, else the last committed.
        changed: Whether that differs from what is committed already.
        warnings: One text for each entry that was ignored because it is wrong.
        notes: One text for each entry that was ignored because it was not asked for.
    """

    to_commit: dict[TopicPartition, OffsetAndMetadata]
    changed: bool
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def accept_offsets(
    returned: Offsets, *, asked: Offsets, committed: Offsets, assigned: Collection[TopicPartition]
) -> AcceptedOffsets:
    """Check what ``pre_commit`` returned. Invariant 2.

    Args:
        returned: The task's answer.
        asked: The current offsets it was asked about: an upper bound for each partition.
        committed: The last committed offsets of the same partitions.
        assigned: Everything the task owns.

    >>> t0, at = TopicPartition("t", 0), OffsetAndMetadata
    >>> accept_offsets({t0: at(7)}, asked={t0: at(9)}, committed={t0: at(5)}, assigned=[t0]).to_commit[t0].offset
    7
    >>> accept_offsets({t0: at(10)}, asked={t0: at(9)}, committed={t0: at(5)}, assigned=[t0]).changed
    False
    """
    accepted = {partition: committed[partition] for partition in asked if partition in committed}
    warnings: list[str] = []
    notes: list[str] = []
    for partition, offset in returned.items():
        where = f"{partition.topic}-{partition.partition}"
        if partition in asked:
            limit = asked[partition].offset
            if offset.offset <= limit:
                accepted[partition] = offset
            else:
                warnings.append(
                    f"Ignoring the offset {offset.offset} that pre_commit returned for {where}: "
                    f"records were delivered up to {limit} only"
                )
        elif partition in assigned:
            notes.append(f"Ignoring the offset {offset.offset} of {where}: pre_commit was not asked for this partition")
        else:
            warnings.append(
                f"Ignoring the offset {offset.offset} that pre_commit returned for {where}: "
                f"the partition is not assigned to this task"
            )
    return AcceptedOffsets(accepted, accepted != dict(committed), warnings, notes)


class CommitProgress:
    """One commit at a time, numbered; answers of older numbers are late and do not count.

    Args:
        interval_s: ``offset.flush.interval.ms``.
        timeout_s: ``offset.flush.timeout.ms``.
        now_s: The first commit is due one interval from here; monotonic, as all moments here.
    """

    def __init__(self, interval_s: float, timeout_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._next_s = now_s + interval_s
        self._started_s = 0.0
        self._sequence = 0
        self.committing = False
        self.successes = 0
        self.failures = 0
        self.skipped = 0

    @property
    def sequence(self) -> int:
        """Number of the latest commit."""
        return self._sequence

    def due(self, now_s: float, *, requested: bool) -> bool:
        """Whether to commit now: nothing is in progress, and it is time or the task asked."""
        return not self.committing and (requested or now_s >= self._next_s)

    def schedule(self, now_s: float) -> None:
        """The next periodic commit is one interval from now."""
        self._next_s = now_s + self._interval_s

    def wait_s(self, now_s: float) -> float:
        """Time until the next thing happens by itself: a commit is due, or the running one times out."""
        until = self._started_s + self._timeout_s if self.committing else self._next_s
        return max(0.0, until - now_s)

    def begin(self, now_s: float) -> int:
        """A commit starts; returns its number."""
        self._sequence += 1
        self._started_s = now_s
        self.committing = True
        return self._sequence

    def end(self, sequence: int, *, failed: bool) -> bool:
        """An answer came; False when it is a late one: a newer commit was begun since."""
        if sequence != self._sequence:
            self.skipped += 1
            return False
        self.committing = False
        if failed:
            self.failures += 1
        else:
            self.successes += 1
        return True

    def give_up_if_late(self, now_s: float) -> bool:
        """Forget a commit without an answer in time: counts as a failure; a new one may begin."""
        if not self.committing or now_s < self._started_s + self._timeout_s:
            return False
        self.committing = False
        self.failures += 1
        return True
