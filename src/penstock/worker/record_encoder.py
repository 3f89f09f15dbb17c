"""Messages of records that a sink task reports and whose original bytes are not at hand: the record, converted again.

Main types: ``RecordEncoder``; ``message_as_text`` does without converters.

Owning thread: any.

Source: ``WorkerErrantRecordReporter``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from penstock.api import Converter, HeaderConverter, SinkRecord
from penstock.data import Schema, value_text
from penstock.errors import java_class_name
from penstock.telemetry.seldom_log import SeldomLog
from penstock.worker.error_report import ConsumedMessage

logger = logging.getLogger(__name__)

_Convert = Callable[[Schema | None, object], bytes | None]


class RecordEncoder:
    """Converts records to messages, one at a time.

    A key, value or header that its converter does not take becomes text, where Java fails: the dead letter is written
    all the same. The log says so, once a minute for each kind of failure.

    Args:
        key, value, header: Configured converters for this alone: those of the pipeline are in use by another thread.
        task: Whose records these are, for the log.
    """

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, *, task: str) -> None:
        self._key = key
        self._value = value
        self._header = header
        self._task = task
        self._lock = threading.Lock()
        self._seldom = SeldomLog(logger)

    def __call__(self, record: SinkRecord) -> ConsumedMessage:
        """The message of a record, with the coordinates that it was read from."""
        topic = record.topic
        with self._lock:
            return _message(
                record,
                self._or_text(record, "key", partial(self._key.from_connect_data, topic)),
                self._or_text(record, "value", partial(self._value.from_connect_data, topic)),
                lambda name: self._or_text(
                    record, f"header {name}", partial(self._header.from_connect_header, topic, name)
                ),
            )

    def _or_text(self, record: SinkRecord, what: str, convert: _Convert) -> _Convert:
        def converted(schema: Schema | None, value: object) -> bytes | None:
            try:
                return convert(schema, value)
            except Exception as failure:
                self._note(record, what, failure)
                return _as_text(schema, value)

        return converted

    def _note(self, record: SinkRecord, what: str, failure: Exception) -> None:
        self._seldom.warning(
            (what, type(failure)),
            "Task %s: the %s of the record reported at %s-%s, offset %d, cannot be converted to bytes; "
            "its dead letter holds it as text: %s: %s",
            self._task,
            what,
            record.original_topic,
            record.original_kafka_partition,
            record.original_kafka_offset,
            java_class_name(failure),
            failure,
        )


def message_as_text(record: SinkRecord) -> ConsumedMessage:
    """A message of a record without converters: bytes as they are, other values as text.

    >>> made = message_as_text(SinkRecord("t", 0, 7, {"a": [True, None]}, key=b"k"))
    >>> made.topic, made.offset, made.key, made.value
    ('t', 7, b'k', b'{"a":[true,null]}')
    """
    return _message(record, _as_text, _as_text, lambda name: _as_text)


def _message(record: SinkRecord, key: _Convert, value: _Convert, header: Callable[[str], _Convert]) -> ConsumedMessage:
    return ConsumedMessage(
        record.original_topic,
        record.original_kafka_partition or 0,
        record.original_kafka_offset,
        record.timestamp,
        int(record.timestamp_type),
        key(record.key_schema, record.key),
        value(record.value_schema, record.value),
        tuple((one.key, header(one.key)(one.schema, one.value)) for one in record.raw_headers or ()),
    )


def _as_text(schema: Schema | None, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        text = value_text(value, schema)
    except Exception:
        text = str(value)  # of a class that Connect does not know, or not what its schema says
    return text.encode(errors="replace")
