"""The parts of a source's batch besides the bytes of a plan.

Coordinates and headers as bytes: ``put_coordinates``, ``write_headers`` (those that are a column) and
``write_own_headers`` (those of records); ``frame_batch`` has them for a frame. Keys and values that converters write
outside a plan, where Arrow takes a fraction of its time: ``written_columns`` (sides), ``parted_by_writing`` (groups of
records) and ``messages_of``.

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api import Converter, SourceFrame
from penstock.pipeline.batch.assembly import Assembly, LazyColumns
from penstock.pipeline.batch.batches import ProduceBatch
from penstock.pipeline.batch.headers import HeaderWriter
from penstock.pipeline.batch.row_path import Attributes
from penstock.pipeline.batch.segments import Failures
from penstock.pipeline.batch.source.frame_input import FrameColumns, missing_constants
from penstock.pipeline.plan.outcomes import GroupOutcome, ShapeGroup, unchanged
from penstock.pipeline.plan.step import ColumnConverter, Shape, SideName


def put_coordinates(assembly: Assembly, attributes: Attributes, columns: LazyColumns) -> None:
    """Sets topic, partition and timestamp; most batches have one topic, and neither of the others."""
    for name, attribute in (("topic", "topic"), ("partition", "kafka_partition"), ("timestamp", "timestamp")):
        values = set(attributes(attribute))
        if len(values) == 1:
            assembly.put_constant(name, next(iter(values)))
        elif values:
            assembly.put(name, columns[name])


def write_headers(assembly: Assembly, writer: HeaderWriter, failures: Failures) -> None:
    """Writes headers that are a column of the plan's output."""
    kept = assembly.kept(failures)
    topics, headers = assembly.column("topic"), assembly.column("headers")
    if len(kept) == assembly.rows:
        assembly.put("headers", writer.write_column(headers, topics, kept, failures))
        return
    pick = pa.array(kept)
    written = writer.write_column(headers.take(pick), topics.take(pick), kept, failures)
    place = np.full(assembly.rows, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    assembly.put("headers", written.take(pa.array(place, mask=place < 0)))


def write_own_headers(
    assembly: Assembly,
    writer: HeaderWriter,
    attributes: Attributes,
    positions: Sequence[int] | None,
    failures: Failures,
) -> None:
    """Writes the original headers of the records.

    Args:
        assembly: Gets the column.
        writer: Writes them.
        attributes: The attributes of the records.
        positions: The row of each; None = 0, 1, 2, ...
        failures: Gets records with headers that cannot be written.
    """
    found = attributes("raw_headers")
    if not any(found):
        return
    topics = attributes("topic")
    seqs: Sequence[int] = range(len(found)) if positions is None else positions
    kept = assembly.kept(failures)
    if len(kept) < len(found):
        places = {seq: place for place, seq in enumerate(seqs)}
        seqs = kept.tolist()
        found, topics = ([values[places[seq]] for seq in seqs] for values in (found, topics))
    headers = writer.write(found, topics, seqs, assembly.rows, failures)
    if headers is not None:
        assembly.put("headers", headers)


_SIDES: Final[tuple[SideName, SideName]] = ("key", "value")


def written_columns(
    converters: Mapping[SideName, Converter], shape: Shape, columns: Mapping[str, pa.Array | pa.ChunkedArray]
) -> dict[SideName, pa.Array | pa.ChunkedArray]:
    """The bytes of those sides that can be written outside a plan.

    Args:
        converters: Those of both sides.
        shape: The description of the sides.
        columns: Their values.
    """
    found: dict[SideName, pa.Array | pa.ChunkedArray] = {}
    for side, converter in converters.items():
        if isinstance(converter, ColumnConverter) and side in columns:
            made = converter.write_column(shape.side(side), columns[side])
            if made is not None:
                found[side] = made
    return found


def parted_by_writing(
    converters: Mapping[SideName, Converter], groups: Sequence[ShapeGroup]
) -> tuple[list[GroupOutcome], list[ShapeGroup]]:
    """The outcomes of groups all of whose sides were written, and the other groups.

    Args:
        converters: Those of both sides.
        groups: Records, with no step left but the converters.
    """
    written: list[GroupOutcome] = []
    left: list[ShapeGroup] = []
    for one in groups:
        made = written_columns(converters, one.shape, one.columns)
        if made and made.keys() == one.columns.keys():
            written.append(unchanged(replace(one, columns={str(side): column for side, column in made.items()}), {}))
        else:
            left.append(one)
    return written, left


def messages_of(written: GroupOutcome) -> pa.Table:
    """The keys and values of a group; null where there are none."""
    rows = len(next(iter(written.columns.values())))
    return pa.table({side: written.columns.get(side, pa.nulls(rows, pa.binary())) for side in _SIDES})


def frame_batch(
    frame: SourceFrame,
    columns: FrameColumns,
    outcome: GroupOutcome,
    rows: int,
    headers: HeaderWriter,
    failures: Failures,
    write: Callable[[Assembly, Failures], None] = lambda *_: None,
) -> ProduceBatch:
    """Returns the batch of a frame whose bytes a plan has made.

    Args:
        frame: Has the constants of all rows.
        columns: Its layout.
        outcome: The outcome of the plan.
        rows: The number of rows.
        headers: Writes headers.
        failures: Gets failed rows.
        write: Adds the columns that no plan has made.
    """
    assembly = Assembly(rows)
    failures.found([outcome])
    for name, column in columns.others.items():
        assembly.put(name, column)
    for name, value in missing_constants(frame, columns).items():
        assembly.put_constant(name, value)
    assembly.take([outcome])
    if "headers" in outcome.columns:
        write_headers(assembly, headers, failures)
    write(assembly, failures)
    return assembly.batch(failures)
