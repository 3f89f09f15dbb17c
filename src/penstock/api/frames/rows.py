"""Rows of a frame: which ones an author means, and which of them a failed write is to blame on.

Main functions: ``isolate``, and ``row_numbers`` and ``runs_of`` for what takes ``Rows``.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.errors import IllegalWorkerStateException, KafkaRetriableException, RetriableException

if TYPE_CHECKING:
    import numpy as np

    from penstock.api.frames.frame import SinkFrame

#: One row by its number, some by their numbers, or a mask with True for those that are meant: a list, a NumPy array, or
#: a PyArrow array.
Rows: TypeAlias = "int | Sequence[int] | Sequence[bool] | Any"

#: Errors of a write that no row is to blame for: the system is away, or busy, or Spark is.
OF_NO_ROW: Final = (RetriableException, KafkaRetriableException, OSError)


def row_numbers(rows: Rows, count: int) -> np.ndarray:
    """The numbers of some rows, as an int64 array, in the order that they are given in.

    Args:
        rows: Which.
        count: How many rows there are.

    Raises:
        IndexError: There is no such row, or a mask has another length than the frame.
        TypeError: It is neither numbers nor a mask.

    >>> row_numbers([False, True, True], 3).tolist(), row_numbers(2, 3).tolist()
    ([1, 2], [2])
    """
    import numpy as np

    found = np.atleast_1d(np.asarray(rows))
    if not found.size:
        found = found.astype(np.int64)
    if found.dtype == np.bool_:
        if len(found) != count:
            raise IndexError(f"A mask of {len(found)} rows does not fit a frame of {count} rows")
        return np.flatnonzero(found)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise TypeError(f"Rows are one number, numbers, or a mask of booleans without nulls, not {rows!r}")
    wrong = found[(found < 0) | (found >= count)]
    if len(wrong):
        raise IndexError(f"There is no row {wrong[0]} in a frame of {count} rows, which count from 0")
    return found.astype(np.int64)


def runs_of(numbers: np.ndarray) -> list[tuple[int, int]]:
    """The runs of numbers that follow each other: the first one of each, and how many they are.

    >>> import numpy as np
    >>> runs_of(np.array([4, 5, 6, 2, 2, 3])), runs_of(np.array([], int))
    ([(4, 3), (2, 1), (2, 2)], [])
    """
    import numpy as np

    if not len(numbers):
        return []
    firsts = np.append(0, np.flatnonzero(np.diff(numbers) != 1) + 1)
    lengths = np.diff(np.append(firsts, len(numbers)))
    return list(zip(numbers[firsts].tolist(), lengths.tolist(), strict=True))


def isolate(
    write: Callable[[SinkFrame], object],
    frame: SinkFrame,
    *,
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
    report: Callable[[SinkFrame, Rows, BaseException], object] | None = None,
) -> int:
    """Writes a frame; when that fails, halves it until the bad rows are by themselves, reports these, writes the rest.

    ``write`` is called with the whole frame, and when it raises, with the first half and then the second, and so on:
    with parts of the frame, in order, never with an empty one. With k bad rows among n that is about ``2 k log2(n)``
    calls. A single row that fails is reported; with ``errors.tolerance=none`` that fails the task, and the rows before
    it are written.

    ``write`` must write all rows or none: in a transaction that is rolled back, say. What a failed call has left behind
    is written again by the calls for its halves, unless the write is idempotent.

    **Not halved** are errors that no row is to blame for: ``RetriableException``, ``KafkaRetriableException``,
    ``OSError`` (a connection that broke), a lost Spark session, and what is not among ``errors``. They are raised as
    they are. After the first two ``put`` comes again with the same frame, whose first rows may be written already: a
    write that is not idempotent leaves them out (``SinkFrame.since``).

    Args:
        write: Writes one frame, or raises.
        frame: As ``put`` was given it, or a part of it.
        errors: What a row may be to blame for; an outage of the system must not be among it.
        report: Reports a row; None: ``context.report`` of the task that was given the frame.

    Returns:
        How many rows were written.

    Raises:
        IllegalWorkerStateException: A row is bad, and the frame was made outside of a worker, without ``report``.
    """
    context = frame._context

    def deliver(part: SinkFrame) -> int:
        if not part.num_rows:
            return 0
        try:
            write(part)
        except errors as error:
            if isinstance(error, OF_NO_ROW) or (context is not None and not context.blames_rows(error)):
                raise
            if part.num_rows == 1:
                tell(part, error)
                return 0
        else:
            return part.num_rows
        middle = part.num_rows // 2
        return deliver(part.slice(0, middle)) + deliver(part.slice(middle))

    def tell(part: SinkFrame, error: Exception) -> None:
        told = report if report is not None or context is None else context.report
        if told is None:
            raise IllegalWorkerStateException(
                "A frame that was made outside of a worker has nobody to report to: isolate(write, frame, report=...)"
            ) from error
        told(part, 0, error)

    return deliver(frame)
