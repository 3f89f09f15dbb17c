"""The work in Spark's Python workers: a chain of stateless transforms over parts of a batch, record by record.

A task of Spark takes rows of one column, each a part of a batch as bytes, and returns one row for each. This module
does not use Spark, and only plain data crosses, so the arguments and results of a transform arrive unchanged in the
worker.

Main types: ``Members`` (a chain as it is sent), ``StatelessWork`` (the function of a plan) and ``Done`` (the result of
a part).

Thread: the one thread of a Python worker, which serves one task of Spark at a time. Later tasks reuse it, and the
chains that it has made.
"""

from __future__ import annotations

import gc
import hashlib
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, SinkRecord
from penstock.errors import as_exception
from penstock.pipeline.batch.batches import InstanceRecipe
from penstock.pipeline.batch.groups import group_records
from penstock.pipeline.batch.segments import Classic
from penstock.pipeline.batch.transfer import (
    CrossedError,
    ShippedRecords,
    can_be_part,
    described,
    part_of_group,
    part_of_records,
)

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
        parts: The remaining records.
        whole: Records that are pickled unchanged, because their class is a user's own, and their rows.
        errors: The errors of failed records: row, number of the transform in the chain, error.
        seconds: The time of each transform of the chain.
        refused: The reason why the order was not executed.
    """

    parts: list[ShippedRecords] = field(default_factory=list)
    whole: list[tuple[int, ConnectRecord]] = field(default_factory=list)
    errors: list[tuple[int, int, CrossedError]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: str | None = None


class StatelessWork:
    """The function of ``mapInArrow``.

    Args:
        members: The chain, pickled.
        path: The import path of the sender's classes.
    """

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
