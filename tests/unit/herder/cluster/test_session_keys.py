"""Keys and signatures of internal requests, Java's and ours."""

import base64
import hashlib
import hmac
import itertools

import pytest
from testkit.doubles.contexts import ManualClock

from penstock.errors import BadRequestException, ForbiddenException, NotReadyException
from penstock.herder.cluster.session_keys import (
    ALGORITHM,
    NONCE,
    OWN_SIGNATURE,
    SIGNATURE,
    TIME,
    Signer,
    Verifier,
    key_due_ms,
    new_key,
)
from penstock.model.cluster_config import SessionKey
from penstock.settings import KeySettings

KEY = SessionKey(b"k" * 32, "HmacSHA256", 1_000_000)
BODY = b'[{"task.class":"x"}]'
PATH = "/connectors/a%20b/tasks"
SETTINGS = KeySettings("HmacSHA256", None, 3_600_000, "HmacSHA256", ("HmacSHA256",))


def signed(clock, algorithm="HmacSHA256", method="POST", path=PATH, body=BODY):
    numbers = itertools.count()
    return Signer(algorithm, clock, lambda: f"n{next(numbers)}").headers(KEY, method, path, body)


def javas(algorithm="HmacSHA256", body=BODY, digest=hashlib.sha256):
    mac = hmac.new(KEY.key, body, digest).digest()
    return {SIGNATURE: base64.b64encode(mac).decode(), ALGORITHM: algorithm}


def check(verifier, headers, *, key=KEY, method="POST", path=PATH, body=BODY, body_alone=False):
    verifier.check(key, method, path, headers, body, body_alone=body_alone)


def test_a_signed_request_passes_and_has_what_java_checks():
    clock = ManualClock(5_000_000)
    headers = signed(clock)

    check(Verifier(("HmacSHA256",), clock), headers)

    assert {name: headers[name] for name in (SIGNATURE, ALGORITHM)} == javas()


def test_a_request_of_java_passes_only_while_such_a_worker_is_in_the_group():
    verifier = Verifier(("HmacSHA256",), ManualClock(5_000_000))
    check(verifier, javas(), body_alone=True)
    with pytest.raises(ForbiddenException, match="invalid signature"):
        check(verifier, javas(), body_alone=False)


@pytest.mark.parametrize(
    "change",
    [{"body": b"[]"}, {"path": "/connectors/other/tasks"}, {"method": "PUT"}, {"key": SessionKey(b"z", "x", 1)}],
)
def test_nothing_of_a_signed_request_can_be_changed(change):
    clock = ManualClock(5_000_000)
    with pytest.raises(ForbiddenException):
        check(Verifier(("HmacSHA256",), clock), signed(clock), **change)


@pytest.mark.parametrize("header", [TIME, NONCE, OWN_SIGNATURE])
def test_none_of_its_headers_can_be_changed_or_left_out(header):
    clock = ManualClock(5_000_000)
    headers = signed(clock)
    for changed in ({**headers, header: "MTIz"}, {name: text for name, text in headers.items() if name != header}):
        with pytest.raises((ForbiddenException, BadRequestException)):
            check(Verifier(("HmacSHA256",), clock), changed)


def test_a_request_counts_once():
    clock = ManualClock(5_000_000)
    verifier, headers = Verifier(("HmacSHA256",), clock), signed(clock)
    check(verifier, headers)
    clock.now += 3_600_000
    with pytest.raises(ForbiddenException, match="made before"):
        check(verifier, headers)
    # Later it is too old, and need not be remembered.
    clock.now += 3_700_000
    with pytest.raises(ForbiddenException, match="another time"):
        check(verifier, headers)


@pytest.mark.parametrize("off_ms", [-3_600_000, 3_600_000])
def test_clocks_may_be_an_hour_apart(off_ms):
    here, there = ManualClock(5_000_000), ManualClock(5_000_000 + off_ms)
    check(Verifier(("HmacSHA256",), here), signed(there))


@pytest.mark.parametrize(
    ("headers", "error", "text"),
    [
        ({}, BadRequestException, "missing required signature"),
        ({SIGNATURE: "AAAA"}, BadRequestException, "missing required signature"),
        ({SIGNATURE: "AAAA", ALGORITHM: "HmacSHA1"}, BadRequestException, "does not support the 'HmacSHA1'"),
        ({SIGNATURE: "AAAA", ALGORITHM: "Caesar"}, BadRequestException, "does not support the 'Caesar'"),
        ({SIGNATURE: "not base64!", ALGORITHM: "HmacSHA256"}, BadRequestException, "no base64"),
        ({SIGNATURE: "AAAA", ALGORITHM: "HmacSHA256"}, ForbiddenException, "invalid signature"),
    ],
)
def test_what_is_not_signed_rightly_is_refused(headers, error, text):
    with pytest.raises(error, match=text):
        check(Verifier(("HmacSHA256",), ManualClock(5_000_000)), headers, body_alone=True)


def test_a_worker_without_a_key_asks_to_try_again():
    with pytest.raises(NotReadyException, match="session key"):
        check(Verifier(("HmacSHA256",), ManualClock(5_000_000)), javas(), key=None)


def test_other_algorithms_work_where_they_are_set():
    clock = ManualClock(5_000_000)
    verifier = Verifier(("HmacSHA512", "HmacSHA256"), clock)
    check(verifier, signed(clock, "HmacSHA512"))
    check(verifier, javas("HmacSHA512", digest=hashlib.sha512), body_alone=True)


def test_the_signature_of_an_empty_body():
    clock = ManualClock(5_000_000)
    check(Verifier(("HmacSHA256",), clock), signed(clock, method="PUT", body=b""), method="PUT", body=b"")


def test_a_new_key_has_the_size_that_is_set():
    made = new_key(KeySettings("HmacSHA512", 100, 0, "HmacSHA512", ()), 7, lambda count: b"r" * count)
    assert (made.key, made.algorithm, made.created_ms) == (b"r" * 13, "HmacSHA512", 7)
    assert len(new_key(SETTINGS, 7, lambda count: b"r" * count).key) == 32


@pytest.mark.parametrize(
    ("key", "settings", "now_ms", "due"),
    [
        (None, SETTINGS, 0, 0),
        (KEY, SETTINGS, 1_000_000, 3_600_000),
        (KEY, SETTINGS, 1_600_000, 3_000_000),
        (KEY, SETTINGS, 9_000_000, 0),
        # A clock that was set back does not keep it for longer than its time.
        (KEY, SETTINGS, 0, 3_600_000),
        (KEY, KeySettings("HmacSHA256", None, 0, "", ()), 9_000_000, None),
        (KEY, KeySettings("HmacSHA1", None, 0, "", ()), 1_000_000, 0),
        (KEY, KeySettings("HmacSHA256", 128, 0, "", ()), 1_000_000, 0),
        (KEY, KeySettings("HmacSHA256", 256, 0, "", ()), 1_000_000, None),
    ],
)
def test_when_the_leader_makes_another_key(key, settings, now_ms, due):
    assert key_due_ms(key, settings, now_ms) == due
