"""The HTTP sink against a real server: batches, addresses, nulls, retries, and records that are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.connectors.http.web import Reply, Request, Web, serving

from penstock.api import Closing, ErrantRecordReporter, SinkRecord, SinkTaskContext
from penstock.connectors.http import HttpSink
from penstock.connectors.http.json_values import body_of
from penstock.connectors.http.settings import HttpSinkConfig
from penstock.connectors.http.sink import HttpSinkTask
from penstock.data import INT32_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConnectException, RetriableException
from penstock.plugins import PluginKind, Plugins

ARRAY = {"batch.prefix": "[", "batch.suffix": "]"}


class Reports(ErrantRecordReporter):
    def __init__(self) -> None:
        self.found: list[tuple[Any, str]] = []

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        self.found.append((record.value, str(error)))
        done: Future[None] = Future()
        done.set_result(None)
        return done


class Context(SinkTaskContext):
    def __init__(self, reports: Reports | None) -> None:
        self.reports = reports
        self.waits: list[int] = []

    def configs(self) -> dict[str, str]:
        return {}

    def offset(self, *args: Any) -> None: ...
    def pause(self, *args: Any) -> None: ...
    def resume(self, *args: Any) -> None: ...
    def assignment(self) -> Any:
        return set()

    def request_commit(self) -> None: ...

    @property
    def is_closing(self) -> Closing:
        return Closing(False)

    def timeout(self, timeout_ms: int) -> None:
        self.waits.append(timeout_ms)

    def errant_record_reporter(self) -> Reports | None:
        return self.reports


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving(lambda _: Reply()) as server:
        yield server


def started(
    url: str, settings: Mapping[str, str] | None = None, *, reports: bool = True
) -> tuple[HttpSinkTask, Context]:
    task, context = HttpSinkTask(), Context(Reports() if reports else None)
    task.initialize(context)
    task.start({"http.api.url": url, **(settings or {})})
    return task, context


def records(*values: Any, topic: str = "t", keys: Sequence[Any] = ()) -> list[SinkRecord]:
    found = [*keys, *[None] * len(values)]
    return [SinkRecord(topic, 0, at, value, key=found[at]) for at, value in enumerate(values)]


def bodies(web: Web) -> list[str]:
    return [one.body.decode() for one in web.requests]


def test_each_value_is_a_request(web: Web) -> None:
    task, _ = started(web.url, {"request.method": "PUT", "headers": "X-Key:1"})

    task.put(records({"a": 1}, "text", [1, None]))

    assert bodies(web) == ['{"a": 1}', "text", "[1, null]"]
    assert {one.method for one in web.requests} == {"PUT"}
    assert {(one.headers["x-key"], one.headers["content-type"]) for one in web.requests} == {("1", "application/json")}


def test_values_of_one_address_are_sent_together(web: Web) -> None:
    task, _ = started(f"{web.url}/${{topic}}", {"batch.max.size": "2", **ARRAY})

    task.put([*records(1, 2, 3), *records(4, 5, topic="other/../x")])

    assert bodies(web) == ["[1,2]", "[3]", "[4,5]"]
    assert web.paths() == ["/t", "/t", "/other%2F..%2Fx"]


def test_the_key_is_in_the_address(web: Web) -> None:
    task, context = started(f"{web.url}/${{key}}", {"batch.max.size": "5"})

    task.put(records(1, 2, 3, 4, keys=["a", "a", {"id": 1}, None]))

    assert web.paths() == ["/a", "/%7B%22id%22%3A%201%7D"]
    assert bodies(web) == ["1,2", "3"]
    assert context.reports is not None
    assert [value for value, _ in context.reports.found] == [4]
    assert "${key} of the URL" in context.reports.found[0][1]


@pytest.mark.parametrize(("behavior", "sent"), [("ignore", []), ("delete", [("DELETE", "/a")])])
def test_a_record_without_a_value_goes_by_the_setting(web: Web, behavior: str, sent: list[tuple[str, str]]) -> None:
    task, _ = started(f"{web.url}/${{key}}", {"behavior.on.null.values": behavior})

    task.put(records(None, keys=["a"]))

    assert [(one.method, one.path) for one in web.requests] == sent


def test_a_record_without_a_value_is_reported_where_none_may_be(web: Web) -> None:
    task, context = started(web.url, {"behavior.on.null.values": "fail", "batch.max.size": "9"})

    task.put(records(1, None, 2))

    assert bodies(web) == ["1", "2"]
    assert context.reports is not None
    assert context.reports.found == [(None, "The record has no value (behavior.on.null.values=fail)")]


def test_the_records_that_are_refused_are_found_and_reported(web: Web) -> None:
    def answer(request: Request) -> Reply:
        return Reply(b"no 3 or 6", 400) if {3, 6} & set(json.loads(request.body)) else Reply()

    web.answer = answer
    task, context = started(web.url, {"batch.max.size": "8", **ARRAY})

    task.put(records(*range(8)))

    accepted = [one for body in bodies(web) if not {3, 6} & set(found := json.loads(body)) for one in found]
    assert sorted(accepted) == [0, 1, 2, 4, 5, 7]
    assert context.reports is not None
    assert [value for value, _ in context.reports.found] == [3, 6]
    assert "answered with status 400: 'no 3 or 6'" in context.reports.found[0][1]


def test_without_a_reporter_a_refused_record_fails_the_task(web: Web) -> None:
    web.answer = lambda _: Reply(b"", 307, {"location": "http://else.where/?token=x"})
    task, _ = started(web.url, reports=False)

    with pytest.raises(ConnectException, match=r"status 307 and leads to http://else.where/: give the address"):
        task.put(records(1))


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}, object()])
def test_a_value_that_is_no_json_is_reported(web: Web, value: Any) -> None:
    task, context = started(web.url, {"batch.max.size": "3"})

    task.put(records(1, value, 2))

    assert bodies(web) == ["1", "2"]
    assert context.reports is not None
    assert len(context.reports.found) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_failure_that_may_pass_is_tried_again_with_the_records_that_were_not_sent(web: Web, status: int) -> None:
    busy = [True]

    def answer(request: Request) -> Reply:
        return Reply(b"busy", status, {"retry-after": "7"}) if busy[0] and request.body == b"2" else Reply()

    web.answer = answer
    task, context = started(web.url)
    given = records(1, 2, 3)
    for _ in range(2):
        with pytest.raises(RetriableException, match=f"status {status}: 'busy'"):
            task.put(given)
    busy[0] = False
    task.put(given)

    assert bodies(web) == ["1", "2", "2", "2", "3"]
    assert context.waits == [7000, 7000]
    task.put(given)
    assert bodies(web)[5:] == ["1", "2", "3"]


def test_retries_end_and_waits_grow(web: Web) -> None:
    web.answer = lambda _: Reply(b"", 500)
    task, context = started(web.url, {"max.retries": "2", "retry.backoff.ms": "100"})
    for _ in range(2):
        with pytest.raises(RetriableException):
            task.put(records(1))

    with pytest.raises(ConnectException, match=r"status 500.*Tried 3 times \(max.retries\)") as raised:
        task.put(records(1))

    assert not isinstance(raised.value, RetriableException)
    assert 80 <= context.waits[0] <= 100 < 160 <= context.waits[1] <= 200


def test_no_server_is_a_failure_that_may_pass(free_port: int) -> None:
    task, _ = started(f"http://127.0.0.1:{free_port}")

    with pytest.raises(RetriableException, match="ConnectError"):
        task.put(records(1))


@pytest.mark.parametrize(
    ("text", "retried", "not_retried"),
    [("429", [429], [428, 430]), ("500-502", [500, 502], [499, 503]), ("500-", [500, 599], [499]), ("", [], [500])],
)
def test_statuses_are_lists_and_ranges(text: str, retried: list[int], not_retried: list[int]) -> None:
    config = HttpSinkConfig.parse({"http.api.url": "http://h/", "retry.on.status.codes": text})

    assert all(config.retries(one) for one in retried)
    assert not any(config.retries(one) for one in not_retried)


def test_values_of_connect_are_json() -> None:
    schema = SchemaBuilder.struct().field("id", INT32_SCHEMA).build()
    value = {
        "struct": Struct(schema).put("id", 1),
        "bytes": b"hi",
        "decimal": Decimal("1.50"),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "map": {1: [None, "\u00e4"]},
    }

    assert json.loads(body_of(value)) == {
        "struct": {"id": 1},
        "bytes": "aGk=",
        "decimal": "1.50",
        "at": "2026-01-02T03:04:05+00:00",
        "day": "2026-01-02",
        "map": {"1": [None, "\u00e4"]},
    }


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        (
            {"http.api.url": "http://h/${offset}"},
            "http.api.url",
            "${offset} is not known; there are ${topic} and ${key}",
        ),
        ({"retry.on.status.codes": "5xx"}, "retry.on.status.codes", "an entry is 429, 500-599 or 500-, not '5xx'"),
        ({"batch.max.size": "0"}, "batch.max.size", "at least 1"),
        ({"request.method": "GET"}, "request.method", "GET"),
        ({"behavior.on.null.values": "drop"}, "behavior.on.null.values", "drop"),
        ({"behavior.on.null.values": "delete"}, "behavior.on.null.values", "delete needs ${key} in http.api.url"),
        ({"content.type": "text/\u00e4"}, "content.type", "printable ASCII"),
        ({"batch.key.pattern": "${topic}"}, "batch.key.pattern", "is not there: a batch has one address"),
        ({"behavior.on.error": "ignore"}, "behavior.on.error", "errors.tolerance"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], name: str, text: str) -> None:
    found = HttpSink().validate({"http.api.url": "http://h/", **settings})

    errors = {one.name: " ".join(one.error_messages) for one in found.config_values if one.error_messages}
    assert list(errors) == [name]
    assert text in errors[name]


def test_settings_of_the_java_connector_are_taken_as_they_are_written_there() -> None:
    settings = {
        "http.api.url": "http://h/${key}",
        "auth.type": "NONE",
        "request.method": "put",
        "behavior.on.null.values": "DELETE",
        "behavior.on.error": "FAIL",
        "request.body.format": "json",
        "batch.json.as.array": "true",
    }

    assert not HttpSink().validate(settings).errors()
    assert HttpSinkConfig.parse(settings).joined(["1", '"a"']) == '[1,"a"]'


def test_the_class_is_found_by_its_short_name() -> None:
    assert isinstance(Plugins.discover().new(PluginKind.SINK, "HttpSink"), HttpSink)
