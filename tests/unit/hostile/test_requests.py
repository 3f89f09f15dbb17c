"""Requests that are too large, too many, of another site, or signed and yet senseless."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Generator, Iterator
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send
from testkit.doubles.control_plane import SINK, SOURCE
from testkit.waiting import await_true
from tests.unit.hostile.growth import require_in_step
from tests.unit.rest.api_client import SHARED, Api, serving

from penstock.connectors.file import FileStreamSourceConnector
from penstock.errors import BadRequestException, ConnectException, ForbiddenException
from penstock.herder.cluster.session_keys import NONCE, OWN_SIGNATURE, TIME, Signer, Verifier
from penstock.model.cluster_config import SessionKey
from penstock.rest.app import SMALL, AppOptions, BodyBudget
from penstock.rest.errors import json_bytes
from penstock.rest.server import MOST_PIECES
from penstock.settings.connector_definitions import LONGEST_NAME
from penstock.telemetry import Metrics
from penstock.telemetry.metrics import metrics_text

NOW_MS = 1_700_000_000_000
KEY = SessionKey(b"k" * 32, "HmacSHA256", NOW_MS)
JSON = {"content-type": "application/json"}


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as found:
        yield found


# ------------------------------------------------------------------ one budget for all bodies
class Upload:
    """A request that sends some bytes and is answered when it is told to be."""

    def __init__(self, budget: BodyBudget) -> None:
        self.budget = budget
        self.refused: HTTPException | None = None

    def send(self, *sizes: int) -> Iterator[None]:
        """Sends pieces, one for each step; the answer comes behind them."""
        pieces = iter(sizes)

        async def receive() -> Message:
            return {"type": "http.request", "body": b"x" * next(pieces), "more_body": True}

        async def send(message: Message) -> None: ...

        turns: list[Any] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            for _ in sizes:
                await receive()
                await _Turn()
            turns.append(None)

        self.budget._app = app
        work = self.budget({"type": "http"}, receive, send)
        while not turns:
            try:
                work.send(None)
            except StopIteration:
                return
            except HTTPException as error:
                self.refused = error
                return
            yield


class _Turn:
    def __await__(self) -> Generator[None, None, None]:
        yield


def test_bodies_of_all_requests_under_way_count_together() -> None:
    budget = BodyBudget(lambda *_: None, most=4 * SMALL, most_small=2 * SMALL)  # type: ignore[arg-type]
    first, second = Upload(budget), Upload(budget)
    one, two = first.send(2 * SMALL, SMALL), second.send(2 * SMALL, SMALL, SMALL)
    next(one)
    next(two)
    assert budget.held == {"small": 0, "large": 4 * SMALL}
    assert list(two) == []
    assert second.refused is not None
    assert second.refused.status_code == 503
    assert "try again a little later" in second.refused.detail
    assert list(one) == [None]
    assert budget.held == {"small": 0, "large": 0}


def test_small_bodies_do_not_wait_for_large_ones() -> None:
    budget = BodyBudget(lambda *_: None, most=SMALL, most_small=2 * SMALL)  # type: ignore[arg-type]
    large, small = Upload(budget), Upload(budget)
    assert list(large.send(SMALL + 1)) == []
    assert large.refused is not None
    assert list(small.send(SMALL)) == [None]
    assert small.refused is None
    assert set(budget.held.values()) == {0}


def test_a_refusal_for_the_budget_has_a_body(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rest.app.BodyBudget", lambda app: BodyBudget(app, 100_000, 100_000))
    with serving() as other:
        answer = other.http.post("/connectors", content=b"x" * 200_000, headers=JSON)
        assert answer.status_code == 503
        assert answer.json()["error_code"] == 503
        assert other.create("a")[0] == 201


def test_many_tiny_chunks_are_refused_and_keep_nobody_waiting(api: Api) -> None:
    head = (
        b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    port = SHARED.show(SHARED._app)  # type: ignore[arg-type]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:

        def flood() -> None:
            try:
                client.sendall(head + b"1\r\n \r\n" * 300_000)
            except OSError:
                return

        sender = threading.Thread(target=flood)
        began = time.process_time()
        sender.start()
        answer = client.recv(200)
        assert api.call("GET", "/connectors") == (200, [])
        sender.join(20)
        took = time.process_time() - began
    assert b" 400 " in answer.partition(b"\r\n")[0]
    # As many take nearly three seconds.
    assert took < 1.5


def test_a_body_in_as_many_pieces_as_a_slow_line_makes_is_taken(api: Api) -> None:
    body = json.dumps({"name": "a", "config": {"connector.class": SOURCE, "x": "y" * 1_000_000}}).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 500):
            yield body[start : start + 500]

    assert len(body) // 500 > MOST_PIECES - 100
    assert api.http.post("/connectors", content=pieces(), headers=JSON).status_code == 201


# ------------------------------------------------------------------ before the body is read


@pytest.mark.parametrize("path", ["/connectors/a/tasks", "/connectors/b/tasks"])
def test_an_unsigned_body_is_not_read(path: str, api: Api) -> None:
    api.create("a")
    port = SHARED.show(SHARED._app)  # type: ignore[arg-type]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n[".encode())
        # Not a byte more is sent.
        assert b" 400 " in client.recv(300).partition(b"\r\n")[0]


def test_task_configurations_have_as_much_room_as_the_tasks(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.setup.herder, "check_signature", lambda *_: None)
    api.create("one")
    api.create("three", **{"tasks.max": "3"})
    large = b"[" + b" " * (2 << 20) + b"]"
    asked = {name: api.http.post(f"/connectors/{name}/tasks", content=large).status_code for name in ("one", "three")}
    # A worker without a group then has nobody to store them for.
    assert asked["one"] == 413
    assert asked["three"] != 413


@pytest.mark.parametrize("digits", [20, 4_000, 5_000])
def test_a_time_of_many_digits_behind_a_valid_signature_is_refused(digits: int) -> None:
    verifier = Verifier(("HmacSHA256",), lambda: NOW_MS)
    numbers = count()
    signer = Signer("HmacSHA256", lambda: int("9" * 4), lambda: str(next(numbers)))
    body = b"[]"
    time_text = "9" * digits
    headers = signer.headers(KEY, "POST", "/x", body)
    headers[TIME] = time_text
    with pytest.raises(ForbiddenException, match="compare the clocks"):
        verifier.check(KEY, "POST", "/x", headers, body, body_alone=False)
    with pytest.raises(ForbiddenException, match="compare the clocks"):
        verifier.check(KEY, "POST", "/x", headers, None, body_alone=True)


def test_looking_at_the_headers_uses_no_number_up() -> None:
    verifier = Verifier(("HmacSHA256",), lambda: NOW_MS)
    signer = Signer("HmacSHA256", lambda: NOW_MS, lambda: "n")
    headers = signer.headers(KEY, "POST", "/x", b"[]")
    for body in (None, None, b"[]"):
        verifier.check(KEY, "POST", "/x", headers, body, body_alone=False)
    with pytest.raises(ForbiddenException, match="was made before"):
        verifier.check(KEY, "POST", "/x", headers, b"[]", body_alone=False)
    bare = {name: text for name, text in headers.items() if name not in (OWN_SIGNATURE, TIME, NONCE)}
    with pytest.raises(ForbiddenException, match="invalid signature"):
        verifier.check(KEY, "POST", "/x", bare, None, body_alone=False)
    with pytest.raises(BadRequestException, match="missing required signature"):
        verifier.check(KEY, "POST", "/x", {}, None, body_alone=True)


@pytest.mark.parametrize(
    "body", [rb'[{"a":"\ud800"}]', rb'[{"\udfff":"a"}]', b"[" * 100_000, b"[1e999]", b"[NaN]", b"\xff"]
)
def test_a_signed_body_that_holds_no_text_is_a_bad_request(
    body: bytes, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.setup.herder, "check_signature", lambda *_: None)
    api.create("a")
    assert api.http.post("/connectors/a/tasks", content=body).status_code == 400


# ------------------------------------------------------------------ answers that JSON has no words for
class Odd:
    def __str__(self) -> str:
        return "odd"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, "1180591620717411303424"),
        (-(2**63) - 1, "-9223372036854775809"),
        ("\ud800x", '"?x"'),
        ({"\udfff": 1}, '{"?":1}'),
        (float("nan"), "null"),
        (float("inf"), "null"),
        ({1: {2: [Odd(), (None, True)]}}, '{"1":{"2":["odd",[null,true]]}}'),
        ([2**70, {"a": float("nan")}], '[1180591620717411303424,{"a":null}]'),
    ],
)
def test_any_value_has_an_answer(value: object, text: str) -> None:
    assert json_bytes(value).decode() == text


def test_a_number_that_no_text_holds_has_an_answer() -> None:
    json.loads(json_bytes({"n": 10**6_000}))


def test_a_preview_of_records_with_large_numbers_is_answered(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {"type": "sink", "records": [{"value": 2**70, "key": "\ud800"}]}
    monkeypatch.setattr(api.setup.herder._questions, "preview", lambda *_: _done(shown))
    config = {"connector.class": SINK, "topics": "t"}
    answer = api.http.post(f"/connector-plugins/{SINK}/preview", json={"config": config})
    assert (answer.status_code, answer.json()["records"][0]["value"]) == (200, 2**70)


async def _done(value: object) -> object:
    return value


# ------------------------------------------------------------------ offsets
@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
def test_offsets_of_a_source_without_a_file_are_refused_as_a_bad_request(method: str, api: Api) -> None:
    api.call("POST", "/connectors", {"name": "f", "config": {"connector.class": "FileStreamSource", "topic": "t"}})
    api.call("PUT", "/connectors/f/stop")
    body = {"offsets": [{"partition": {"filename": "x"}, "offset": {"position": 1}}]} if method == "PATCH" else None
    status, message = api.error(method, "/connectors/f/offsets", body)
    assert (status, "'file' configuration is unspecified" in message) == (400, True)


def test_what_a_file_source_refuses_is_still_an_error_of_connect() -> None:
    with pytest.raises(ConnectException, match="non-negative"):
        FileStreamSourceConnector().alter_offsets({"file": "x"}, {frozenset({("filename", "x")}): {"position": -1}})


# ------------------------------------------------------------------ names
@pytest.mark.parametrize("letter", ["x", "é", "\u2028", "\U0001f600", "/"])
def test_a_name_is_as_long_as_a_path_has_room_for(letter: str, api: Api) -> None:
    api.setup.validator.strict = True
    fits = letter * (LONGEST_NAME // len(letter.encode()))
    config = {"connector.class": SOURCE}
    path = f"/connectors/{quote(fits, safe='')}"
    assert api.call("POST", "/connectors", {"name": fits, "config": config})[0] == 201
    assert api.call("GET", path)[0] == 200
    assert api.call("PUT", f"{path}/config", {**config, "tasks.max": "2"})[0] == 200
    assert api.call("DELETE", path)[0] == 204
    longer = {"name": fits + letter, "config": config}
    status, message = api.error("POST", "/connectors", longer)
    assert (status, "at most 10000 are possible" in message, len(message) < 500) == (400, True, True)
    assert api.error("PUT", f"/connectors/{quote(fits + letter, safe='')}/config", config)[0] == 400
    validation = api.call("PUT", f"/connector-plugins/{SOURCE}/config/validate", {**config, "name": fits * 2})[1]
    assert [one["value"]["name"] for one in validation["configs"] if one["value"]["errors"]] == ["name"]


# ------------------------------------------------------------------ pages of other sites
CHANGES = [
    ("POST", "/connectors/a/restart"),
    ("POST", "/connectors/a/tasks/0/restart"),
    ("PUT", "/connectors/a/pause"),
    ("PUT", "/connectors/a/resume"),
    ("PUT", "/connectors/a/stop"),
    ("DELETE", "/connectors/a/offsets"),
    ("PUT", "/connectors/a/topics/reset"),
    ("PUT", "/connectors/a/fence"),
    ("POST", "/connectors"),
    ("PUT", "/admin/loggers/x"),
    ("DELETE", "/connectors/a"),
]
SIMPLE = [
    None,
    "text/plain",
    "text/plain;charset=UTF-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; b=1",
]


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1.evil.example"])
def test_a_page_of_another_site_changes_nothing(
    method: str, path: str, kind: str | None, origin: str, foreign: Api
) -> None:
    headers = {"origin": origin, **({} if kind is None else {"content-type": kind})}
    answer = foreign.http.request(method, path, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error_code"] == 403
    assert "access.control.allow.origin" in answer.json()["message"]
    assert foreign.call("GET", "/connectors")[1] == ["a"]


@pytest.fixture(scope="module")
def foreign() -> Iterator[Api]:
    with serving() as found:
        found.create("a")
        yield found


def test_other_callers_are_served(api: Api) -> None:
    api.create("a")
    host = str(api.http.base_url).removeprefix("http://")
    for headers in ({}, {"origin": f"http://{host}"}, {"origin": f"https://{host}"}, {"origin": "http://x", **JSON}):
        assert api.http.post("/connectors/a/restart", headers=headers).status_code == 204, headers
    assert api.http.get("/connectors", headers={"origin": "http://evil.example"}).status_code == 200
    with serving(options=AppOptions(allow_origin="http://good.*")) as other:
        other.create("a")
        good, evil = ({"origin": f"http://{name}.example"} for name in ("good", "evil"))
        assert other.http.post("/connectors/a/restart", headers=good).status_code == 204
        assert other.http.post("/connectors/a/restart", headers=evil).status_code == 403


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("https://connect.example", "connect.example:443", 204),
        ("http://connect.example:80", "connect.example", 204),
        ("http://CONNECT.example", "connect.EXAMPLE", 204),
        ("http://connect.example:8083", "connect.example", 403),
        ("", "", 403),
    ],
)
def test_the_default_port_makes_no_other_site(origin: str, host: str, status: int, api: Api) -> None:
    api.create("a")
    answer = api.http.post("/connectors/a/restart", headers={"origin": origin, "host": host})
    assert answer.status_code in (status, 400 if not host else status)


# ------------------------------------------------------------------ metrics
def test_the_page_of_metrics_takes_long_labels() -> None:
    def labelled(size: int) -> Metrics:
        metrics = Metrics()
        for sign in ('"', "\\", "\n", "x"):
            metrics.counter("records_total", connector=sign * size).add(1)
        return metrics

    require_in_step(labelled, lambda one: metrics_text(one.read(), one.descriptions()), 100_000)
    assert "records_total" in metrics_text(labelled(100_000).read(), {})


def test_threads_of_answered_questions_are_gone(api: Api) -> None:
    before = threading.active_count()
    for number in range(20):
        api.call(
            "PUT",
            "/connector-plugins/FileStreamSource/config/validate",
            {"connector.class": "FileStreamSource", "n": number},
        )
    await_true(lambda: threading.active_count() <= before + 1, lambda: str(threading.enumerate()))
