"""Selection of rows of a frame, and the search for the rows that make a write fail.

Main functions: ``isolate``; ``row_numbers`` and ``runs_of`` for arguments of type ``Rows``.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.errors import IllegalWorkerStateException, KafkaRetriableException, RetriableException

if TYPE_CHECKING:
    import numpy as np

    from penstock.api.frames.frame import SinkFrame

#: One row number, a list of row numbers, or a mask with True for selected rows: a list, a NumPy array, or a PyArrow
#: array.
Rows: TypeAlias = "int | Sequence[int] | Sequence[bool] | Any"

#: Errors of a write that have no bad row as their cause: the system is down or busy, or Spark is.
OF_NO_ROW: Final = (RetriableException, KafkaRetriableException, OSError)


def row_numbers(rows: Rows, count: int) -> np.ndarray:
    """The numbers of the selected rows, as an int64 array, in the given order.

    Args:
        rows: The selection.
        count: The number of rows of the frame.

    Raises:
        IndexError: A row does not exist, or a mask is not as long as the frame.
        TypeError: ``rows`` is neither numbers nor a mask.

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
    """Returns the runs of consecutive numbers: the first number and the length of each.

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
    """Writes a frame. If that fails, halves it until the bad rows are found, reports them, and writes the rest.

    ``isolate`` calls ``write`` with the whole frame and, when it raises, with the first half, then the second, and so
    on: always with parts of the frame, in order, never with an empty one. With k bad rows among n this takes about ``2
    k log2(n)`` calls. It reports a single row that fails; with ``errors.tolerance=none`` that fails the task, after the
    rows before it were written.

    ``write`` must write all rows or none, for example in a transaction that it rolls back, or it must be idempotent:
    the calls for the halves write again what a failed call left.

    **Not halved** are errors without a bad row: ``RetriableException``, ``KafkaRetriableException``, ``OSError`` (a
    broken connection), a lost Spark session, and any error that ``errors`` does not list. They are raised unchanged.
    After the first two, ``put`` is called again with the same frame, whose first rows may be written already: a write
    that is not idempotent must skip them (``SinkFrame.since``).

    Args:
        write: Writes one frame, or raises.
        frame: The frame that ``put`` received, or a part of it.
        errors: The errors that a bad row may cause; an outage of the system must not be among them.
        report: Reports a row; None: ``context.report`` of the task that received the frame.

    Returns:
        The number of rows written.

    Raises:
        IllegalWorkerStateException: A row is bad, and the frame was made outside of a worker, without ``report``.
    """
    context = frame._context

    def tell(part: SinkFrame, error: Exception) -> None:
        told = report if report is not None or context is None else context.report
        if told is None:
            raise IllegalWorkerStateException(
                "Only a frame of a worker reports rows itself; give it a function: isolate(write, frame, report=...)"
            ) from error
        told(part, 0, error)

    # A function that called itself for the halves would be in a cycle, and the frame with it until the collector runs.
    waiting, written = [frame], 0
    while waiting:
        part = waiting.pop()
        if not part.num_rows:
            continue
        try:
            write(part)
        except errors as error:
            if isinstance(error, OF_NO_ROW) or (context is not None and not context.blames_rows(error)):
                raise
            if part.num_rows == 1:
                tell(part, error)
                continue
        else:
            written += part.num_rows
            continue
        middle = part.num_rows // 2
        waiting += [part.slice(middle), part.slice(0, middle)]
    return written
