"""Where a prepared query finds the rows of each batch: in arrays that go with its tasks, or in Spark's block store.

What a partition holds is serialized into its task, and read from there again: of a batch of 8 MB some 40 MB that the
garbage collector sees. In a session whose tasks run in the driver's own JVM the partitions are therefore marked as
persisted, and the rows are put where Spark keeps what it has persisted. A task finds them there as they are. Rows that
the memory for this has no room for are on disk.

Invariant 6: a query's rows are those of one batch. They are taken out before others are put in.

Main types: ``RowArrays`` and ``RowBlocks``; ``places_of`` chooses between them. Thread: one at a time, that of the job.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from penstock.pipeline.spark.driver_calls import assign, call, class_name, element
from penstock.pipeline.spark.release import forget

log = logging.getLogger(__name__)

#: The RDD whose partitions hold what the driver was given; others stand on it.
_GIVEN: Final = "ParallelCollectionRDD"


class RowArrays:
    """An array for each partition, with one Arrow message. It goes wherever the tasks go.

    Attributes:
        arrays: The arrays, in the JVM.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = arrays

    def assign(self, messages: Sequence[bytes]) -> None:
        """Puts in a message for each partition."""
        for array, message in zip(self.arrays, messages, strict=True):
            assign(array, 0, message)

    def fill(self, messages: Any) -> bool:
        """Puts in the messages of a Java iterator. Always True: there is room."""
        for array in self.arrays:
            # Takes the next one, as many as the array has room for.
            call(messages, "copyToArray", array)
        return True

    def empty(self) -> None:
        """Takes the messages out."""
        for array in self.arrays:
            assign(array, 0, None)

    def forget(self) -> None:
        """Lets the JVM forget the arrays."""
        forget(self.arrays)


@dataclass(frozen=True)
class _BlockStore:
    """What is asked of the JVM once: its block store, and what goes with each block."""

    manager: Any
    level: Any
    kind: Any


class RowBlocks:
    """A block for each partition, with one Arrow message, in the store of the driver's own JVM.

    Args:
        store: The store.
        rdd: The partitions, which hold nothing themselves.
        number: Its number.
        blocks: The names of their blocks.
    """

    def __init__(self, store: _BlockStore, rdd: Any, number: int, blocks: Sequence[Any]) -> None:
        self._store = store
        self._rdd = rdd
        self._number = number
        self._blocks = blocks

    def fill(self, messages: Any) -> bool:
        """Puts in the messages of a Java iterator. False = there is no room for them, on disk neither."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return all(self._put(block, messages) for block in self._blocks)
        except (Py4JJavaError, PySparkException) as error:
            log.warning("A batch goes to Spark's tasks a slower way: its rows could not be stored: %s", error)
            return False

    def _put(self, block: Any, messages: Any) -> bool:
        message = call(messages, "take", 1)
        try:
            store = self._store
            return bool(call(store.manager, "putIterator", block, message, store.level, False, store.kind))
        finally:
            forget([message])

    def empty(self) -> None:
        """Takes the messages out: Spark would give a task those of the batch before."""
        call(self._store.manager, "removeRdd", self._number)

    def forget(self) -> None:
        """Lets the JVM forget the blocks, full or not."""
        try:
            call(self._rdd, "unpersist", False)
        except Exception as error:
            # The JVM is gone, and its blocks with it.
            log.debug("The blocks of a query could not be released: %s", error)
        forget((*self._blocks, self._rdd))


RowPlaces = RowArrays | RowBlocks

_stores: WeakKeyDictionary[Any, _BlockStore] = WeakKeyDictionary()


def places_of(session: Any, rdd: Any, *, large: bool) -> RowPlaces:
    """The places for the rows of a query.

    Args:
        session: A classic session.
        rdd: What the query reads, as Spark has planned it.
        large: Whether its batches are; small ones go with the tasks, which takes fewer calls.
    """
    partitions = call(rdd, "partitions")
    arrays = RowArrays([_array(element(partitions, index)) for index in range(len(partitions))])
    given = _given(session, rdd) if large else None
    if given is None:
        return arrays
    # They would go with the tasks all the same.
    arrays.empty()
    arrays.forget()
    return _blocks(session, given, len(arrays.arrays))


def _given(session: Any, rdd: Any) -> Any:
    """The RDD that holds what the driver was given; None = its tasks may run elsewhere, or it is not there."""
    if not call(session._sc._jsc.sc(), "isLocal"):
        return None
    while rdd is not None and class_name(rdd) != _GIVEN:
        parents = call(rdd, "dependencies")
        rdd = call(call(parents, "head"), "rdd") if call(parents, "size") == 1 else None
    return rdd


def _blocks(session: Any, rdd: Any, parts: int) -> RowBlocks:
    store = _store_of(session)
    number = int(call(rdd, "id"))
    name = session._jvm.org.apache.spark.storage.RDDBlockId
    call(rdd, "persist", store.level)
    return RowBlocks(store, rdd, number, [name(number, index) for index in range(parts)])


def _store_of(session: Any) -> _BlockStore:
    context = session._sc
    store = _stores.get(context)
    if store is None:
        jvm = session._jvm
        # Py4J looks through all methods of a class, and one of these names a class that PySpark comes without.
        field = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("blockManager")
        field.setAccessible(True)
        store = _stores[context] = _BlockStore(
            manager=field.get(context._jsc.sc().env()),
            level=jvm.org.apache.spark.api.java.StorageLevels.MEMORY_AND_DISK,
            kind=jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B")),
        )
    return store


def _array(partition: Any) -> Any:
    return call(call(partition, "values"), "unsafeArray")
