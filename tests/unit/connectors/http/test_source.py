"""The HTTP source against a real server: pages, offsets, restarts, failures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from testkit.doubles.contexts import FakeSourceContext, StoredOffsets
from tests.unit.connectors.http.web import Reply, Request, Web, serving

from penstock.api import SourceRecord
from penstock.connectors.http import HttpSource
from penstock.connectors.http.source import HttpSourceTask
from penstock.errors import ConnectException, RetriableException
from penstock.plugins import PluginKind, Plugins


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving(lambda _: Reply([])) as server:
        yield server


def started(url: str, settings: Mapping[str, str], offset: Mapping[str, Any] | None = None) -> HttpSourceTask:
    task = HttpSourceTask()
    task.initialize(FakeSourceContext(StoredOffsets(offset)))
    task.start({"http.api.url": url, "topic": "t", **settings})
    return task


def polled(task: HttpSourceTask, times: int) -> list[list[SourceRecord]]:
    return [task.poll() or [] for _ in range(times)]


def values(pages: list[list[SourceRecord]]) -> list[list[Any]]:
    return [[record.value for record in page] for page in pages]


def numbered(request: Request) -> Reply:
    """Three pages of two items, by number, cursor or link."""
    query = parse_qs(urlsplit(request.path).query)
    page = int((query.get("page") or query.get("after") or ["1"])[0])
    items = [{"id": page * 2 + one} for one in range(2)] if page <= 3 else []
    following = {"cursor": page + 1, "link": f"/next?page={page + 1}"} if page < 3 else {"cursor": None}
    headers = {"link": f'</next?page={page + 1}>; rel="next"'} if page < 3 else {}
    return Reply({"data": {"items": items}, "more": following}, headers=headers)


WALKS = {
    "number": ("/?page=${page}", {"page.mode": "number"}, 4),
    "cursor": ("/?after=${cursor}", {"page.mode": "cursor", "page.pointer": "/more/cursor"}, 3),
    "link of the header": ("/", {"page.mode": "link"}, 3),
    "link in the answer": ("/", {"page.mode": "link", "page.pointer": "/more/link"}, 3),
}
ITEMS = {"response.pointer": "/data/items", "key.pointer": "/id"}


@pytest.mark.parametrize("name", WALKS)
def test_all_pages_are_read_and_a_restart_repeats_no_more_than_a_page(web: Web, name: str) -> None:
    path, settings, requests = WALKS[name]
    web.answer = numbered
    task = started(web.url + path, {**ITEMS, **settings})

    pages = polled(task, requests)

    assert [one["id"] for page in values(pages) for one in page] == [2, 3, 4, 5, 6, 7]
    assert [record.key for page in pages for record in page] == [2, 3, 4, 5, 6, 7]
    assert len(web.requests) == requests
    task.context.stopping.set()
    assert task.poll() is None  # until the interval has passed
    # Behind the last item of the first page, and behind the first item of the second.
    for offset in (pages[0][-1].source_offset, pages[1][0].source_offset):
        again = started(web.url + path, {**ITEMS, **settings}, offset)
        assert values(polled(again, 1))[0][0]["id"] == 4
        again.stop()
    task.stop()


def test_the_offset_takes_the_largest_value_and_its_place_in_the_url(web: Web) -> None:
    web.answer = lambda request: Reply([{"at": 9}, {"at": 10}, {"at": 3}])
    settings = {"offset.pointer": "/at", "request.interval.ms": "0", "offset.initial": "1"}
    task = started(f"{web.url}/?since=${{offset}}", settings)

    (first, _) = polled(task, 2)

    assert web.paths() == ["/?since=1", "/?since=10"]
    # Only with the last item: the others may come in any order.
    assert [record.source_offset for record in first] == [{}, {}, {"offset": "10"}]
    polled(started(f"{web.url}/?since=${{offset}}", settings, first[-1].source_offset), 1)
    assert web.paths()[-1] == "/?since=10"


def test_the_largest_offset_of_all_pages_counts(web: Web) -> None:
    web.answer = numbered
    settings = {**ITEMS, "page.mode": "number", "offset.pointer": "/id", "request.interval.ms": "0"}
    task = started(f"{web.url}/?since=${{offset}}&page=${{page}}", settings)

    pages = polled(task, 5)

    assert web.paths()[-2:] == ["/?since=0&page=4", "/?since=7&page=1"]
    middle = pages[1][-1].source_offset
    assert middle == {"last": "5", "page": 3}
    rest = started(f"{web.url}/?since=${{offset}}&page=${{page}}", settings, middle)
    polled(rest, 3)
    assert web.paths()[-3:] == ["/?since=0&page=3", "/?since=0&page=4", "/?since=7&page=1"]


@pytest.mark.parametrize(
    ("answer", "items"), [({"a": 1}, [{"a": 1}]), ([], []), (None, []), (b"", []), ([1, "x"], [1, "x"])]
)
def test_an_answer_is_its_items(web: Web, answer: Any, items: list[Any]) -> None:
    web.answer = lambda _: Reply(answer)

    assert values(polled(started(web.url, {}), 1)) == [items]


def test_an_answer_without_content_has_no_items(web: Web) -> None:
    web.answer = lambda _: Reply(b"", 204)

    assert values(polled(started(web.url, {}), 1)) == [[]]


@pytest.mark.parametrize(
    ("reply", "settings", "text"),
    [
        (Reply(b"<html>"), {}, "is no JSON"),
        (Reply(b"\xff"), {}, "is no JSON"),
        (Reply(b"[" * 100_000), {}, "is no JSON: maximum recursion"),
        (Reply({"a": 1}), {"response.pointer": "/data"}, "nothing at /data in the answer of .*an object with 'a'"),
        (Reply([{"a": 1}]), {"key.pointer": "/id"}, r"nothing at /id in an item \(key.pointer\)"),
        (Reply([5]), {"offset.pointer": "/id"}, r"an item \(offset.pointer\): 'id' is not in 5"),
        (Reply([{"id": 1}, {"id": None}]), {"offset.pointer": "/id"}, "offset at /id in an item is no number .*None"),
        (Reply([{"id": [1]}]), {"offset.pointer": "/id"}, "offset at /id in an item is no number"),
        (Reply(b"not for you", 403), {}, "answered with status 403: 'not for you'"),
        (Reply([], headers={"link": '<file:///x>; rel="next"'}), {"page.mode": "link"}, "not http or https"),
    ],
)
def test_an_answer_that_does_not_fit_fails_the_task_with_what_and_where(
    web: Web, reply: Reply, settings: dict[str, str], text: str
) -> None:
    web.answer = lambda _: reply

    with pytest.raises(ConnectException, match=text) as raised:
        started(web.url, settings).poll()

    assert not isinstance(raised.value, RetriableException)


CIRCLES = {
    "a cursor that stands still": ("/?c=${cursor}", "cursor", lambda path: "same"),
    "cursors in a circle": ("/?c=${cursor}", "cursor", lambda path: {"": "a", "a": "b", "b": "c"}.get(path[4:], "a")),
    "a link to itself": ("/", "link", lambda path: path),
    "links in a circle": ("/", "link", lambda path: "/b" if path == "/a" else "/a"),
    "a number that makes no difference": ("/?p=${page}", "number", lambda path: None),
}


@pytest.mark.parametrize("name", CIRCLES)
def test_pages_that_never_end_fail_the_task(web: Web, name: str) -> None:
    path, mode, following = CIRCLES[name]
    web.answer = lambda request: Reply({"items": [1], "next": following(request.path)})
    pointers = {} if mode == "number" else {"page.pointer": "/next"}
    task = started(web.url + path, {"page.mode": mode, "response.pointer": "/items", **pointers})

    with pytest.raises(ConnectException, match=r"as the next page|same answer for two values of \$\{page\}"):
        polled(task, 12)


def test_a_second_round_may_have_the_pages_of_the_first(web: Web) -> None:
    web.answer = numbered
    settings = {**ITEMS, "page.mode": "number", "request.interval.ms": "0"}

    pages = polled(started(f"{web.url}/?page=${{page}}", settings), 12)

    assert values(pages[:4]) == values(pages[4:8]) == values(pages[8:])
    assert len(pages[8]) == 2


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_failure_that_may_pass_is_tried_again_when_the_server_says(web: Web, status: int) -> None:
    web.answer = lambda _: Reply(b"busy", status, {"retry-after": "30"})
    task = started(web.url, {})
    with pytest.raises(RetriableException, match=f"status {status}: 'busy'") as raised:
        task.poll()
    web.answer = lambda _: Reply([1])

    assert raised.value.retry_after_s == 30
    assert values(polled(task, 1)) == [[1]]


def test_the_wait_ends_when_the_task_stops(web: Web) -> None:
    task = started(web.url, {})
    task.poll()
    task.context.stopping.set()
    before = time.monotonic()

    assert task.poll() is None

    assert time.monotonic() - before < 0.5
    task.stop()


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        ({"http.api.url": "http://h/${page}"}, "http.api.url", "${page} has no value"),
        ({"http.api.url": "http://h/${offset}"}, "http.api.url", "${offset} needs offset.pointer"),
        ({"http.api.url": "http://h/${name}"}, "http.api.url", "${name} has no value"),
        ({"page.mode": "number"}, "http.api.url", "needs a place for it"),
        ({"http.api.url": "http://h/?c=${cursor}", "page.mode": "cursor"}, "page.pointer", "page.mode=cursor needs it"),
        ({"key.pointer": "id"}, "key.pointer", "begins with /"),
        ({"page.mode": "pages"}, "page.mode", "pages"),
        ({"topic": None}, "topic", "Missing required"),
        ({"http.offset.mode": "SIMPLE_INCREMENTING"}, "http.offset.mode", "is not there: set offset.pointer"),
        ({"http.proxy.host": "proxy"}, "http.proxy.host", "from the environment"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str | None], name: str, text: str) -> None:
    props = {"http.api.url": "http://h/", "topic": "t", **settings}

    found = HttpSource().validate({key: value for key, value in props.items() if value is not None})

    errors = {one.name: " ".join(one.error_messages) for one in found.config_values if one.error_messages}
    assert list(errors) == [name]
    assert text in errors[name]


def test_the_class_is_found_by_its_short_name() -> None:
    assert isinstance(Plugins.discover().new(PluginKind.SOURCE, "HttpSource"), HttpSource)
