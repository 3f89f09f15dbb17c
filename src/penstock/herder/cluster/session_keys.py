"""The keys with which workers of a group sign requests to each other, and the signatures.

Java signs only the body of a request, so anyone who has read one request can send it again, also to another path.
Requests to Penstock workers have a second signature, over the method, the path, the time and a nonce. If all members of
the group make it, requests without it are refused; Java ignores its headers.

Source: KIP-507; org.apache.kafka.connect.runtime.rest.InternalRequestSignature.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.errors import BadRequestException, ForbiddenException, NotReadyException
from penstock.model.cluster_config import SessionKey
from penstock.settings.distributed import KeySettings, mac_of

SIGNATURE: Final = "X-Connect-Authorization"
ALGORITHM: Final = "X-Connect-Request-Signature-Algorithm"
OWN_SIGNATURE: Final = "X-Penstock-Request-Signature"
TIME: Final = "X-Penstock-Request-Time"
NONCE: Final = "X-Penstock-Request-Nonce"

#: The clocks of workers may differ by an hour, and one of them may be adjusted in between.
_WINDOW_MS: Final = 2 * 3600 * 1000
#: The number of used nonces that are remembered: a group makes a few requests for each change of a connector.
_REMEMBERED: Final = 100_000
_DEFAULT_BITS: Final = 256
#: The largest number of digits of a time.
_DIGITS: Final = 19


def new_key(settings: KeySettings, now_ms: int, random_bytes: Callable[[int], bytes]) -> SessionKey:
    """A key for the group; ``random_bytes`` returns this many unpredictable bytes."""
    bits = settings.size_bits or _DEFAULT_BITS
    return SessionKey(random_bytes((bits + 7) // 8), settings.algorithm, now_ms)


def key_due_ms(key: SessionKey | None, settings: KeySettings, now_ms: int) -> int | None:
    """The milliseconds until the leader makes another key; 0 for at once, None for never.

    A key is due when there is none, when the present one has another algorithm or size, and when it is too old.
    """
    if key is None or key.algorithm != settings.algorithm:
        return 0
    if settings.size_bits is not None and len(key.key) != (settings.size_bits + 7) // 8:
        return 0
    if settings.ttl_ms == 0:
        return None
    # A clock that was set back must not keep a key for ever.
    return max(0, min(key.created_ms + settings.ttl_ms - now_ms, settings.ttl_ms))


@dataclass(frozen=True)
class Signer:
    """Signs requests.

    Attributes:
        algorithm: Java's name of the algorithm.
        now_ms: Milliseconds since the epoch.
        nonce: A text that no other request has.
    """

    algorithm: str
    now_ms: Callable[[], int]
    nonce: Callable[[], str]

    def headers(self, key: SessionKey, method: str, path: str, body: bytes) -> dict[str, str]:
        """The headers that identify the sender as a worker of the group; ``path`` as it is sent, without the query."""
        time, nonce = str(self.now_ms()), self.nonce()
        return {
            ALGORITHM: self.algorithm,
            SIGNATURE: _base64(_mac(key.key, self.algorithm, body)),
            TIME: time,
            NONCE: nonce,
            OWN_SIGNATURE: _base64(_mac(key.key, self.algorithm, _whole(method, path, time, nonce, body))),
        }


class Verifier:
    """Checks that requests come from a worker of the group.

    Args:
        accepted: The accepted algorithms, by Java's names.
        now_ms: Milliseconds since the epoch.

    Thread: any.
    """

    def __init__(self, accepted: tuple[str, ...], now_ms: Callable[[], int]) -> None:
        self._accepted = accepted
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._used: OrderedDict[str, int] = OrderedDict()

    def check(
        self,
        key: SessionKey | None,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        body_alone: bool,
    ) -> None:
        """Checks that a request is signed. Invariant 8.

        Args:
            key: The group's key; None before this worker has read one.
            method, path, headers: The request.
            body: Its bytes; None before they are read: then only the headers are checked, and the nonce is not used up.
            body_alone: True if a signature of the body is enough, because a Java worker is in the group.

        Raises:
            BadRequestException: it is not signed, or in a way that this worker does not accept.
            ForbiddenException: the signature is wrong, or the request was made before.
            NotReadyException: this worker has no key yet.
        """
        signature, algorithm = headers.get(SIGNATURE), headers.get(ALGORITHM)
        if signature is None or algorithm is None:
            raise BadRequestException("Internal request missing required signature")
        if mac_of(algorithm) is None or algorithm not in self._accepted:
            raise BadRequestException(
                f"This worker does not support the '{algorithm[:40]}' key signing algorithm used by other workers. "
                f"This worker is currently configured to use: {', '.join(self._accepted)}. Check that "
                "inter.worker.signature.algorithm of each worker is among inter.worker.verification.algorithms of all"
            )
        given = _decoded(signature)
        if key is None:
            raise NotReadyException(
                "This worker is still starting up and has not been able to read a session key from the config topic yet"
            )
        own = headers.get(OWN_SIGNATURE)
        if own is None and not body_alone:
            raise _wrong()
        time, nonce = headers.get(TIME, ""), headers.get(NONCE, "")
        if own is not None:
            self._check_time(time)
        if body is None:
            return
        if not hmac.compare_digest(given, _mac(key.key, algorithm, body)):
            raise _wrong()
        if own is None:
            return
        whole = _mac(key.key, algorithm, _whole(method, path, time, nonce, body))
        if not hmac.compare_digest(_decoded(own), whole):
            raise _wrong()
        self._use(nonce, time)

    def _check_time(self, time: str) -> None:
        now = self._now_ms()
        # Python does not parse numbers of thousands of digits.
        if not time.isdecimal() or len(time) > _DIGITS or abs(now - int(time)) > _WINDOW_MS:
            raise ForbiddenException(
                f"The internal request is of another time ({time[:_DIGITS]} ms since 1970, here it is {now}): compare "
                "the clocks of the workers"
            )

    def _use(self, nonce: str, time: str) -> None:
        """Accepts each nonce once."""
        now = self._now_ms()
        with self._lock:
            while self._used and (len(self._used) >= _REMEMBERED or next(iter(self._used.values())) < now - _WINDOW_MS):
                self._used.popitem(last=False)
            if nonce in self._used:
                raise ForbiddenException("The internal request was made before, and counts once")
            self._used[nonce] = max(now, int(time))


def _wrong() -> ForbiddenException:
    return ForbiddenException("Internal request contained invalid signature.")


def _mac(key: bytes, algorithm: str, data: bytes) -> bytes:
    digest = mac_of(algorithm)
    assert digest is not None
    return hmac.digest(key, data, digest)


def _whole(method: str, path: str, time: str, nonce: str, body: bytes) -> bytes:
    return "\n".join((method, path, time, nonce, "")).encode() + body


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequestException("The signature of the internal request is no base64") from None
