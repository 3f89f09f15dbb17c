"""The errors that a client of librdkafka reports between two calls: ``Trouble``.

Thread: the client tells it from its own thread or from a call; whoever uses the client asks.
"""

from __future__ import annotations

from typing import Final

import confluent_kafka as ck

from penstock.errors import AuthenticationException, KafkaException, KafkaRetriableException
from penstock.kafka.network.login_errors import refuses_login

_Error = ck.KafkaError
#: A login that was refused, or a certificate that is not trusted: trying again changes nothing.
_LOGIN: Final = frozenset({_Error.SASL_AUTHENTICATION_FAILED, _Error._SSL})


class Trouble:
    """The last error that a client told outside of its calls, until it is cleared."""

    def __init__(self) -> None:
        self._last: ck.KafkaError | None = None

    def told(self, error: ck.KafkaError) -> None:
        """Notes an error. That all brokers are down says less than what was said of one of them."""
        if self._last is None or error.code() != _Error._ALL_BROKERS_DOWN:
            self._last = error

    def clear(self) -> None:
        """Forgets it: the cluster has answered."""
        self._last = None

    @property
    def text(self) -> str | None:
        """The last error, for people; None if there was none."""
        last = self._last
        return None if last is None else last.str()

    @property
    def is_login(self) -> bool:
        """True if what was told last is that the login failed."""
        return self._last is not None and _is_login(self._last)

    def named(self, doing: str, servers: str, error: ck.KafkaError | None = None) -> KafkaException:
        """The exception for a call that has failed, or for what was told.

        Args:
            doing: What was tried, and of which cluster.
            servers: Its bootstrap servers.
            error: What the call says; None: only what was told counts.
        """
        last = self._last
        cause = last if last is not None and (error is None or error.code() in _VAGUE) else error
        text = f"{doing}: {cause.str() if cause is not None else 'no answer'}"
        if cause is not None and _is_login(cause):
            return AuthenticationException(
                f"{text} (brokers {servers}; check security.protocol, sasl.mechanism, sasl.jaas.config and the trust "
                "store of this cluster's settings)"
            )
        if cause is None or cause.retriable() or cause.code() in _VAGUE or cause.code() < 0:
            return KafkaRetriableException(f"{text} (brokers {servers}; check that they are reachable)")
        return KafkaException(text)


def _is_login(error: ck.KafkaError) -> bool:
    return error.code() in _LOGIN or refuses_login(error)


#: What a call says when the connection is at fault, and not why.
_VAGUE: Final = frozenset(
    {_Error._TIMED_OUT, _Error._TRANSPORT, _Error._ALL_BROKERS_DOWN, _Error.REQUEST_TIMED_OUT, _Error._TIMED_OUT_QUEUE}
)
