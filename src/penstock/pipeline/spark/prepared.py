"""Queries that Spark has planned and compiled, kept to be run again with other rows.

Of a batch of fifty thousand records planning takes a third, of one of twenty nearly all: to analyse, optimize and plan
it, and to write the code that is compiled for it. All this depends on the plan and the schema of its input alone. A
DataFrame keeps its physical plan, and that its RDD; at the end of it are partitions that hold Arrow messages. To run it
again with other rows is to put other messages in their place. These go with the tasks wherever they run: kept in the
block store of a local driver's JVM instead, chains and converters took the same processor time within 6 %.

What may be kept is a chain of projections, and every expression of it has to give the same for the same row at any
time: one that holds the time or a random number of its planning would repeat it.

Main types: ``PreparedQuery``, which one thread uses at a time, ``PreparedQueries`` (those that nobody uses now), and
``prepare``. Invariant 6.

Thread: any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.pipeline.spark.driver_calls import assign, call, class_name, element, forget

log = logging.getLogger(__name__)

#: How many are kept that nobody uses.
MAX_IDLE: Final = 64
#: What stands between the rows that go in and those that come out; else another job or its result may be part of it.
_PROJECTING: Final = frozenset(
    {"WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "MapInArrowExec", "ColumnarToRowExec"}
)
_SCAN: Final = "RDDScanExec"
#: A session may be set to take batches for small up to a size that nobody wants to fill for nothing.
_MOST_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """A DataFrame in the JVM whose rows can be replaced.

    Attributes:
        java: The DataFrame.
        arrays: An array for each of its partitions, in the JVM, with room for one Arrow message.
    """

    java: Any
    arrays: Sequence[Any]

    def assign(self, messages: Sequence[bytes | None]) -> None:
        """Puts in a message for each partition; None takes it out."""
        for array, message in zip(self.arrays, messages, strict=True):
            assign(array, 0, message)

    def fill(self, messages: Any) -> None:
        """Puts in the messages of a Java iterator."""
        for array in self.arrays:
            # Takes the next one, as many as the array has room for.
            call(messages, "copyToArray", array)

    def empty(self) -> None:
        """Takes the messages out."""
        self.assign([None] * len(self.arrays))

    def forget(self) -> None:
        """Lets the JVM forget it."""
        forget((*self.arrays, self.java))


class PreparedQueries:
    """Prepared queries that nobody uses now; those that were not used for longest are forgotten. Thread: any."""

    def __init__(self, most: int = MAX_IDLE) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, PreparedQuery]] = []

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, key: Hashable) -> PreparedQuery | None:
        """Takes a query of this key, for the caller alone; None if there is none."""
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == key:
                    return self._idle.pop(index)[1]
        return None

    def put(self, key: Hashable, query: PreparedQuery) -> None:
        """Puts back a query that can be used again."""
        with self._lock:
            self._idle.append((key, query))
            dropped = [old for _, old in self._idle[: -self._most]]
            del self._idle[: len(dropped)]
        for old in dropped:
            old.forget()


def prepare(session: Any, schema: str, parts: int, select: Callable[[list[Any]], None]) -> PreparedQuery | None:
    """Makes a query; its partitions hold a stand-in until they are filled.

    Args:
        session: A classic session.
        schema: Of its input, as Spark's JSON.
        parts: How many partitions it takes.
        select: Gets a list that ends with the input, as a DataFrame in the JVM; adds what is selected of it, step by
            step.

    Returns:
        None when the plan has to be made for each batch: it is more than projections, or what it gives depends on when
        or how often it is planned.
    """
    made: list[Any] = []
    try:
        rows = _no_rows(session, parts)
        if rows is None:
            return None
        made.append(rows)
        made.append(session._jvm.PythonSQLUtils.toDataFrame(rows, schema, session._jsparkSession))
        select(made)
        read = _read(session, made[-1])
        if read is None or call(read, "getNumPartitions") != parts:
            return None
        partitions = call(read, "partitions")
        arrays = [call(call(element(partitions, index), "values"), "unsafeArray") for index in range(parts)]
        return PreparedQuery(made.pop(), arrays)
    finally:
        forget(made)


def _no_rows(session: Any, parts: int) -> Any:
    """A stand-in for Arrow messages, too large to be evaluated while Spark plans."""
    jvm = session._jvm
    settings = call(call(session._jsparkSession, "sessionState"), "conf")
    nbytes = int(call(settings, "arrowLocalRelationThreshold")) // parts + 1
    if nbytes > _MOST_BYTES:
        return None
    filler = session._sc._gateway.new_array(jvm.byte, nbytes)
    copies = call(jvm.java.util.Collections.nCopies(parts, filler), "iterator")
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(copies)


def _read(session: Any, java: Any) -> Any:
    """The RDD of the rows that a query reads; None = it cannot be run again with others."""
    query = call(java, "queryExecution")
    analyzed = call(query, "analyzed")
    now = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if not call(analyzed, "deterministic") or call(analyzed, "containsPattern", now):
        return None
    node = call(query, "executedPlan")
    while (kind := class_name(node)) in _PROJECTING:
        node = call(node, "child")
    if kind != _SCAN:
        log.debug("A plan with %s is made again for each batch", kind)
        return None
    return call(node, "rdd")
