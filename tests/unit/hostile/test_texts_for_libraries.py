"""Texts of users that libraries take: topics, log levels, files of keys and secrets, addresses."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
import sqlalchemy
from tests.unit.hostile.native_code import build
from tests.unit.rest.api_client import Api, serving

from penstock.config.properties import MOST_BYTES
from penstock.config.providers import DirectoryConfigProvider, FileConfigProvider
from penstock.connectors.jdbc.addresses import parse_address
from penstock.converters.registry.settings import RegistryConfig
from penstock.errors import ConfigException
from penstock.kafka.consumer.offsets import Subscription
from penstock.kafka.network.credentials import TokenException, fetch
from penstock.kafka.settings.client import translate
from penstock.kafka.settings.security import TokenSettings
from penstock.kafka.settings.table import ClientKind
from penstock.pipeline.columns.java_dates import DatePatternError, compile_pattern
from penstock.plugins import Plugins
from penstock.settings.topics import require_valid_topics
from penstock.telemetry.logs import Loggers
from penstock.validation.validator import ConnectorValidator

#: The Kafka client compiles it as a pattern, and the system's compiler ends the process for lack of memory.
BOMB = "^((((a{1,100}){1,100}){1,100}){1,100})$"


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as made:
        yield made


def test_no_topic_of_a_list_is_a_pattern_of_the_kafka_client() -> None:
    config = {"name": "a", "connector.class": "FileStreamSink", "topics": f"t,{BOMB}", "file": "/nowhere"}
    # A list is cut at commas, and each piece counts.
    found = ConnectorValidator(Plugins()).infos(config, config).findings
    assert [one.name for one in found if one.value.error_messages] == ["topics"]
    with pytest.raises(ConfigException, match=r"begins with \^"):
        require_valid_topics(config)
    with pytest.raises(ConfigException, match=r"begins with \^"):
        Subscription.of(["t", BOMB])
    # A broker that a connector has chosen may name such a topic, too.
    assert not Subscription.matching(".*").covers(BOMB)


def test_a_logger_has_no_name_that_costs_a_gigabyte(api: Api) -> None:
    before = len(logging.root.manager.loggerDict)
    status, message = api.error("PUT", f"/admin/loggers/{'a.' * 5_000}b", {"level": "INFO"})
    assert status == 400
    assert "10001 characters" in message
    # Another worker of the group may have stored it, before it was upgraded.
    assert Loggers().set_level("a." * 5_000, "INFO") == []
    assert len(logging.root.manager.loggerDict) == before


ENDLESS = ["/dev/zero", "/proc/self/pagemap"]


@pytest.mark.parametrize("path", ENDLESS)
def test_no_file_of_keys_is_read_without_end(path: str) -> None:
    for name in ("truststore.location", "keystore.location"):
        settings = {"schema.registry.url": "https://127.0.0.1:1", f"schema.registry.ssl.{name}": path}
        settings["converter.type"] = "value"
        with pytest.raises(ConfigException, match=r"not a file|too large|cannot be read"):
            RegistryConfig.parse(settings).client()
        for kind in ClientKind:
            given = {"security.protocol": "SSL", f"ssl.{name}": path, "ssl.keystore.type": "PEM"}
            assert [fault.name for fault in translate(kind, {**given, "ssl.truststore.type": "PEM"}).refused] == [
                f"ssl.{name}"
            ]


@pytest.mark.parametrize("path", ENDLESS)
def test_no_file_of_secrets_is_read_without_end(path: str) -> None:
    with pytest.raises(ConfigException, match=r"device|too large|Could not read"):
        FileConfigProvider().get(path, {"key"})
    found: list[str] = []
    with contextlib.suppress(ConfigException):
        found += DirectoryConfigProvider().get(str(Path(path).parent), {Path(path).name}).data
    assert found == []


def test_a_large_file_is_no_secret(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ConfigException, match="too large"):
        FileConfigProvider().get(str(large), {"key"})
    with pytest.raises(ConfigException, match="too large"):
        DirectoryConfigProvider().get(str(tmp_path), {"large"})


class Redirecting(BaseHTTPRequestHandler):
    """Sends whoever asks for a token to another address."""

    asked: list[str]
    target: str

    def do_POST(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        type(self).asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        self.send_response(302)
        self.send_header("Location", type(self).target)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("target", ["/other", "ftp://127.0.0.1:1/x", "file:///etc/passwd"])
def test_a_token_endpoint_sends_the_clients_secret_nowhere_else(target: str) -> None:
    Redirecting.asked, Redirecting.target = [], target
    server = HTTPServer(("127.0.0.1", 0), Redirecting)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        settings = TokenSettings(f"http://127.0.0.1:{server.server_port}/token", "client_credentials", "me", "secret")
        with pytest.raises(TokenException, match="302"):
            fetch(settings)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
    assert len(Redirecting.asked) == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/x", "data:,x", "FILE:///x", " http://h", "gopher://h"])
def test_an_address_of_a_token_endpoint_is_http(url: str) -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    for kind in ClientKind:
        assert "sasl.oauthbearer.token.endpoint.url" in {fault.name for fault in translate(kind, given).refused}


@pytest.mark.parametrize("text", ["y" * 1_000 + "d", "yyyyMMdd" * 200, "'" + "x" * 5_000 + "'"])
def test_a_date_pattern_does_not_become_an_expression_of_megabytes(text: str) -> None:
    with pytest.raises(DatePatternError, match="1000 characters at most"):
        compile_pattern(text)
    for name, setting in (("TimestampRouter", "timestamp.format"), ("TimestampConverter$Value", "format")):
        config = {
            "name": "a",
            "connector.class": "FileStreamSink",
            "topics": "t",
            "file": "/nowhere",
            "transforms": "t",
            "transforms.t.type": name,
            f"transforms.t.{setting}": text,
            "transforms.t.target.type": "string",
        }
        found = ConnectorValidator(Plugins()).infos(config, config).findings
        assert f"transforms.t.{setting}" in {one.name for one in found if one.value.error_messages}


class LikePostgres:
    """A server that says yes to encryption, and no more: PostgreSQL's client loads its key then."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                connection, _ = self._listening.accept()
                with connection:
                    if connection.recv(8) == b"end":
                        return
                    connection.sendall(b"S")
                    connection.recv(100)

    def close(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(b"end")
        self._thread.join(10)
        self._listening.close()


@pytest.mark.parametrize("scheme", ["jdbc:postgresql", "postgresql", "postgres", "postgresql+psycopg"])
def test_the_address_of_a_database_loads_no_library(scheme: str, tmp_path: Path) -> None:
    native = build(tmp_path)
    server = LikePostgres()
    certificate = Path(__file__).parents[2] / "data" / "tls" / "client.pem"
    try:
        for text in (f"{native.library}:x", quote(f"{native.library}:x", safe=""), f"dynamic:{native.library}", ":x"):
            url = f"{scheme}://127.0.0.1:{server.port}/d?user=a&sslmode=require&sslcert={certificate}&sslkey={text}"
            with pytest.raises(ConfigException, match="sslkey takes the path of a file"):
                sqlalchemy.create_engine(parse_address(url).sqlalchemy_url()).connect()
    finally:
        server.close()
    assert not native.was_loaded()
