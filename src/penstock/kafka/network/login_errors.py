"""Distinguishes logins that a broker rejects from logins whose connection was lost: ``refuses_login``.

Pure functions; any thread. Source: Penstock's own; librdkafka's ``_AUTHENTICATION`` stands for both.
"""

from __future__ import annotations

from typing import Final

import confluent_kafka as ck

#: A broker's own answer is "handshake failed: Broker: ...".
_LOST: Final = "handshake failed: Local: "


def refuses_login(error: ck.KafkaError) -> bool:
    """True if the broker has refused the login; False also if the connection ended before it answered.

    >>> refuses_login(ck.KafkaError(ck.KafkaError._AUTHENTICATION, "SASL authentication failed: bad password"))
    True
    >>> refuses_login(ck.KafkaError(ck.KafkaError._AUTHENTICATION, "mechanism handshake failed: Local: Timed out"))
    False
    """
    return error.code() == ck.KafkaError._AUTHENTICATION and _LOST not in error.str()
