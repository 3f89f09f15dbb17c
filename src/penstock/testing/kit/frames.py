"""Frames without Spark: the rows of a source frame as records, and records as the frames of a sink.

Main functions: ``records_of_frame`` and ``frames_of_records``. What they make is what the worker's pipeline makes of
messages that were converted without a loss. Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api import SinkFrame, SinkRecord, SinkTaskContext, SourceFrame, SourceRecord, ValueForm
from penstock.api.frames.frame import ORIGIN_COLUMNS
from penstock.data import ConnectHeaders, Schema, Values
from penstock.data.text import to_java_text
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import WIRE_HEADERS
from penstock.pipeline.batch.sink.frames import empty_frame, with_dates
from penstock.pipeline.batch.source.frame_input import frame_to_records, in_arrow
from penstock.pipeline.columns.records import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spark = Callable[[], "SparkSession"]


def records_of_frame(frame: SourceFrame, spark: Spark | None) -> list[SourceRecord]:
    """The rows of a frame as records, in order; their offsets are None.

    Args:
        frame: As ``poll`` has returned it.
        spark: Gives a session for frames that are Spark's; None: there is none.

    Raises:
        ConnectException: A column does not fit its schema, or the frame is Spark's and there is no session.
    """
    plain = in_arrow(frame)
    data: Any = plain.data
    if not isinstance(data, pa.Table):
        if spark is None:
            raise ConnectException(
                "The frame is a query for Spark: give the run a session, spark=lambda: session (the fixture spark "
                "of penstock.testing.kit.fixtures has one)"
            )
        data = (data(spark()) if callable(data) else data).toArrow()
    return frame_to_records(plain, data)


def frames_of_records(
    records: Sequence[SinkRecord], form: ValueForm, context: SinkTaskContext, spark: Spark | None
) -> list[SinkFrame]:
    """A frame for each run of records with equal schemas, as a worker makes them.

    Args:
        records: In the order in which they are read. A null without a schema is in the run around it.
        form: How the values are given.
        context: Where rows are reported.
        spark: Gives the session of ``frame.dataframe()``; None: there is none.
    """
    frames = []
    for _, group in groupby(_with_schemas(records), lambda one: (id(one[1]), id(one[2]))):
        run = list(group)
        frames.append(_frame([one for one, _, _ in run], run[0][1], run[0][2], form, context, spark))
    return frames


def no_rows(form: ValueForm, context: SinkTaskContext, spark: Spark | None) -> SinkFrame:
    """The frame that ``put`` is called with when there is nothing."""
    made = empty_frame(form, spark or _no_session)
    return SinkFrame(made.table, None, None, spark, made.origin, _context=context)


def _no_session() -> SparkSession:
    raise AssertionError("This run has no Spark session: give it one, spark=lambda: session")


def _with_schemas(records: Sequence[SinkRecord]) -> list[tuple[SinkRecord, Schema | None, Schema | None]]:
    """Each record with the schemas of its run: equal ones are one object, and nulls take those around them."""
    known: dict[Schema | None, Schema | None] = {}
    found = []
    sides: dict[str, list[Schema | None]] = {}
    for name in ("key", "value"):
        chosen: list[Any] = []
        for record in records:
            schema = getattr(record, f"{name}_schema")
            is_null = getattr(record, name) is None and schema is None
            chosen.append(_NULL if is_null else known.setdefault(schema, schema))
        last: Any = next((one for one in chosen if one is not _NULL), None)
        for index, one in enumerate(chosen):
            last = chosen[index] = last if one is _NULL else one
        sides[name] = chosen
    for record, key, value in zip(records, sides["key"], sides["value"], strict=True):
        found.append((record, key, value))
    return found


_NULL: Any = object()


def _frame(
    records: Sequence[SinkRecord],
    key_schema: Schema | None,
    value_schema: Schema | None,
    form: ValueForm,
    context: SinkTaskContext,
    spark: Spark | None,
) -> SinkFrame:
    values: Any = [one.value for one in records]
    if form is ValueForm.TEXT:
        texts = [None if one.value is None else to_java_text(one.value, one.value_schema) for one in records]
        column: Any = pa.array(texts, pa.string())
        value_schema = None if all(one is None for one in values) else value_schema
    else:
        column = _column(values, value_schema)
    table = pa.table(
        {
            "topic": pa.array([one.topic for one in records], pa.string()),
            "partition": pa.array([one.kafka_partition for one in records], pa.int32()),
            "offset": pa.array([one.original_kafka_offset for one in records], pa.int64()),
            "timestamp": pa.array([one.timestamp for one in records], pa.int64()),
            "timestamp_type": pa.array([int(one.timestamp_type) for one in records], pa.int8()),
            "key": _column([one.key for one in records], key_schema),
            "value": column,
            "headers": pa.array([_headers(one.headers) for one in records], WIRE_HEADERS),
        }
    )
    origin = pa.table(
        {
            "topic": pa.array([one.original_topic for one in records], pa.string()),
            "partition": pa.array([one.original_kafka_partition for one in records], pa.int32()),
            "offset": pa.array([one.original_kafka_offset for one in records], pa.int64()),
        }
    ).select(list(ORIGIN_COLUMNS))
    return SinkFrame(table, key_schema, value_schema, spark, origin, _context=context)


def _column(values: Sequence[object], schema: Schema | None) -> pa.ChunkedArray:
    if schema is None and all(one is None for one in values):
        return pa.chunked_array([pa.nulls(len(values))])
    made, errors, physical = to_arrow(values, schema)
    for row, error in errors.items():
        raise AssertionError(f"Record {row} of the test has a value that does not fit its schema: {error}")
    return with_dates(pa.chunked_array([made]), schema, physical)


def _headers(headers: ConnectHeaders | None) -> list[dict[str, object]] | None:
    if not headers:
        return None
    return [
        {
            "key": one.key,
            "value": one.value
            if isinstance(one.value, bytes | None)
            else (Values.convert_to_string(one.schema, one.value) or "").encode(),
        }
        for one in headers
    ]
