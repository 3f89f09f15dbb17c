"""Which producer sends the records of a source task.

Main function: `producer_for`.

Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from penstock.kafka.column_producer import ColumnProducer
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.producer import RecordProducer


def producer_for(
    settings: Mapping[str, object],
    *,
    name: str,
    connector: str = "",
    task: int | None = None,
    each_row: bool = False,
    stops_at_failure: bool = False,
    columns: bool = True,
) -> ColumnProducer | RecordProducer:
    """A producer with these settings: of columns, where they ask for nothing that only the client library can do.

    Args:
        settings: the client's, by the library's names.
        name: name of the task, for the thread and for messages.
        connector, task: what log lines are marked with.
        each_row: whether receipts are to say where each row went.
        stops_at_failure: whether nothing more is sent once a row has failed.
        columns: whether that one may be taken at all.

    Raises:
        KafkaException: a setting is wrong.
    """
    plain = ColumnSettings.of(settings) if columns else None
    make = partial(RecordProducer, settings) if plain is None else partial(ColumnProducer, plain)
    return make(name=name, connector=connector, task=task, each_row=each_row, stops_at_failure=stops_at_failure)
