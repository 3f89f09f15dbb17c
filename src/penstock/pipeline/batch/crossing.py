"""The serialization of errors and frames between a worker and another Python process.

Main functions: ``described`` and ``rebuilt`` (errors: class, message, causes and frames), ``table_bytes`` and
``table_of`` (Arrow tables as a stream), ``crossing_frame`` and ``frame_of`` (the frames of a frame sink). All other
values are pickled unchanged; a schema that many records of a batch share is sent once and is one object again. Pure.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import penstock.errors
from penstock.api import SinkFrame
from penstock.errors import ConnectException, RetriableException

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.data import Schema

_MOST_CAUSES: Final = 20
_PLAIN: Final = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True)
class CrossedError:
    """An error, without its objects.

    Attributes:
        classes: Module and qualified name of its class and of that class's bases, in method resolution order.
        java_name: Kafka's name for it, if it has one.
        args: Its arguments, if all of them are plain values.
        text: Its message.
        frames: File, line and function of each frame of its trace.
        notes: The notes of ``add_note``.
        cause: ``__cause__``.
        context: ``__context__``.
        suppressed: True if the context is not shown.
        retry_after_s: The time before the call that raised it may be repeated, if it sets one.
    """

    classes: tuple[tuple[str, str], ...]
    java_name: str | None
    args: tuple[Any, ...] | None
    text: str
    frames: tuple[tuple[str, int, str], ...]
    notes: tuple[str, ...]
    cause: CrossedError | None
    context: CrossedError | None
    suppressed: bool
    retry_after_s: float | None = None


def described(error: BaseException, depth: int = _MOST_CAUSES) -> CrossedError:
    """Describes an error for another process. Its objects are left out: they may be an author's, and very large."""
    name = getattr(type(error), "java_name", None)
    args = error.args if all(type(arg) in _PLAIN for arg in error.args) else None
    return CrossedError(
        tuple((cls.__module__, cls.__qualname__) for cls in type(error).__mro__),
        name if isinstance(name, str) else None,
        args,
        _text(error),
        tuple(
            (frame.f_code.co_filename, line, frame.f_code.co_name)
            for frame, line in traceback.walk_tb(error.__traceback__)
        ),
        tuple(str(note) for note in getattr(error, "__notes__", ())),
        described(error.__cause__, depth - 1) if error.__cause__ is not None and depth else None,
        described(error.__context__, depth - 1) if error.__context__ is not None and depth else None,
        error.__suppress_context__,
        error.retry_after_s if isinstance(error, RetriableException) and "retry_after_s" in vars(error) else None,
    )


def rebuilt(crossed: CrossedError) -> BaseException:
    """Rebuilds an error of the other process: the same class if it is Python's or Penstock's, otherwise one of the same
    name that extends the nearest of these; message, causes, and a trace with the frames of the other process.
    """
    error = _instance(crossed)
    for note in crossed.notes:
        error.add_note(note)
    error.__cause__ = None if crossed.cause is None else rebuilt(crossed.cause)
    error.__context__ = None if crossed.context is None else rebuilt(crossed.context)
    error.__suppress_context__ = crossed.suppressed
    if isinstance(error, RetriableException):
        error.retry_after_s = crossed.retry_after_s
    return error.with_traceback(_trace(crossed.frames))


def table_bytes(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow stream. Pickled, a slice would take the memory of the whole table with it."""
    import pyarrow as pa

    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, table.schema) as stream:
        stream.write_table(table)
    return rows.getvalue()


def table_of(rows: pa.Buffer) -> pa.Table:
    """The table of such a stream; its columns use the stream's memory."""
    import pyarrow as pa

    with pa.ipc.open_stream(rows) as stream:
        return stream.read_all()


def crossing_frame(
    frame: SinkFrame,
) -> tuple[pa.Buffer, Schema | None, Schema | None, pa.Buffer | None, bool, pa.Buffer | None]:
    """A sink's frame without what belongs to its process, for ``frame_of``."""
    origin = frame.origin
    # Unchanged columns are sent once: usually no transform has changed a topic.
    same = all(name in frame.table.column_names for name in origin.column_names)
    same = same and origin.equals(frame.table.select(origin.column_names))
    crossed = None if same else table_bytes(origin)
    marks = None if frame._marks is None else table_bytes(frame._marks)
    return table_bytes(frame.table), frame.key_schema, frame.value_schema, crossed, frame.continued, marks


def frame_of(crossed: Sequence[Any]) -> SinkFrame:
    """The frame from the other process; it has no Spark session."""
    rows, key_schema, value_schema, origin, continued, marks = crossed
    read = None if origin is None else table_of(origin)
    beside = None if marks is None else table_of(marks)
    return SinkFrame(table_of(rows), key_schema, value_schema, origin=read, continued=continued, _marks=beside)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"(its message cannot be shown: {type(error).__name__}.__str__ raised)"


def _instance(crossed: CrossedError) -> BaseException:
    known = next((cls for place in crossed.classes if (cls := _known(place)) is not None), Exception)
    module, name = crossed.classes[0]
    if crossed.args is not None and _known(crossed.classes[0]) is known:
        try:
            error: BaseException = known(*crossed.args)
        except Exception:
            error = ConnectException(crossed.text)
        else:
            if _text(error) == crossed.text:
                return error
    attributes: dict[str, Any] = {"__module__": module, "__qualname__": name, "__str__": lambda self: crossed.text}
    if crossed.java_name is not None:
        attributes["java_name"] = crossed.java_name
    for base in (known, Exception):
        try:
            own: Any = type(name.rpartition(".")[2], (base,), attributes)
            made: BaseException = own.__new__(own, crossed.text)
        except TypeError:
            # A class whose instances need more arguments than a message, such as ExceptionGroup.
            continue
        return made
    return ConnectException(crossed.text)


def _known(place: tuple[str, str]) -> type[BaseException] | None:
    module, name = place
    if module not in ("builtins", penstock.errors.__name__):
        return None
    found = getattr(builtins if module == "builtins" else penstock.errors, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _trace(frames: Sequence[tuple[str, int, str]]) -> TracebackType | None:
    """A trace with these frames. They hold no variables; the lines' text is read from the files when it is shown."""
    trace: TracebackType | None = None
    for file, line, name in reversed(frames):
        trace = TracebackType(trace, _frame(file, name), -1, line)
    return trace


def _frame(file: str, name: str) -> FrameType:
    code = compile("frame = frames()", file, "exec").replace(co_name=name, co_qualname=name)
    scope: dict[str, Any] = {"frames": _caller}
    exec(code, scope)
    frame: FrameType = scope.pop("frame")
    return frame


def _caller() -> FrameType:
    import sys

    return sys._getframe(1)
