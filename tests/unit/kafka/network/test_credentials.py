"""What is said in a login by Kerberos, with a stand-in for the library."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ConfigException, SaslAuthenticationException
from penstock.kafka.network import credentials
from penstock.kafka.network.sasl import Exchange
from penstock.kafka.settings.security import KerberosSettings


class Context:
    """A security context that is complete after the broker's first answer."""

    def __init__(self, layers: bytes = b"\x07\x00\x10\x00", **made: Any) -> None:
        self.made = made
        self.complete = False
        self.layers = layers

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"ticket"
        if token != b"proof":
            raise ValueError("that is not the broker")
        self.complete = True
        return None

    def unwrap(self, message: bytes) -> Any:
        assert message == b"wrapped"
        return SimpleNamespace(message=self.layers)

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"<" + message + b">")


def test_after_the_ticket_comes_the_agreement_on_no_protection() -> None:
    exchange = Exchange(credentials.Kerberos(Context(), b"ticket"), "a:1")
    assert exchange.agreed(0, ["GSSAPI"]) == b"ticket"
    assert exchange.answered(0, None, b"proof") == b""
    assert exchange.answered(0, None, b"wrapped") == b"<\x01\x00\x00\x00>"
    assert exchange.answered(0, None, b"") is None


@pytest.mark.parametrize(("layers", "answer"), [(b"\x06\0\0\0", b"wrapped"), (b"\x01", b"wrapped")])
def test_a_broker_that_asks_for_protection_is_refused(layers: bytes, answer: bytes) -> None:
    exchange = Exchange(credentials.Kerberos(Context(layers), b"ticket"), "a:1")
    exchange.agreed(0, ["GSSAPI"])
    exchange.answered(0, None, b"proof")
    with pytest.raises(SaslAuthenticationException, match="a protection that Kafka's clients do not have"):
        exchange.answered(0, None, answer)


def test_a_broker_that_does_not_prove_itself_is_refused() -> None:
    exchange = Exchange(credentials.Kerberos(Context(), b"ticket"), "a:1")
    exchange.agreed(0, ["GSSAPI"])
    with pytest.raises(SaslAuthenticationException, match="that is not the broker"):
        exchange.answered(0, None, b"else")


def library(fault: Exception | None = None) -> Any:
    def credentials(**given: Any) -> Any:
        if fault is not None:
            raise fault
        return given

    return SimpleNamespace(
        Name=lambda text, kind=None: (text, kind),
        NameType=SimpleNamespace(kerberos_principal="principal", hostbased_service="service"),
        RequirementFlag=SimpleNamespace(mutual_authentication=2, integrity=32),
        Credentials=credentials,
        SecurityContext=Context,
    )


def test_a_ticket_is_taken_with_the_key_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", library())
    made = credentials.kerberos_login(KerberosSettings("kafka", "me@X", "/k"), "broker.example")
    assert made.first() == b"ticket"
    context = made._context.made
    assert context["name"] == ("kafka@broker.example", "service")
    assert context["creds"] == {
        "name": ("me@X", "principal"),
        "usage": "initiate",
        "store": {"client_keytab": "/k", "ccache": "MEMORY:"},
    }


def test_no_ticket_and_no_library_are_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", library(ValueError("no key for me@X")))
    with pytest.raises(SaslAuthenticationException, match=r"(?s)no key for me@X.*keyTab"):
        credentials.kerberos_login(KerberosSettings("kafka", "me@X", "/k"), "broker.example")
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigException, match=r"pip install 'penstock\[kerberos\]'"):
        credentials.gssapi_library()
