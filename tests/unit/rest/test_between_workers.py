"""What a worker makes of requests that say that they come from another worker, and of workers that it cannot reach."""

import itertools
import json
import socket
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from tests.unit.rest.api_client import serving

from penstock.errors import BadRequestException, ConflictException, ForbiddenException
from penstock.herder.cluster.session_keys import ALGORITHM, SIGNATURE, Signer, Verifier
from penstock.herder.control_plane import NotHereException
from penstock.model.cluster_config import SessionKey
from penstock.rest.services import SignedRequests, WorkerClient, WorkerResponse

KEY = SessionKey(b"k" * 32, "HmacSHA256", 1_000)
NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000
TASKS = "/connectors/a/tasks"
CONFIGS = [{"task.class": "x", "file": "f"}]


class Asked:
    """A worker of a group: what it was asked for, when the signature was right."""

    def __init__(self, api, monkeypatch):
        self.api = api
        self.key = KEY
        self.stored: list[tuple[str, object]] = []
        verifier = Verifier(("HmacSHA256",), lambda: NOW_MS)
        herder = api.setup.herder

        def check(method, path, headers, body):
            verifier.check(self.key, method, path, headers, body, body_alone=False)

        def put(name, configs):
            self.stored.append((name, configs))
            return done(None)

        monkeypatch.setattr(herder, "check_signature", check)
        monkeypatch.setattr(herder, "put_task_configs", put)
        monkeypatch.setattr(herder, "fence_zombies", lambda name: put(name, "fenced"))

    def ask(self, headers, body=CONFIGS, method="POST", path=TASKS):
        """Status and message."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.api.http.request(method, path, content=raw, headers=headers)
        return answer.status_code, answer.json()["message"] if answer.content else None


class Passing(WorkerClient):
    """Asks that worker, without a connection."""

    def __init__(self, asked):
        super().__init__()
        self.asked = asked

    def ask(self, method, base_url, path, body=b"", headers=None, *, timeout_s=None):
        answer = self.asked.api.http.request(method, path, content=body, headers=headers)
        return WorkerResponse(answer.status_code, dict(answer.headers), answer.content)


def done(value):
    future: Future[object] = Future()
    future.set_result(value)
    return future


def failed(error):
    future: Future[object] = Future()
    future.set_exception(error)
    return future


def signed(body=CONFIGS, method="POST", path=TASKS, *, key=KEY, at_ms=NOW_MS, algorithm="HmacSHA256"):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    nonce = f"nonce-{next(_numbers)}"
    return Signer(algorithm, lambda: at_ms, lambda: nonce).headers(key, method, path, raw)


_numbers = itertools.count()


@pytest.fixture
def asked(monkeypatch):
    with serving() as api:
        yield Asked(api, monkeypatch)


# ---------------------------------------------------------------- signatures
def test_task_configurations_are_stored_for_a_worker_of_the_group(asked):
    assert asked.ask(signed()) == (204, None)
    assert asked.ask(signed(b"", "PUT", "/connectors/a/fence"), b"", "PUT", "/connectors/a/fence") == (204, None)
    assert asked.stored == [("a", CONFIGS), ("a", "fenced")]


@pytest.mark.parametrize("at_ms", [NOW_MS - HOUR_MS, NOW_MS + HOUR_MS])
def test_clocks_of_workers_may_be_an_hour_apart(asked, at_ms):
    assert asked.ask(signed(at_ms=at_ms)) == (204, None)


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({}, 400, "missing required signature"),
        ({SIGNATURE: "AAAA"}, 400, "missing required signature"),
        (signed(algorithm="HmacSHA512"), 400, "inter.worker.verification.algorithms"),
        ({**signed(), ALGORITHM: "ROT13"}, 400, "does not support the 'ROT13'"),
        ({**signed(), SIGNATURE: "no base64!"}, 400, "no base64"),
        (signed(key=SessionKey(b"x" * 32, "HmacSHA256", 1)), 403, "invalid signature"),
        (signed(body=[{"task.class": "y"}]), 403, "invalid signature"),
        (signed(path="/connectors/b/tasks"), 403, "invalid signature"),
        (signed(method="PUT", path="/connectors/a/fence"), 403, "invalid signature"),
        (signed(at_ms=NOW_MS - 3 * HOUR_MS), 403, "compare the clocks"),
    ],
)
def test_who_is_no_worker_of_the_group_stores_nothing(asked, headers, status, text):
    code, message = asked.ask(headers)

    assert (code, asked.stored) == (status, [])
    assert text in message


def test_a_request_that_was_overheard_does_not_count_again(asked):
    headers = signed()
    assert asked.ask(headers)[0] == 204

    assert asked.ask(headers) == (403, "The internal request was made before, and counts once")
    assert len(asked.stored) == 1


def test_a_worker_that_has_not_read_the_key_asks_to_try_again(asked):
    asked.key = None

    code, message = asked.ask(signed())

    assert (code, asked.stored) == (503, [])
    assert "has not been able to read a session key" in message


@pytest.mark.parametrize(
    ("own", "group", "error"),
    [
        (None, KEY, ConflictException),
        (None, None, ConflictException),
        (KEY, None, ConflictException),
        (SessionKey(b"old" * 11, "HmacSHA256", 1), KEY, ForbiddenException),
    ],
)
def test_a_worker_that_knows_the_key_too_late_or_too_early_is_told_to_ask_again(asked, own, group, error):
    asked.key = group
    signer = Signer("HmacSHA256", lambda: NOW_MS, lambda: "once")
    requests = SignedRequests(Passing(asked), signer, lambda: own)

    for ask in (lambda: requests.put_task_configs("x", "a", CONFIGS), lambda: requests.fence("x", "a")):
        with pytest.raises(error):
            ask()

    assert asked.stored == []


def test_what_is_wrong_in_a_signed_request_is_told_as_such(asked):
    signer = Signer("HmacSHA512", lambda: NOW_MS, lambda: "once")

    with pytest.raises(BadRequestException, match="HmacSHA512"):
        SignedRequests(Passing(asked), signer, lambda: KEY).fence("x", "a")


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, {"a": 1}, ["a"], [{"a": 1}], b""])
def test_a_signed_body_that_says_nothing_is_a_bad_request(asked, body):
    code, message = asked.ask(signed(body), body)

    assert (code, asked.stored) == (400, [])
    assert "ask" in message


def test_a_standalone_worker_takes_no_such_request():
    with serving() as api:
        for method, path in (("POST", TASKS), ("PUT", "/connectors/a/fence")):
            answer = api.http.request(method, path, content=b"[]", headers=signed([], method, path))
            assert answer.status_code == 400


# ---------------------------------------------------------------- workers that do not answer
@contextmanager
def talking_nonsense():
    """A server that answers something else than HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            for _ in range(2):
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def elsewhere(api, monkeypatch, url):
    """Another worker leads."""
    monkeypatch.setattr(
        api.setup.herder, "delete_connector", lambda name: failed(NotHereException("no known leader", url))
    )


@pytest.mark.parametrize("kind", ["nobody there", "no http", "no address", "no host"])
def test_a_worker_that_cannot_be_reached_is_a_conflict_that_says_what_to_set(kind, monkeypatch, free_port):
    with talking_nonsense() as nonsense, serving(workers=WorkerClient(timeout_s=5)) as api:
        url = {
            "nobody there": f"http://127.0.0.1:{free_port}/",
            "no http": nonsense,
            "no address": "worker-1",
            "no host": "http://no-such-host.invalid:8083/",
        }[kind]
        elsewhere(api, monkeypatch, url)

        code, message = api.error("DELETE", "/connectors/a")

        assert code == 409
        assert url in message
        assert "rest.advertised.host.name" in message


def test_a_leader_that_is_not_known_is_a_conflict(monkeypatch):
    with serving(workers=WorkerClient()) as api:
        elsewhere(api, monkeypatch, None)

        assert api.error("DELETE", "/connectors/a") == (409, "no known leader")


class Leader:
    """Another worker, which notes what it is asked."""

    def __init__(self, answer):
        self.asked = []
        self._answer = answer

    def ask(self, method, base_url, path, body=b"", headers=None, *, timeout_s=None):
        self.asked.append((method, base_url, path, body, headers))
        return self._answer


def test_a_request_is_passed_on_with_its_login_and_twice_at_most(monkeypatch):
    leader = Leader(WorkerResponse(404, {"content-type": "application/json"}, b'{"error_code":404,"message":"gone"}'))
    with serving(workers=leader) as api:
        elsewhere(api, monkeypatch, "http://leader:8083/")

        answers = [
            api.call("DELETE", f"/connectors/a{query}", headers={"Authorization": "Basic abc"})
            for query in ("", "?forward=true", "?forward=false", "?forward=nonsense")
        ]

        assert [status for status, _ in answers] == [404, 404, 409, 409]
        paths = ["/connectors/a?forward=true", "/connectors/a?forward=false"]
        login = {"Authorization": "Basic abc"}
        assert leader.asked == [("DELETE", "http://leader:8083/", path, b"", login) for path in paths]


def test_what_another_worker_answers_is_passed_on_whatever_it_is(monkeypatch):
    leader = Leader(WorkerResponse(418, {"content-type": "text/html", "transfer-encoding": "chunked"}, b"<p>proxy</p>"))
    with serving(workers=leader) as api:
        elsewhere(api, monkeypatch, "http://leader:8083/")

        answer = api.http.delete("/connectors/a")

        assert (answer.status_code, answer.text, answer.headers["content-type"]) == (418, "<p>proxy</p>", "text/html")
