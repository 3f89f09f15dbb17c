"""Sends large batches through Spark's Python workers, for transforms without state.

They run on all cores there, and on those of a cluster, and the interpreter of the worker is free. If that is
impossible, the same transforms run here, and one warning names the cause: an instance, or the content of a record, that
cannot be pickled; a class that Python workers cannot import. This is checked before the first record is sent, and
remembered while the task runs. If a Python worker crashes on records, they are not tried here: a transform that ends a
process would end this one. Invariant 6. A task of Spark takes rows of one column, each a part of a batch as bytes, and
returns one row for each. Only plain data crosses, so a transform's arguments and results arrive unchanged.

Thread: ``Spreader``: a task's pipeline thread. ``StatelessWork``: the one thread of a Python worker, which serves one
task of Spark at a time; later tasks reuse it, and the chains that it has made.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from penstock.api import ConnectRecord, SinkRecord
from penstock.errors import ConnectException, SparkUnavailableException, as_exception
from penstock.pipeline.batch.batches import Failures, InstanceRecipe, Stage, Why
from penstock.pipeline.batch.groups import group_records, spreads
from penstock.pipeline.batch.row_path import Rows, all_rows, apply_classic
from penstock.pipeline.batch.segments import Classic, Segment, Stateless
from penstock.pipeline.batch.transfer import (
    CrossedError,
    ShippedRecords,
    can_be_part,
    described,
    part_of_group,
    part_of_records,
    rebuilt,
)
from penstock.pipeline.spark.jvm import brief

if TYPE_CHECKING:
    from penstock.pipeline.plan.jobs import SparkJobs


_MOST_CHAINS: Final = 32
_SETTLED_AFTER: Final = 4
_tasks = 0
#: The chains of this process, by their pickled bytes.
_chains: dict[str, tuple[Classic, ...]] = {}


@dataclass(frozen=True)
class SentTransform:
    """A transform to be sent: its pickled instance, or an ``InstanceRecipe`` for it; the rest is as in ``Classic``."""

    transformation: bytes
    predicate: bytes | None
    negate: bool
    name: str
    alias: str

    def make(self) -> Classic:
        """Makes the transform, ready to apply."""
        predicate = None if self.predicate is None else _made(self.predicate)
        return Classic(_made(self.transformation), predicate, self.negate, self.name, self.alias)


def _made(sent: bytes) -> Any:
    found = pickle.loads(sent)
    return found.make() if isinstance(found, InstanceRecipe) else found


@dataclass(frozen=True)
class TransformOrder:
    """A request for some records.

    Attributes:
        parts: The records; none to only make the chain.
        columns: True to return columns if possible.
    """

    parts: Sequence[ShippedRecords]
    columns: bool = False


@dataclass
class Done:
    """The result of an order.

    Attributes:
        whole: Records that are pickled unchanged, because their class is a user's own, and their rows.
        errors: The errors of failed records: row, number of the transform in the chain, error.
    """

    parts: list[ShippedRecords] = field(default_factory=list)
    whole: list[tuple[int, ConnectRecord]] = field(default_factory=list)
    errors: list[tuple[int, int, CrossedError]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: str | None = None


class StatelessWork:
    """The function of ``mapInArrow``."""

    def __init__(self, members: bytes, path: Sequence[str]) -> None:
        self._members = members
        self._path = list(path)
        self.column = "part"
        self.schema = "part binary"
        #: Identifies the chain in caches of plans.
        self.digest: str = hashlib.sha256(members).hexdigest()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answers each row, in order."""
        _settle()
        for batch in batches:
            answers = [self.answer(one.as_buffer()) for one in batch.column(0)]
            yield pa.RecordBatch.from_arrays([pa.array(answers, pa.binary())], [self.column])

    def answer(self, sent: Any) -> bytes:
        """Returns the result of an order, pickled. Raises no ``Exception``."""
        # Records are in no cycles, and Spark runs the collector after each task.
        gc.disable()
        try:
            chain = self._chain()
            return pickle.dumps(applied(chain, pickle.loads(sent)), 5)
        except BaseException as error:
            return pickle.dumps(Done(refused=f"{type(error).__name__}: {error}"), 5)
        finally:
            gc.enable()

    def _chain(self) -> tuple[Classic, ...]:
        found = _chains.get(self.digest)
        if found is None:
            sys.path += [place for place in self._path if place not in sys.path]
            members: Sequence[SentTransform] = pickle.loads(self._members)
            while len(_chains) >= _MOST_CHAINS:
                del _chains[next(iter(_chains))]
            found = _chains[self.digest] = tuple(one.make() for one in members)
        return found


def _settle() -> None:
    """Excludes imported objects from garbage collection.

    Spark runs it after each task, over all objects of the process: that takes as long as ten thousand records. The
    first tasks still import modules of Spark's own.
    """
    global _tasks
    _tasks += 1
    if _tasks <= _SETTLED_AFTER:
        gc.freeze()


def applied(chain: Sequence[Classic], order: TransformOrder) -> Done:
    """Applies a chain to records."""
    done = Done(seconds=[0.0] * len(chain))
    for part in order.parts:
        live, rows = part.records(), part.rows.tolist()
        for number, one in enumerate(chain):
            started = time.perf_counter()
            live, rows = _through(one.apply, number, live, rows, done)
            done.seconds[number] += time.perf_counter() - started
        _put(done, live, rows, columns=order.columns)
    return done


def _through(
    apply: Any, number: int, live: list[ConnectRecord], rows: list[int], done: Done
) -> tuple[list[ConnectRecord], list[int]]:
    made: list[ConnectRecord] = []
    kept: list[int] = []
    for record, row in zip(live, rows, strict=True):
        try:
            result = apply(record)
        except BaseException as error:
            done.errors.append((row, number, described(as_exception(error))))
            continue
        if result is not None:
            made.append(result)
            kept.append(row)
    return made, kept


def _put(done: Done, live: list[ConnectRecord], rows: list[int], *, columns: bool) -> None:
    """Adds records to the result."""
    if columns and can_be_part(live):
        live, rows = _laid_out(done, live, rows)
    if can_be_part(live):
        done.parts.append(part_of_records(live, rows))
    else:
        done.whole += zip(rows, live, strict=True)


def _laid_out(done: Done, live: list[ConnectRecord], rows: list[int]) -> tuple[list[ConnectRecord], list[int]]:
    """Adds records that can be columns as columns; returns the others."""
    left = np.ones(len(live), dtype=bool)
    found = group_records(
        live, None, sink=isinstance(live[0], SinkRecord), on_bad=lambda row, side, error: None, mixed=False
    )
    numbers = np.asarray(rows, dtype=np.int64)
    for group in found:
        sides = (group.shape.key, group.shape.value)
        if any(side.is_variant for side in sides):
            continue
        mine = live if group.rows is None else [live[place] for place in group.rows.tolist()]
        done.parts.append(part_of_group(mine, numbers if group.rows is None else numbers[group.rows], group))
        left[slice(None) if group.rows is None else group.rows] = False
    places = np.flatnonzero(left).tolist()
    return [live[place] for place in places], [rows[place] for place in places]


log = logging.getLogger(__name__)


class Spreader:
    """Runs stateless transforms for one task, in Python workers or, without, here."""

    def __init__(self, workers: SparkJobs | None, spent: Callable[[str, float], None]) -> None:
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
        """Runs a chain that ``takes`` accepted in Python workers: the results that are columns, and all other records.

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
    def _tried(self, segment: Stateless, workers: SparkJobs) -> StatelessWork | None:
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
        workers: SparkJobs,
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
