"""The attributes of a source's batch besides keys and values: coordinates, and headers as bytes.

Main functions: ``put_coordinates``, ``write_headers`` (headers that are a column) and ``write_own_headers`` (headers of
records).

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.pipeline.batch.assembly import Assembly, LazyColumns
from penstock.pipeline.batch.headers import HeaderWriter
from penstock.pipeline.batch.row_path import Attributes
from penstock.pipeline.batch.segments import Failures


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
