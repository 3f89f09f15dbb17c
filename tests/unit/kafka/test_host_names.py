"""Kafka's clients speak to brokers whose certificate is for their name and from a known authority alone."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import confluent_kafka as ck
import pytest

from penstock.kafka.settings.client import admin_settings

TLS = Path(__file__).parents[2] / "data" / "tls"


@pytest.mark.parametrize(
    ("server", "trusted", "settings", "accepted"),
    [
        ("server.pem", "ca.pem", {}, True),
        ("server.pem", "elsewhere.pem", {}, False),
        ("elsewhere.pem", "elsewhere.pem", {}, False),
        ("elsewhere.pem", "elsewhere.pem", {"ssl.endpoint.identification.algorithm": "https"}, False),
        ("elsewhere.pem", "elsewhere.pem", {"ssl.endpoint.identification.algorithm": ""}, True),
        ("elsewhere.pem", "ca.pem", {"ssl.endpoint.identification.algorithm": ""}, False),
    ],
)
def test_a_broker_needs_a_certificate_of_its_name_and_of_a_known_authority(
    server: str, trusted: str, settings: dict[str, str], accepted: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(TLS / server))
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(TLS / trusted)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        worker = {"bootstrap.servers": address, "security.protocol": "SSL", **store, **settings}
        client = ck.Producer({**admin_settings(worker, client_id="test").checked().librdkafka, "log_level": 0})
        plain, _ = listener.accept()
        plain.settimeout(20)
        try:
            with context.wrap_socket(plain, server_side=True) as encrypted:
                # A client that goes on asks something; one that does not trust the server ends the connection.
                heard = bool(encrypted.recv(1))
        except ssl.SSLError:
            heard = False
    del client
    assert heard is accepted
