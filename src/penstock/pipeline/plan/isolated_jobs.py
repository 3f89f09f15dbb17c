"""Runs rows that crashed a session in a separate session, in smaller and smaller parts if that crashes too.

A part that is run again gives the same, and each row of the batch comes out once (Invariant 6). Records that crash
every session become errors, for the error policy to handle; a batch with too many of them, or one that cannot be split,
fails its task. ``plan_output`` and ``frame_output`` run in the other process.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from penstock.errors import ConnectException, SparkOverdueException, SparkStoppedException
from penstock.pipeline.columns.records import table_bytes, table_of
from penstock.pipeline.columns.sizes import nbytes_of
from penstock.pipeline.spark.isolated_session import (
    IsolatedSessionLostException,
    Loss,
    SessionOrder,
    goes_alone,
    raise_lost,
)

if TYPE_CHECKING:
    from penstock.pipeline.plan.chain import ShapeGroup, Staged
    from penstock.pipeline.plan.step import Shape
    from penstock.pipeline.spark.gate import PythonWork
    from penstock.pipeline.spark.session import SparkRuntime

#: A part that crashed a session is split into this many: among 32,768 rows three more sessions find the bad one.
CUT_INTO: Final = 32
#: If this many records of one batch each crash a session, the records are not the cause.
MAX_LOST_ROWS: Final = 3
#: The time for which a task whose batch crashed a session stays off the worker's session, in seconds.
ISOLATION_S: Final = 300.0
#: The place of the error in a row of the output.
LOST_PLACE: Final = -1
_ADVICE_OVERDUE: Final = (
    "Look for expressions that make very much of a value, or for patterns that try very many ways; a preview shows them"
)
T = TypeVar("T")
_ERROR: Final = pa.struct([("place", pa.int32()), ("message", pa.string())])
_ADVICE: Final = "Raise spark.driver.memory of the worker, or keep such records out of the topic (max.message.bytes)"


class Apart:
    """Runs batches of a task in a separate session, until the task is abandoned."""

    def __init__(self, runtime: SparkRuntime, work: PythonWork) -> None:
        self._runtime = runtime
        self._work = work
        # Until when all batches of the task go there; monotonic seconds.
        self._until = 0.0

    @property
    def has_all(self) -> bool:
        """True if the task keeps away from the worker's session for now."""
        return time.monotonic() < self._until

    def takes(self, loss: Loss, nbytes: int, passed: int = 0) -> bool:
        """True if a batch shall go to the isolated session; see ``goes_alone``."""
        return self._runtime.isolated is not None and goes_alone(loss, nbytes, passed)

    def overdue(self, error: SparkOverdueException) -> IsolatedSessionLostException:
        """The loss of a session because a batch exceeded its time; later batches then use the separate session."""
        self._until = time.monotonic() + ISOLATION_S
        return IsolatedSessionLostException(Loss(1, False, str(error), overdue=True))

    def run(self, order: SessionOrder) -> Any:
        """Runs an order there; so do later orders, until some time after the last loss.

        Raises:
            IsolatedSessionLostException: The order crashed the session, or exceeded its time.
            SparkStoppedException: The worker is stopping, or the task was abandoned.
        """
        isolated = self._runtime.isolated
        assert isolated is not None
        if self._work.ended:
            raise SparkStoppedException("the task was abandoned")
        if not self.has_all:
            self._until = time.monotonic() + ISOLATION_S
        try:
            return isolated.run(order)
        except SparkOverdueException as error:
            raise self.overdue(error) from error
        except IsolatedSessionLostException:
            self._until = time.monotonic() + ISOLATION_S
            raise


def in_parts(table: pa.Table, run: Callable[[pa.Table], T], lost: Callable[[pa.Table, Loss], T]) -> list[T]:
    """Runs rows in parts, as some of them may end any session, or keep it busy for ever; the results in the order of
    the rows.

    ``run`` raises IsolatedSessionLostException; ``lost`` gives what stands for a row that ends a session by itself.

    Raises:
        ConnectException: More rows are lost than can be the rows' fault.
    """
    waiting = deque([table])
    made: list[T] = []
    given_up = 0
    while waiting:
        part = waiting.popleft()
        try:
            made.append(run(part))
        except IsolatedSessionLostException as error:
            rows = part.num_rows
            if rows > 1:
                size = -(-rows // CUT_INTO)
                waiting.extendleft(part.slice(start, size) for start in reversed(range(0, rows, size)))
                continue
            given_up += 1
            stands = None if given_up >= MAX_LOST_ROWS else _or_none(lost, part, error.loss)
            if stands is None:
                raise ConnectException(
                    f"{given_up} of {table.num_rows} records ({nbytes_of(table):,} bytes in all) were tried in Spark "
                    f"sessions of their own, and each was lost: {error.loss.ended}. {advice(error.loss)}, or look at "
                    "the connector's transforms"
                ) from error
            made.append(stands)
    return made


def _or_none(lost: Callable[[pa.Table, Loss], T], row: pa.Table, loss: Loss) -> T | None:
    """Returns the substitute for a row, or None if making the substitute costs a session as well."""
    try:
        return lost(row, loss)
    except IsolatedSessionLostException:
        return None


def what_was_lost(row: pa.Table, loss: Loss) -> str:
    """The text of the error that a row becomes."""
    return (
        f"A record of {nbytes_of(row):,} bytes cost a Spark session that had nothing else to do: {loss.ended}. "
        f"{advice(loss)}"
    )


def advice(loss: Loss) -> str:
    """Returns advice on how to avoid the loss."""
    return _ADVICE_OVERDUE if loss.overdue else _ADVICE


def with_error(output: pa.Table, message: str) -> pa.Table:
    """The one row of an output as that of a record that has failed."""
    kind = output.schema.field("error").type if "error" in output.column_names else _ERROR
    error = pa.chunked_array([pa.array([{"place": LOST_PLACE, "message": message}], kind)])
    columns = {name: output.column(name) for name in output.column_names} | {"error": error}
    if "dropped" in columns:
        columns["dropped"] = pa.chunked_array([pa.array([None], columns["dropped"].type)])
    return pa.table(columns)


def without_content(row: pa.Table, kept: Sequence[str], nothing: Callable[[int, pa.DataType], pa.Array]) -> pa.Table:
    """A row as it is where a record has neither key nor value; ``nothing`` gives nulls of a type."""
    return pa.table({name: row[name] if name in kept else nothing(1, row[name].type) for name in row.column_names})


# ---------------------------------------------------------------------------------------------- orders to the process
@dataclass(frozen=True)
class PlanOrder:
    """Rows through a plan: steps, shape and carried columns of each group, their slots, and ``apart`` of
    ``SparkJobs.run``.
    """

    groups: tuple[tuple[tuple[Staged, ...], Shape, frozenset[str]], ...]
    slots: tuple[int | None, ...]
    apart: bool

    @classmethod
    def of(cls, groups: Sequence[ShapeGroup], *, slots: tuple[int | None, ...] = (None,), apart: bool) -> PlanOrder:
        """The order for groups; without slots there is one."""
        return cls(tuple((group.steps, group.shape, group.carry) for group in groups), slots, apart)

    def on(self, table: pa.Table) -> SessionOrder:
        """The order for these rows."""
        return SessionOrder(__name__, plan_output.__name__, (self, table_bytes(table)))


def frame_order(table: pa.Table, plan: Callable[..., Any], limit_s: float | None) -> SessionOrder | None:
    """The order to send rows through a plan that is made for them; None where the plan cannot be pickled."""
    try:
        data: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
    except (TypeError, AttributeError, pickle.PicklingError):
        return None
    return SessionOrder(__name__, frame_output.__name__, (data, table_bytes(table), limit_s))


def plan_output(runtime: SparkRuntime, order: PlanOrder, data: pa.Buffer) -> pa.Buffer:
    """Does a ``PlanOrder``. Runs in the other process."""
    from penstock.pipeline.plan.jobs import SparkJobs

    return table_bytes(SparkJobs(runtime).output_of(order, table_of(data), raise_lost))


def frame_output(runtime: SparkRuntime, plan: bytes, data: pa.Buffer, limit_s: float | None) -> tuple[pa.Buffer, Any]:
    """Does what ``frame_order`` asks for. Runs in the other process."""
    from penstock.pipeline.plan.jobs import SparkJobs

    output, made = SparkJobs(runtime).collect(table_of(data), cloudpickle.loads(plan), limit_s, raise_lost)
    return table_bytes(output), made
