"""The preview of a connector's configuration on some records: each step of its chain, before and after.

Main type: ``Previewer``. Records come from the caller, from the source (``source``), or from the sink's topics.
They go through the connector's own converters and transforms (``chain``), record by record unless a transform needs
frames: the plans of users run in a process with a separate session (``process``). Nothing is committed, nothing is
    written.

``Pace`` delays previews: together they use a small share of the machine's time. On a machine without idle time a
preview takes its time from running connectors. A low priority does not help, because threads of the worker do half of
the work; so previews are spread over time.

Thread: ``preview`` blocks and is called on a thread of the caller's choice; a few run at once.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from penstock.api import SourceRecord
from penstock.config.patterns.translation import compile_java
from penstock.kafka.consumer.sampler import SampledMessage, sample
from penstock.kafka.settings.client import consumer_settings
from penstock.model import ConnectorType
from penstock.model.payloads import GivenRecord, PreviewRequest
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import SinkSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.preview.chain import ChainView, has_frames
from penstock.worker.preview.process import PreviewProcess
from penstock.worker.preview.session import session_settings
from penstock.worker.preview.source import FirstRecords, SourceReaders

#: The share of all cores that previews may use.
SHARE: Final = 0.015
#: The assumed use of a preview before it has run, in CPU seconds; also the least that it counts, because some of it is
#: not measured (the request's way in and out).
USUAL_S: Final = 0.01
#: The number of previews that may begin at once after a rest, so that a user who tries one and then another need not
#: wait.
AHEAD: Final = 2


class Pace:
    """Delays previews by the CPU time of earlier previews.

    Args:
        cores: The number of cores.
    """

    def __init__(self, cores: int) -> None:
        self._rate = SHARE * cores
        self._lock = threading.Lock()
        #: Until then the share is used up.
        self._used_until = float("-inf")

    def begins(self, now: float) -> float:
        """Books a preview; returns the seconds to wait before it begins.

        Args:
            now: Monotonic seconds.

        >>> pace = Pace(cores=2)
        >>> [round(pace.begins(now), 3) for now in (100.0, 100.0, 100.0, 101.0)]
        [0.0, 0.0, 0.333, 0.0]
        """
        with self._lock:
            each = USUAL_S / self._rate
            free = max(self._used_until, now)
            self._used_until = free + each
            return max(0.0, free - (AHEAD - 1) * each - now)

    def ended(self, used_s: float) -> None:
        """A preview that was booked has ended.

        Args:
            used_s: Its use, in CPU seconds.
        """
        with self._lock:
            self._used_until += max(0.0, used_s - USUAL_S) / self._rate


#: Reading costs next to nothing, and a source that blocks holds up a place for all of its time.
_AT_ONCE: Final = 4
#: The time limit of the plans of a preview, in addition to that of its reading, in seconds.
_PLANS_S: Final = 20.0


class Previewer:
    """Makes previews with the plugins and the Spark session of a worker.

    Args:
        settings: The worker's.
        plugins: Where classes come from.
        runtime: The Spark session.
    """

    def __init__(self, settings: WorkerSettings, plugins: Plugins, runtime: SparkRuntime) -> None:
        self._settings = settings
        self._plugins = plugins
        self._view = ChainView(settings, plugins, runtime)
        self._session = PreviewProcess(settings)
        self._turn = threading.BoundedSemaphore(_AT_ONCE)
        self._pace = Pace(os.cpu_count() or 1)
        self._readers = SourceReaders(session_settings(settings.spark_settings()))

    def close(self) -> None:
        """Ends the processes that read sources, and that run the plans of previews."""
        self._readers.close()
        self._session.close()

    def preview(self, request: PreviewRequest) -> dict[str, object]:
        """Reads or takes records and shows the results of each step.

        Raises:
            ConnectException: a part cannot be made, or the topics cannot be read.
        """
        with self._turn, self._paced() as used, ExitStack() as made:
            if request.type is ConnectorType.SINK:
                return self._sink(request, made)
            return self._source(request, made, used)

    @contextmanager
    def _paced(self) -> Iterator[list[float]]:
        """Waits until a preview may begin; books the use of its processes, in CPU seconds."""
        threading.Event().wait(self._pace.begins(time.monotonic()))
        began = time.thread_time()
        used: list[float] = []
        try:
            yield used
        finally:
            self._pace.ended(time.thread_time() - began + sum(used))

    # ------------------------------------------------------------------ sources
    def _source(self, request: PreviewRequest, made: ExitStack, used: list[float]) -> dict[str, object]:
        parts = self._view.source_parts(request.config, made)
        if request.records is None:
            cls = self._plugins.resolve_connector(request.config["connector.class"])
            read = self._readers.first_records(cls, request.config, request.limits)
            used.append(read.cpu_s)
        else:
            read = FirstRecords([_source_record(one) for one in request.records[: request.limits.records]], "given")
        if has_frames(parts) and read.records:
            shown = self._session.of_source(request.config, read.records, _evaluation_s(request))
        else:
            shown = self._view.of_source(parts, read.records)
        answer: dict[str, object] = {"type": "source", "ended_by": read.ended, "records": shown}
        if read.error is not None:
            answer["error"] = read.error
        return answer

    # ------------------------------------------------------------------ sinks
    def _sink(self, request: PreviewRequest, made: ExitStack) -> dict[str, object]:
        settings = self._view.sink_settings(request.config)
        parts = self._view.sink_parts(settings, made)
        if request.records is None:
            messages = self._sampled(request, settings)
        else:
            messages = [_message(one, seq) for seq, one in enumerate(request.records[: request.limits.records])]
        if has_frames(parts) and messages:
            shown = self._session.of_sink(request.config, messages, _evaluation_s(request))
        else:
            shown = self._view.of_sink(parts, messages)
        return {
            "type": "sink",
            "ended_by": "given" if request.records is not None else "records" if messages else "end",
            "records": shown,
        }

    def _sampled(self, request: PreviewRequest, settings: SinkSettings) -> list[SampledMessage]:
        client = consumer_settings(self._settings.raw, settings.raw, client_id="penstock-preview", group_id="preview")
        topics = compile_java(settings.topics_regex) if settings.topics_regex else settings.topics
        limits = request.limits
        return sample(
            client.checked().librdkafka, topics, records=limits.records, size=limits.bytes, seconds=limits.seconds
        )


def _evaluation_s(request: PreviewRequest) -> float:
    return _PLANS_S + request.limits.seconds


# ------------------------------------------------------------------ records in
def _source_record(given: GivenRecord) -> SourceRecord:
    record = SourceRecord(
        None, None, given.topic, given.value, key=given.key, partition=given.partition, timestamp=given.timestamp
    )
    for name, text in given.headers.items():
        record.headers.add_string(name, text)
    return record


def _message(given: GivenRecord, seq: int) -> SampledMessage:
    headers = [(name, text.encode()) for name, text in given.headers.items()]
    kind = -1 if given.timestamp is None else 0
    key, value = _given_bytes(given.key), _given_bytes(given.value)
    return SampledMessage(given.topic, given.partition or 0, seq, given.timestamp, kind, key, value, headers)


def _given_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value).encode()
