"""The errors that a client of librdkafka reports between two calls: ``Trouble``.

Thread: the client reports errors on its own thread or in a call; the user of the client reads them.
"""

from __future__ import annotations

from typing import Final

import confluent_kafka as ck

from penstock.errors import AuthenticationException, KafkaException, KafkaRetriableException
from penstock.kafka.network.sasl import refuses_login

_Error = ck.KafkaError
#: A refused login, or an untrusted certificate: a retry does not help.
_LOGIN: Final = frozenset({_Error.SASL_AUTHENTICATION_FAILED, _Error._SSL})


class Trouble:
    """The last error that a client reported outside of its calls, until it is cleared."""

    def __init__(self) -> None:
        self._last: ck.KafkaError | None = None

    def told(self, error: ck.KafkaError) -> None:
        """Records an error. "All brokers are down" does not replace the error of a single broker."""
        if self._last is None or error.code() != _Error._ALL_BROKERS_DOWN:
            self._last = error

    def clear(self) -> None:
        """Clears the error: the cluster has answered."""
        self._last = None

    @property
    def text(self) -> str | None:
        """The last error, for people; None if there was none."""
        last = self._last
        return None if last is None else last.str()

    @property
    def is_login(self) -> bool:
        """True if the last reported error is a failed login."""
        return self._last is not None and _is_login(self._last)

    def named(self, doing: str, servers: str, error: ck.KafkaError | None = None) -> KafkaException:
        """The exception for a failed call, or for the last reported error.

        Args:
            doing: The failed operation, and its cluster.
            servers: Its bootstrap servers.
            error: The error of the call; None if there is only a reported error.
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


#: Errors of calls that report a broken connection without its cause.
_VAGUE: Final = frozenset(
    {_Error._TIMED_OUT, _Error._TRANSPORT, _Error._ALL_BROKERS_DOWN, _Error.REQUEST_TIMED_OUT, _Error._TIMED_OUT_QUEUE}
)
