"""Sends large batches through Spark's Python workers, for transforms without state.

They run on all cores there, and on those of a cluster, and the interpreter of the worker is free.

If that is impossible, the same transforms run here, and one warning names the cause: an instance, or the content of a
record, that cannot be pickled; a class that Python workers cannot import. This is checked before the first record is
sent, and remembered while the task runs.

If a Python worker crashes on records, they are not tried here: a transform that ends a process would end this one.
Invariant 6.

Main type: ``Spreader``. Thread: a task's pipeline thread.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from pyspark import cloudpickle

from penstock.api import ConnectRecord
from penstock.errors import ConnectException, SparkUnavailableException
from penstock.pipeline.batch.batches import Failures, InstanceRecipe, Stage, Why
from penstock.pipeline.batch.groups import spreads
from penstock.pipeline.batch.python_workers import Done, SentTransform, StatelessWork, TransformOrder
from penstock.pipeline.batch.row_path import Rows, all_rows, apply_classic
from penstock.pipeline.batch.segments import Classic, Segment, Stateless
from penstock.pipeline.batch.transfer import ShippedRecords, rebuilt
from penstock.pipeline.spark.driver.jvm import brief
from penstock.pipeline.spark.driver.prepared_plan import Mapped

log = logging.getLogger(__name__)


class PythonWorkers(Protocol):
    """The part of ``SparkJobs`` that this module uses."""

    @property
    def parallelism(self) -> int:
        """The number of rows that are processed at once."""
        ...

    def in_python_workers(self, mapped: Mapped, digest: str, rows: Sequence[bytes]) -> list[bytes]:
        """See ``SparkJobs.in_python_workers``."""
        ...


class Spreader:
    """Runs stateless transforms for one task.

    Args:
        workers: The Python workers; None: runs here.
        spent: Receives the time of each transform, by its alias.
    """

    def __init__(self, workers: PythonWorkers | None, spent: Callable[[str, float], None]) -> None:
        self._workers = workers
        self._spent = spent
        #: For each chain the pickled chain, or None if it runs here.
        self._known: dict[Stateless, StatelessWork | None] = {}

    def takes(self, segment: Segment | None, rows: int) -> bool:
        """True if this number of records goes to Python workers; the first call tests if that is possible."""
        workers = self._workers
        if workers is None or not isinstance(segment, Stateless) or not spreads(rows, workers.parallelism):
            return False
        if segment not in self._known:
            self._known[segment] = self._tried(segment, workers)
        return self._known[segment] is not None

    def run(
        self, segment: Stateless, parts: Sequence[ShippedRecords], failures: Failures, *, columns: bool
    ) -> tuple[list[ShippedRecords], Rows]:
        """Runs a chain in Python workers.

        Args:
            segment: The chain; ``takes`` has returned True for it.
            parts: The records.
            failures: Gets failed records.
            columns: True to return columns if possible.

        Returns:
            The results that are columns, and all other records.

        Raises:
            ConnectException: A Python worker has ended while it ran the chain.
        """
        for part in parts:
            failures.went_as_rows(part.rows, Why.STATELESS)
        work = self._known[segment]
        assert work is not None, "it was asked"
        assert self._workers is not None, "they have made it"
        done = self._done(segment, work, self._workers, parts, columns=columns)
        if done is None:
            live = [record for part in parts for record in part.records()]
            rows = [row for part in parts for row in part.rows.tolist()]
            return [], self.here(segment, _in_order(live, rows), failures)
        laid: list[ShippedRecords] = []
        live, rows = [], []
        for one in done:
            for row, number, error in one.errors:
                failures.raised(row, Stage.TRANSFORMATION, segment.chain[number].name, rebuilt(error))
            laid += [part for part in one.parts if part.shape is not None]
            for part in one.parts:
                if part.shape is None:
                    live += part.records()
                    rows += part.rows.tolist()
            live += [record for _, record in one.whole]
            rows += [row for row, _ in one.whole]
        for number, classic in enumerate(segment.chain):
            self._spent(classic.alias, sum(one.seconds[number] for one in done))
        return laid, _in_order(live, rows)

    def here(self, segment: Stateless, given: Rows, failures: Failures) -> Rows:
        """Runs a chain in the worker."""
        failures.went_as_rows(given[1], Why.OWN_CLASS)
        live, rows = given
        for classic in segment.chain:
            started = time.perf_counter()
            live, rows = all_rows(*apply_classic(classic, live, rows, failures))
            self._spent(classic.alias, time.perf_counter() - started)
        return live, rows

    # ------------------------------------------------------------------ finding out
    def _tried(self, segment: Stateless, workers: PythonWorkers) -> StatelessWork | None:
        """Returns the work for a chain, once a Python worker on each core has made it; None if they cannot."""
        try:
            work = StatelessWork(_sent(segment.chain), [os.path.abspath(place) for place in sys.path])
        except Exception as error:
            self._refuse(segment, f"it cannot be sent: {type(error).__name__}: {error}")
            return None
        asked = pickle.dumps(TransformOrder(()), 5)
        try:
            answers = workers.in_python_workers(work, work.digest, [asked] * workers.parallelism)
        except SparkUnavailableException:
            raise
        except Exception as error:
            self._refuse(segment, f"Spark's Python workers do not start, or lack a package: {brief(error)}")
            return None
        refused = next((done.refused for done in map(_read, answers) if done.refused is not None), None)
        if refused is not None:
            self._refuse(segment, f"a Python worker cannot make it: {refused}")
            return None
        return work

    def _refuse(self, segment: Stateless, why: str) -> None:
        """Notes that a chain runs in the worker."""
        self._known[segment] = None
        log.warning("%s: stateless, but run in the worker: %s", _aliases(segment), why)

    def _done(
        self,
        segment: Stateless,
        work: StatelessWork,
        workers: PythonWorkers,
        parts: Sequence[ShippedRecords],
        *,
        columns: bool,
    ) -> list[Done] | None:
        """Returns the results for the records, or None if they or their results cannot be sent."""
        size = -(-sum(map(len, parts)) // workers.parallelism)
        try:
            orders = [pickle.dumps(TransformOrder(some, columns), 5) for some in _cut(parts, size)]
        except Exception as error:
            self._refuse(segment, f"its records cannot be sent: {type(error).__name__}: {error}")
            return None
        try:
            answers = workers.in_python_workers(work, work.digest, orders)
        except SparkUnavailableException:
            raise
        except Exception as error:
            raise ConnectException(
                f"{_aliases(segment)}: a Python worker of Spark has ended while it ran a stateless transform, or could "
                f"not be reached. What it printed is in the log at level DEBUG. {brief(error)}"
            ) from error
        done = [_read(one) for one in answers]
        refused = next((one.refused for one in done if one.refused is not None), None)
        if refused is not None:
            self._refuse(segment, f"what it returns cannot be sent: {refused}")
            return None
        return done


def _read(answer: bytes) -> Done:
    done: Done = pickle.loads(answer)
    return done


def _in_order(live: list[ConnectRecord], rows: list[int]) -> Rows:
    """Records of several parts, by their rows."""
    places = np.argsort(np.asarray(rows, dtype=np.int64), kind="stable").tolist()
    return [live[place] for place in places], [rows[place] for place in places]


def _aliases(segment: Stateless) -> str:
    return ", ".join(f"transforms.{one.alias}" for one in segment.chain)


def _cut(parts: Sequence[ShippedRecords], size: int) -> Iterator[list[ShippedRecords]]:
    """Splits and joins parts so that each lot has the given number of records, the last one the rest."""
    lot: list[ShippedRecords] = []
    room = size
    for part in parts:
        start = 0
        while start < len(part):
            taken = min(room, len(part) - start)
            lot.append(part.slice(start, start + taken))
            start += taken
            room -= taken
            if not room:
                yield lot
                lot, room = [], size
    if lot:
        yield lot


def _sent(chain: Sequence[Classic]) -> bytes:
    """A chain, pickled.

    Raises:
        Exception: An instance can neither be pickled nor be made of its settings.
    """
    members = [
        SentTransform(
            _instance(one.transformation, one.props),
            None if one.predicate is None else _instance(one.predicate, one.predicate_props),
            one.negate,
            one.name,
            one.alias,
        )
        for one in chain
    ]
    return pickle.dumps(members, 5)


def _instance(made: object, props: Mapping[str, object] | None) -> bytes:
    try:
        return _pickled(made)
    except Exception:
        if props is None:
            raise
        return _pickled(InstanceRecipe(type(made), dict(props)))


def _pickled(made: object) -> bytes:
    """Pickles with cloudpickle, which takes classes of a script and functions without a name."""
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    return dumps(made)
