"""Runs of bulk work: their names, markers and decisions, without I/O.

A run continues after its markers, or starts over (``continues``); ``Skipping`` leaves out the rows that a partition has
written before, and detects a query that returns different rows. ``Failure`` is the failure of an attempt on an
executor, encoded in the text of the exception that Spark passes on. The topic of markers is Penstock's own: Kafka
Connect in Java does not read it. Invariant 5. Thread: values; ``Markers``: any.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from penstock.errors import ConnectException, KafkaException, RetriableException, TransactionalIdAuthorizationException
from penstock.kafka.topic_log.clients import LogRecord
from penstock.model.states import Progress
from penstock.stores.offsets import value_bytes

log = logging.getLogger(__name__)

#: Rows of a Spark partition that are one transaction.
PART_ROWS: Final = 200_000
#: The time that a transaction may be open for, as a part of `transaction.timeout.ms`, and at most in seconds.
_PART_OF_TIMEOUT: Final = 0.5
_PART_S: Final = 30.0
#: The number of jobs in a row without progress after which a run fails.
TRIES: Final = 4
#: Descriptions of failed records that a marker has room for.
EXAMPLES: Final = 5


#: The remedy if the markers of a run do not fit what is read now.
_RESET: Final = (
    "have all of it written again: name the run otherwise, or reset the connector's offsets (penstock connectors "
    "offsets reset), which removes its markers"
)


class NotRepeatableException(ConnectException):
    """A query has given other rows than when the run was begun."""


# ------------------------------------------------------------------------------------------------------------- names
@dataclass(frozen=True)
class RunKey:
    """The name of a run."""

    group: str
    connector: str
    run: str

    def transactional_id(self, partition: int) -> str:
        """The transactional id of the writer of a Spark partition.

        >>> RunKey("connect-cluster", "orders", "first").transactional_id(7)
        'connect-cluster-orders-first-7'
        """
        return f"{self.group}-{self.connector}-{self.run}-{partition}"

    def marker(self, partition: int | None) -> bytes:
        """The key of a partition's marker; None: of the run's plan.

        >>> RunKey("connect-cluster", "orders", "first").marker(7)
        b'["connect-cluster","orders","first",7]'
        """
        return _json([self.group, self.connector, self.run, partition])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Marker:
    """The progress of a Spark partition.

    Attributes:
        rows: The number of handled rows of the query, starting at the first.
        sent: Records in Kafka for these rows.
        failed: Rows that were left out because they failed.
        digest: The digest of the rows, to detect a query that returns different ones.
    """

    rows: int = 0
    sent: int = 0
    nbytes: int = 0
    failed: int = 0
    digest: int = 0
    done: bool = False
    examples: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return _json(asdict(self))


@dataclass(frozen=True)
class RunPlan:
    """The terms with which a run was begun.

    Attributes:
        cores: The number of cores by which Spark divided data without partitions of its own.
        source_partition: The frame's, as JSON.
        start: The committed offset that it follows, as JSON; "null" for none.
        end: The frame's source offset, as JSON.
        topic_id: The id of the topic that it writes to; empty if unknown.
        topic: Its name; empty if the rows name their topics.
    """

    partitions: int
    cores: int
    source_partition: str
    start: str
    end: str
    topic_id: str = ""
    topic: str = ""

    def to_bytes(self) -> bytes:
        return _json(asdict(self))


class Markers:
    """The markers and plans of all runs in a topic. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._markers: dict[RunKey, dict[int, Marker]] = {}
        self._plans: dict[RunKey, RunPlan] = {}

    def take(self, records: Sequence[LogRecord]) -> None:
        """Takes records of the topic, in order; skips unreadable ones with a warning."""
        for record in records:
            try:
                self._take(record.key, record.value)
            except (ValueError, TypeError, KeyError) as error:
                log.warning("A record of the bulk topic is not a marker and is ignored: %r (%s)", record.key, error)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        group, connector, name, partition = json.loads(key or b"")
        run = RunKey(group, connector, name)
        given: dict[str, Any] | None = None if value is None else json.loads(value)
        with self._lock:
            if partition is None:
                if given is None:
                    self._plans.pop(run, None)
                else:
                    self._plans[run] = RunPlan(**given)
            elif given is None:
                self._markers.get(run, {}).pop(partition, None)
            else:
                marker = Marker(**{**given, "examples": tuple(given.get("examples", ()))})
                self._markers.setdefault(run, {})[int(partition)] = marker

    def of(self, run: RunKey) -> dict[int, Marker]:
        """The markers of a run, by Spark partition."""
        with self._lock:
            return dict(self._markers.get(run, {}))

    def plan(self, run: RunKey) -> RunPlan | None:
        """The terms with which a run was begun; None if it was not."""
        with self._lock:
            return self._plans.get(run)

    def plans(self, group: str, connector: str) -> dict[RunKey, RunPlan]:
        """The runs of a connector that were begun, with their terms."""
        with self._lock:
            return {run: plan for run, plan in self._plans.items() if (run.group, run.connector) == (group, connector)}

    def entries_of(self, run: RunKey) -> list[tuple[bytes, bytes | None]]:
        """The tombstones that remove a run; its plan goes last, so that the rest is still recognized after a crash."""
        with self._lock:
            gone = [run.marker(partition) for partition in self._markers.get(run, {})]
            if run in self._plans:
                gone.append(run.marker(None))
        return [(key, None) for key in gone]

    def entries_of_connector(
        self, group: str, connector: str, partitions: Collection[str] | None
    ) -> list[tuple[bytes, bytes | None]]:
        """The tombstones that remove runs of a connector.

        Args:
            partitions: The source partitions, as JSON, whose runs go; None: all of them.
        """
        with self._lock:
            known = {*self._markers, *self._plans}
            plans = dict(self._plans)
        gone = [
            run
            for run in known
            if (run.group, run.connector) == (group, connector)
            and (partitions is None or run not in plans or plans[run].source_partition in partitions)
        ]
        return [entry for run in gone for entry in self.entries_of(run)]


# --------------------------------------------------------------------------------------------------------- beginning
def continues(run: RunKey, stored: RunPlan, now: RunPlan) -> bool:
    """True if a run continues after the markers that it finds; False if they belong to something else.

    Args:
        stored: The plan of an earlier run of this name.
        now: The plan of this run. Its partitions are not compared here, see ``same_partitions``.

    Raises:
        ConnectException: The name stands for two pieces of work.
    """
    if stored.source_partition != now.source_partition:
        raise ConnectException(
            f"The run '{run.run}' was begun for the source partition {stored.source_partition}, and is now returned "
            f"for {now.source_partition}: no two runs of a connector have one name. Put the partition into the name, "
            f"or, if the connector reads something else now, {_RESET}"
        )
    if _differ(stored.topic_id, now.topic_id) or _differ(stored.topic, now.topic):
        # The written records are gone with the topic, or are in another one.
        return False
    if stored.start != now.start:
        # The offset was moved since.
        return False
    if stored.end != now.end:
        raise ConnectException(
            f"The run '{run.run}' was begun with the source offset {stored.end}, and is now returned with {now.end}: "
            "the name of a run stands for one piece of work. Name the run after what it reads, so that another range "
            f"has another name; rows that the run has written stay where they are. Or {_RESET}"
        )
    return True


def _differ(one: str, other: str) -> bool:
    """True if both are known and not the same."""
    return bool(one and other) and one != other


def is_over(plan: RunPlan, committed: str) -> bool:
    """True if the offset of a run is committed, so that its markers are of no further use.

    Args:
        committed: The committed offset of its source partition, as JSON.

    >>> is_over(RunPlan(8, 2, "p", "1", "2"), "2"), is_over(RunPlan(8, 2, "p", "1", "2"), "1")
    (True, False)

    The offset of a run that ends where it begins tells nothing:

    >>> is_over(RunPlan(8, 2, "p", "2", "2"), "2")
    False
    """
    return committed == plan.end != plan.start


def canonical(values: Mapping[str, object] | None) -> str:
    """An offset, or a source partition, as JSON that does not depend on the order of its names.

    >>> canonical({"b": 1, "a": None}), canonical(None)
    ('{"a": null, "b": 1}', 'null')
    """
    return json.dumps(json.loads(value_bytes(values) or b"null"), sort_keys=True)


def same_partitions(run: RunKey, stored: RunPlan, partitions: int) -> None:
    """Refuses a run whose query has other Spark partitions than at its start."""
    if stored.partitions != partitions:
        raise NotRepeatableException(
            f"The run '{run.run}' was begun with {stored.partitions} Spark partitions, and its query has {partitions} "
            "now, so the written rows are unknown. Its source has changed, or settings that divide it have "
            f"(spark.sql.files.*, spark.sql.shuffle.partitions). Put that back, or {_RESET}"
        )


# ------------------------------------------------------------------------------------------------------- transactions
@dataclass(frozen=True)
class PartLimits:
    """The size of one transaction."""

    rows: int = PART_ROWS
    seconds: float = _PART_S

    @classmethod
    def within(cls, transaction_timeout_s: float) -> PartLimits:
        """The limits under a `transaction.timeout.ms`.

        >>> PartLimits.within(60.0).seconds, PartLimits.within(10.0).seconds
        (30.0, 5.0)
        """
        return cls(seconds=min(_PART_S, transaction_timeout_s * _PART_OF_TIMEOUT))


def part_ends(limits: PartLimits, *, rows: int, following: int, open_s: float, waited_s: float) -> bool:
    """True if a transaction is to be committed before more rows go into it.

    Args:
        waited_s: The wait for the last rows; the next ones may take as long.

    >>> part_ends(PartLimits(), rows=195_000, following=10_000, open_s=3.0, waited_s=0.1)
    True
    >>> part_ends(PartLimits(), rows=0, following=500_000, open_s=0.0, waited_s=40.0)
    False
    >>> part_ends(PartLimits(), rows=10_000, following=0, open_s=20.0, waited_s=18.0)
    True
    """
    return rows > 0 and (rows + following > limits.rows or open_s + waited_s > limits.seconds)


class Skipping:
    """The rows of a Spark partition that were handled before."""

    def __init__(self, run: RunKey, partition: int, marker: Marker) -> None:
        self._run = run
        self._partition = partition
        self._marker = marker
        self._seen = 0
        self.digest = 0

    def take(self, hashes: np.ndarray) -> int:
        """Looks at rows that the query gives.

        Args:
            hashes: A number for each of them, int64, that is the same for the same row.

        Returns:
            The number of them, starting at the first, that were handled before.

        Raises:
            NotRepeatableException: They are others than they were.
        """
        known = min(len(hashes), self._marker.rows - self._seen)
        if known > 0:
            self.digest = digest(self.digest, hashes[:known])
            self._seen += known
            if self._seen == self._marker.rows and self.digest != self._marker.digest:
                raise self._changed("has other rows now, or gives them in another order")
        self.digest = digest(self.digest, hashes[known:])
        return known

    def end(self) -> None:
        """The query has no more rows.

        Raises:
            NotRepeatableException: It has fewer rows than were handled before.
        """
        if self._seen < self._marker.rows:
            raise self._changed(f"gives {self._seen:,} rows now")

    def _changed(self, how: str) -> NotRepeatableException:
        return NotRepeatableException(
            f"Of Spark partition {self._partition} of the run '{self._run.run}' {self._marker.rows:,} rows are in "
            f"Kafka, but the query {how}: it is not repeatable, or its source, transforms or converters were changed "
            "during the run. Read a fixed state of the source (a snapshot, a version, a range of keys), order rows "
            f"within partitions, and {_RESET}"
        )


def digest(before: int, hashes: np.ndarray) -> int:
    """Adds rows to a digest.

    >>> import numpy as np
    >>> rows = np.array([4, 7, 9])
    >>> digest(0, rows) == digest(digest(0, rows[:1]), rows[1:])
    True
    """
    return zlib.crc32(np.ascontiguousarray(hashes, dtype="<i8").tobytes(), before) if len(hashes) else before


# ------------------------------------------------------------------------------------------------------------- tries
@dataclass
class AttemptCounter:
    """Counts the jobs in a row that got no further.

    Attributes:
        most: The number of tries after which the task fails.
    """

    most: int = TRIES
    count: int = field(default=0, init=False)
    _rows: int = field(default=-1, init=False)

    def again(self, rows: int) -> bool:
        """Notes that a job has failed; True if another one is tried."""
        self.count = 1 if rows > self._rows >= 0 else self.count + 1
        self._rows = rows
        return self.count < self.most


# ---------------------------------------------------------------------------------------------------------- progress
@dataclass(frozen=True)
class Totals:
    """The counts of a run."""

    partitions: int = 0
    rows: int = 0
    sent: int = 0
    nbytes: int = 0
    failed: int = 0

    @classmethod
    def of(cls, markers: Mapping[int, Marker]) -> Totals:
        all_of = markers.values()
        return cls(
            sum(one.done for one in all_of),
            sum(one.rows for one in all_of),
            sum(one.sent for one in all_of),
            sum(one.nbytes for one in all_of),
            sum(one.failed for one in all_of),
        )


def told(run: str, plan: int, began: Totals, now: Totals, seconds: float) -> Progress:
    """The progress of a run.

    >>> told("first", 8, Totals(2, 100), Totals(4, 300_100, 300_000, 69_000_000), 3.0).text
    "run 'first': 300,000 records, 69.0 MB, 100,000/s, some 6 s left"
    >>> told("first", 8, Totals(), Totals(), 0.0).text
    "run 'first': 0 records, 0.0 MB"
    """
    text = f"run '{run}': {now.sent:,} records, {now.nbytes / 1e6:.1f} MB"
    rate = (now.rows - began.rows) / seconds if seconds > 0 else 0.0
    if rate > 0:
        text += f", {rate:,.0f}/s"
    done = now.partitions - began.partitions
    if done > 0 and seconds > 0:
        text += f", some {(plan - now.partitions) * seconds / done:.0f} s left"
    if now.failed:
        text += f", {now.failed:,} left out"
    return Progress(now.partitions, plan, "partitions", text)


#: The marks around a failure in the text of the exception that Spark passes on.
_BEGIN: Final = "penstock-bulk:"
_END: Final = ":penstock-bulk"


@dataclass(frozen=True)
class Failure:
    """The end of an attempt at a partition.

    Attributes:
        final: True if another attempt would end the same way.
    """

    partition: int
    final: bool
    message: str

    def to_text(self) -> str:
        return f"{_BEGIN}{json.dumps([self.partition, self.final, self.message])}{_END}"

    @staticmethod
    def of(error: BaseException) -> Failure | None:
        """The failure that an exception of Spark's carries; None if it carries none."""
        text = str(error)
        start = text.find(_BEGIN)
        end = text.find(_END, start)
        if start < 0 or end < 0:
            return None
        try:
            partition, final, message = json.loads(text[start + len(_BEGIN) : end])
        except ValueError:
            return None
        return Failure(partition, final, message)


class AttemptFailedException(Exception):
    """An attempt at a Spark partition has failed; the text encodes a ``Failure``."""


def is_final(error: Exception) -> bool:
    """True if another attempt would end the same way."""
    if isinstance(error, NotRepeatableException | TransactionalIdAuthorizationException):
        return True
    if isinstance(error, KafkaException | RetriableException):
        return False
    return isinstance(error, ConnectException)


def text_of(error: BaseException) -> str:
    """Returns an error and its causes in one line."""
    found: list[str] = []
    one: BaseException | None = error
    while one is not None and len(found) < 4:
        text = f"{type(one).__name__}: {one}" if not found or str(one) not in found[-1] else ""
        if text:
            found.append(text)
        one = one.__cause__
    return " | caused by ".join(found)
