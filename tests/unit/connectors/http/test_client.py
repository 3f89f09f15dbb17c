"""URLs with values in them, waits, and what credentials and limits do on the way to a real server."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.unit.connectors.http.web import Reply, Request, serving

from penstock.connectors.http.client import Client, expand
from penstock.connectors.http.settings import HttpConfig
from penstock.errors import ConfigException, ConnectException, DataException, RetriableException, retry_after_s


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


def client_of(url: str, **settings: str) -> Client:
    return Client(HttpConfig.parse({"http.api.url": url, **{k.replace("_", "."): v for k, v in settings.items()}}))


@pytest.mark.parametrize("value", ["a/b", "?x=1", "#f", "a b", "%2e", "\u00e4", "@evil", "..;/"])
def test_a_value_stays_in_its_place_of_the_url(value: str) -> None:
    found = expand("http://h/${key}/end", {"key": value})

    assert found.count("/") == 4
    assert not set("?#@ ") & set(found)


@pytest.mark.parametrize("value", [None, "", ".", ".."])
def test_a_value_that_would_lead_elsewhere_is_refused(value: str | None) -> None:
    with pytest.raises(DataException, match=r"\$\{key\} of the URL"):
        expand("http://h/${key}/x", {"key": value})


def test_an_empty_value_is_fine_in_a_query() -> None:
    assert expand("http://h/?after=${cursor}", {"cursor": ""}) == "http://h/?after="


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:01:00 -0000", 50.0),
        ("Thu, 01 Jan 1970 00:01:00", 50.0),
        ("99999999", 3600.0),
        ("soon", None),
        ("", None),
        ("-1", None),
        ("1.5", None),
    ],
)
def test_retry_after_is_read(text: str, wait: float | None) -> None:
    assert retry_after_s({"retry-after": text}, 10.0) == wait


@pytest.mark.parametrize(
    ("settings", "name", "text"),
    [
        ({"http.api.url": "ftp://h/"}, "http.api.url", "begins with http:// or https://"),
        ({"http.api.url": "file:///etc/passwd"}, "http.api.url", "begins with http://"),
        ({"http.api.url": "http:///x"}, "http.api.url", "has a host"),
        ({"http.api.url": "http://h:99999/"}, "http.api.url", "is no URL"),
        ({"http.api.url": "http://u:p@h/"}, "http.api.url", "must not hold a user or a password"),
        ({"http.api.url": "http://${key}/"}, "http.api.url", "the host must not have places"),
        ({"auth.type": "basic"}, "connection.user", "auth.type=basic needs it"),
        ({"auth.type": "bearer"}, "bearer.token", "auth.type=bearer needs it"),
        ({"auth.type": "bearer", "bearer.token": "\u20ac"}, "bearer.token", "printable ASCII"),
        ({"auth.type": "bearer", "bearer.token": "a\nb"}, "bearer.token", "printable ASCII"),
        ({"oauth2.token.url": "x"}, "oauth2.token.url", "begins with http://"),
        ({"headers": "X"}, "headers", "each must be NAME:VALUE"),
        ({"headers": "X:a\r\nY: b"}, "headers", "each must be NAME:VALUE"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms", "at least 1"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], name: str, text: str) -> None:
    config = {"http.api.url": "http://h/", **settings}
    with pytest.raises(ConfigException, match=name):
        HttpConfig.parse(config)
    if name != "request.timeout.ms":
        faults = dict(reversed(HttpConfig.of(HttpConfig.definition().parse(config)).faults(config)))
        assert text in faults[name]


def test_headers_and_basic_credentials_are_sent() -> None:
    with serving(lambda _: Reply(b"ok")) as web:
        client = client_of(
            web.url, headers="X-Key: 1|Accept:a/b", auth_type="basic", connection_user="u", connection_password="p:w"
        )
        assert client.send("GET", web.url).body == b"ok"
        client.close()

    sent = web.requests[0].headers
    assert (sent["x-key"], sent["accept"]) == ("1", "a/b")
    assert sent["authorization"] == f"Basic {base64.b64encode(b'u:p:w').decode()}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_origin_carries_no_credentials(status: int) -> None:
    with serving(lambda _: Reply(b"there")) as other, serving(lambda _: Reply()) as web:
        web.answer = lambda request: (
            Reply(b"", status, {"location": f"{other.url}/end"})
            if request.path == "/near"
            else Reply(b"", status, {"location": "/near"})
        )
        client = client_of(web.url, headers="X-Key:1", auth_type="bearer", bearer_token="secret")
        answer = client.send("GET", f"{web.url}/start")
        client.close()

    assert (answer.body, answer.url) == (b"there", f"{other.url}/end")
    assert [one.headers.get("authorization") for one in web.requests] == ["Bearer secret"] * 2
    assert not {"authorization", "x-key"} & set(other.requests[0].headers)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://h/x", "javascript:1"])
def test_a_redirect_to_another_scheme_is_refused(target: str) -> None:
    with serving(lambda _: Reply(b"", 302, {"location": target})) as web:
        client = client_of(web.url)
        with pytest.raises(ConnectException, match=r"not http or https|is no URL"):
            client.send("GET", web.url)
        client.close()


def test_a_circle_of_redirects_ends() -> None:
    with serving(lambda _: Reply(b"", 302, {"location": "/"})) as web:
        client = client_of(web.url)
        with pytest.raises(ConnectException, match="leads on more than 5 times"):
            client.send("GET", web.url)
        client.close()


def test_a_redirect_of_a_post_is_left_to_the_caller() -> None:
    with serving(lambda _: Reply(b"", 307, {"location": "/x"})) as web:
        client = client_of(web.url)
        assert client.send("POST", web.url, body=b"x").status == 307
        client.close()


LARGE = {
    "plain": Reply(b"x" * 1001),
    "packed": Reply(gzip.compress(b"x" * 100_000), headers={"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("name", LARGE)
def test_an_answer_that_is_too_large_is_refused(name: str) -> None:
    with serving(lambda _: LARGE[name]) as web:
        client = client_of(web.url, response_max_bytes="1000")
        with pytest.raises(ConnectException, match=r"larger than response.max.bytes=1000"):
            client.send("GET", web.url)
        client.close()


def test_no_answer_may_pass_and_the_query_is_not_told(free_port: int) -> None:
    client = client_of("http://127.0.0.1")
    with pytest.raises(RetriableException) as raised:
        client.send("GET", f"http://127.0.0.1:{free_port}/x?token=secret")
    client.close()

    assert f"GET http://127.0.0.1:{free_port}/x: ConnectError" in str(raised.value)
    assert "secret" not in str(raised.value)


class Tokens:
    """A server with an endpoint for tokens."""

    def __init__(self, **answer: Any) -> None:
        self.given = 0
        self.answer = answer
        self.refused: set[str] = set()

    def __call__(self, request: Request) -> Reply:
        if request.path == "/token":
            self.given += 1
            return Reply({"access_token": f"t{self.given}", **self.answer})
        return Reply(b"", 401 if request.headers.get("authorization") in self.refused else 200)


OAUTH = {"auth_type": "oauth2", "oauth2_client_id": "c", "oauth2_client_secret": "s&", "oauth2_client_scope": "read"}


def test_a_token_is_used_until_it_ends_or_is_refused() -> None:
    tokens = Tokens(expires_in=3600)
    with serving(tokens) as web:
        client = client_of(web.url, **OAUTH, oauth2_token_url=f"{web.url}/token")
        assert [client.send("GET", web.url).status for _ in range(2)] == [200, 200]
        assert tokens.given == 1
        tokens.refused.add("Bearer t1")
        assert client.send("GET", web.url).status == 200
        client.close()

    assert tokens.given == 2
    form = parse_qs(web.requests[0].body.decode())
    assert form == {
        "grant_type": ["client_credentials"],
        "client_id": ["c"],
        "client_secret": ["s&"],
        "scope": ["read"],
    }


def test_a_token_that_no_header_can_have_fails_the_task() -> None:
    with serving(lambda _: Reply({"access_token": "\u20ac"})) as web:
        client = client_of(web.url, **OAUTH, oauth2_token_url=f"{web.url}/token")
        with pytest.raises(ConnectException, match="is not ASCII"):
            client.send("GET", web.url)
        client.close()


def test_only_https_reads_the_trusted_authorities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with serving(lambda _: Reply(b"ok")) as web:
        client = client_of(web.url)
        assert client.send("GET", web.url).body == b"ok"
        with pytest.raises(ConnectException, match=r"https://127.0.0.1/.* SSL_CERT_FILE"):
            client.send("GET", "https://127.0.0.1/")
        client.close()
        with pytest.raises(RetriableException):
            client.send("GET", web.url)


def test_what_is_no_token_is_refused_without_telling_it() -> None:
    with serving(lambda _: Reply({"error": "s& is wrong"}, 400)) as web:
        client = client_of(web.url, **OAUTH, oauth2_token_url=f"{web.url}/token")
        with pytest.raises(ConnectException, match=r"gave no token \(status 400\): check oauth2.client.id") as raised:
            client.send("GET", web.url)
        client.close()

    assert "s&" not in str(raised.value)
