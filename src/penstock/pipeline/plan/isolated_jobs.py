"""Rows that have cost a session, tried in one of their own, in ever smaller parts where that is lost too.

Invariant 6: a part that is run again gives the same, and each row of the batch comes out once.

What is left in the end are records that no session can take. Each becomes the error of that record, for the error
policy to decide about; a batch with too many of them, or one that cannot be cut, fails its task.

Main function: ``in_parts`` (the search, without I/O). Main type: ``LostRow`` (what is put in the place of a row).
``plan_output`` and ``frame_output`` run in the other process, see ``penstock.pipeline.spark.isolated_main``.

Thread: pure functions; a task's pipeline thread, or that of its Spark jobs.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import cloudpickle

from penstock.errors import ConnectException
from penstock.pipeline.columns.sizes import nbytes_of
from penstock.pipeline.spark.isolated_main import raise_lost
from penstock.pipeline.spark.isolated_session import IsolatedSessionLostException, Loss, Order

if TYPE_CHECKING:
    from penstock.pipeline.plan.step import Shape
    from penstock.pipeline.spark.session import SparkRuntime

#: A part that has cost a session is cut into so many: of 32,768 rows the bad one is found with three more sessions.
CUT_INTO: Final = 32
#: With so many records of one batch that cost a session each, it is not the records.
MAX_LOST_ROWS: Final = 3
#: What a row of the output refers to as the place of the error.
LOST_PLACE: Final = -1
_ERROR: Final = pa.struct([("place", pa.int32()), ("message", pa.string())])
_ADVICE: Final = "Raise spark.driver.memory of the worker, or keep such records out of the topic (max.message.bytes)"


def in_parts(
    table: pa.Table, run: Callable[[pa.Table], pa.Table], lost: Callable[[pa.Table, Loss], pa.Table]
) -> pa.Table:
    """What comes of rows, some of which may end any session.

    Args:
        table: The rows.
        run: Gives a row for each row; raises IsolatedSessionLostException.
        lost: Gives what stands for a row that ends a session by itself.

    Returns:
        A row for each row, in order.

    Raises:
        ConnectException: More rows are lost than can be the rows' fault.
    """
    waiting = deque([table])
    made: list[pa.Table] = []
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
                    f"sessions of their own, and each was lost: {error.loss.ended}. {_ADVICE}, or look at the "
                    "connector's transforms"
                ) from error
            made.append(stands)
    return pa.concat_tables(made, promote_options="default")


def _or_none(lost: Callable[[pa.Table, Loss], pa.Table], row: pa.Table, loss: Loss) -> pa.Table | None:
    """What stands for a row; None if nothing of it is needed to cost a session."""
    try:
        return lost(row, loss)
    except IsolatedSessionLostException:
        return None


def what_was_lost(row: pa.Table, loss: Loss) -> str:
    """The text of the error that a row becomes."""
    return (
        f"A record of {nbytes_of(row):,} bytes cost a Spark session that had nothing else to do: {loss.ended}. "
        f"{_ADVICE}"
    )


def with_error(output: pa.Table, message: str) -> pa.Table:
    """The one row of an output as that of a record that has failed."""
    kind = output.schema.field("error").type if "error" in output.column_names else _ERROR
    error = pa.chunked_array([pa.array([{"place": LOST_PLACE, "message": message}], kind)])
    columns = {name: output.column(name) for name in output.column_names} | {"error": error}
    if "dropped" in columns:
        columns["dropped"] = pa.chunked_array([pa.array([None], columns["dropped"].type)])
    return pa.table(columns)


def without_content(row: pa.Table, kept: Sequence[str], nothing: Callable[[int, pa.DataType], pa.Array]) -> pa.Table:
    """A row as it is where a record has neither key nor value.

    Args:
        row: The row.
        kept: The columns that stay.
        nothing: Gives nulls of a type.
    """
    return pa.table({name: row[name] if name in kept else nothing(1, row[name].type) for name in row.column_names})


# ---------------------------------------------------------------------------------------------- orders to the process
@dataclass(frozen=True)
class PlanOrder:
    """Rows through a plan of steps.

    Attributes:
        groups: Steps, shape and carried columns of each group.
        slots: Their numbers.
        apart: See ``SparkJobs.run``.
    """

    groups: tuple[tuple[Any, Shape, frozenset[str]], ...]
    slots: tuple[int | None, ...]
    apart: bool

    def on(self, table: pa.Table) -> Order:
        """The order for these rows."""
        return Order(__name__, plan_output.__name__, (self, _sent(table)))


def frame_order(table: pa.Table, plan: Callable[..., Any]) -> Order | None:
    """The order to send rows through a plan that is made for them; None where the plan cannot cross."""
    try:
        data: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
    except (TypeError, AttributeError, pickle.PicklingError):
        return None
    return Order(__name__, frame_output.__name__, (data, _sent(table)))


def plan_output(runtime: SparkRuntime, order: PlanOrder, data: bytes) -> bytes:
    """Does a ``PlanOrder``. Runs in the other process."""
    from penstock.pipeline.plan.jobs import SparkJobs

    return _sent(SparkJobs(runtime).output_of(order, received(data), raise_lost))


def frame_output(runtime: SparkRuntime, plan: bytes, data: bytes) -> tuple[bytes, Any]:
    """Does what ``frame_order`` asks for. Runs in the other process."""
    from penstock.pipeline.plan.jobs import SparkJobs

    output, made = SparkJobs(runtime).collect(received(data), cloudpickle.loads(plan), instead=raise_lost)
    return _sent(output), made


def _sent(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def received(data: bytes) -> pa.Table:
    """The table that was sent."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
