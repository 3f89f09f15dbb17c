"""Logins that are refused, and logins whose connection is lost."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from penstock.clients.trouble import Trouble
from penstock.errors import AuthenticationException, KafkaRetriableException
from penstock.kafka.consumer.offsets import ends_reading
from penstock.kafka.network.login_errors import refuses_login

REFUSED = (
    "sasl_ssl://b:1/1: SASL authentication error: Authentication failed: Invalid username or password",
    "sasl_ssl://b:1/1: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported "
    "mechanisms: GSSAPI",
)
LOST = (
    "sasl_ssl://b:1/1: SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported "
    "mechanisms: (n/a) (after 1ms in state DOWN)",
    "sasl_plaintext://b:1/1: SASL SCRAM-SHA-512 mechanism handshake failed: Local: Timed out: broker's supported "
    "mechanisms: (n/a)",
)


@pytest.mark.parametrize(("text", "refused"), [*((one, True) for one in REFUSED), *((one, False) for one in LOST)])
def test_only_a_login_that_a_broker_refuses_ends_a_consumer(text: str, refused: bool) -> None:
    error = ck.KafkaError(ck.KafkaError._AUTHENTICATION, text)
    assert refuses_login(error) is refused
    assert ends_reading(error) is refused
    trouble = Trouble()
    trouble.told(error)
    assert trouble.is_login is refused
    expected = AuthenticationException if refused else KafkaRetriableException
    assert type(trouble.named("the cluster cannot be asked", "b:1")) is expected
