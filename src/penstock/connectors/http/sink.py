"""HTTP sink: sends values to a web interface, one by one or in batches.

Main types: `HttpSink`, `HttpSinkTask`. Thread: the connector's and the task's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from penstock.api import RetryPolicy, SinkConnector, SinkRecord, SinkTask
from penstock.connectors.http.client import Client, HttpResponse, expand, shown
from penstock.connectors.http.json_values import body_of, plain
from penstock.connectors.http.settings import HttpSinkConfig, NullValues, places
from penstock.errors import ConnectException, DataException, RetriableException, retry_after_s


class HttpSinkTask(SinkTask):
    """Sends all records before ``put`` returns. At least once: records may be sent again after a kill."""

    config_class = HttpSinkConfig
    settings: HttpSinkConfig
    _done: tuple[object, int] = (None, 0)
    _failures = 0

    def start(self, props: Mapping[str, str]) -> None:
        """Makes the client; the connection is made for the first record."""
        super().start(props)
        self._client = Client(self.settings)
        backoff = self.settings.retry_backoff_ms / 1000
        self._policy = RetryPolicy(first_s=backoff, longest_s=max(60.0, backoff))

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See ``SinkTask.put``. Records that come again after a retry are not sent twice."""
        if not records:
            return
        first = records[0]
        this = (first.original_topic, first.original_kafka_partition, first.original_kafka_offset, len(records))
        done = self._done[1] if self._done[0] == this else 0
        try:
            for batch in self._batches(records[done:]):
                self._deliver(batch)
                done += len(batch)
        except RetriableException as error:
            self._done, self._failures = (this, done), self._failures + 1
            if 0 <= self.settings.max_retries < self._failures:
                raise ConnectException(f"{error}. Tried {self._failures} times (max.retries)") from error
            self.context.timeout(int(self._policy.wait_s(self._failures, error) * 1000))
            raise
        self._done = (None, 0)

    def stop(self) -> None:
        """Aborts the request in flight."""
        if hasattr(self, "_client"):
            self._client.close()

    def _batches(self, records: Sequence[SinkRecord]) -> Iterator[list[SinkRecord]]:
        """Records in a row with one address, and a value or none."""
        most = self.settings.batch_max_size
        for _, group in groupby(records, lambda one: (self._key_of(one), one.topic, one.value is None)):
            run = list(group)
            size = 1 if run[0].value is None else most
            yield from (run[start : start + size] for start in range(0, len(run), size))

    def _key_of(self, record: SinkRecord) -> str | None:
        if "key" not in places(self.settings.http_api_url) or record.key is None:
            return None
        key = plain(record.key)
        return key if isinstance(key, str) else json.dumps(key)

    def _deliver(self, batch: Sequence[SinkRecord]) -> None:
        """Sends a batch; one that is refused is halved until the refused records are by themselves."""
        try:
            answer = self._send(batch)
            if answer is None or 200 <= answer.status < 300:
                self._failures = 0
                return
            fault: Exception = _refused(answer)
        except RetriableException:
            raise
        except (DataException, ValueError, TypeError) as error:
            fault = error
        if len(batch) > 1:
            self._deliver(batch[: len(batch) // 2])
            self._deliver(batch[len(batch) // 2 :])
            return
        reporter = self.context.errant_record_reporter()
        if reporter is None:
            raise fault
        reporter.report(batch[0], fault)

    def _send(self, batch: Sequence[SinkRecord]) -> HttpResponse | None:
        config, first = self.settings, batch[0]
        if first.value is None and config.behavior_on_null_values is NullValues.IGNORE:
            return None
        if first.value is None and config.behavior_on_null_values is NullValues.FAIL:
            raise DataException("The record has no value (behavior.on.null.values=fail)")
        url = expand(config.http_api_url, {"topic": first.topic, "key": self._key_of(first)})
        if first.value is None:
            answer = self._client.send("DELETE", url)
        else:
            kind = {"content-type": config.content_type}
            body = config.joined(body_of(one.value) for one in batch).encode()
            answer = self._client.send(config.request_method.value, url, body=body, headers=kind)
        if config.retries(answer.status):
            raise RetriableException(str(_refused(answer)), retry_after_s=retry_after_s(answer.headers))
        return answer


def _refused(answer: HttpResponse) -> ConnectException:
    target = answer.headers.get("location")
    leads = f" and leads to {shown(target)}: give the address at its end" if target else ""
    return ConnectException(f"{shown(answer.url)} answered with status {answer.status}{leads}: {answer.text!r}")


class HttpSink(SinkConnector):
    """Sends records to a web interface, and reports records that it rejects."""

    config_class, task_class = HttpSinkConfig, HttpSinkTask
