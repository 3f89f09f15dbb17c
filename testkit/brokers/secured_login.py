"""A listener that encrypts and asks for a login, and the settings of workers that log in there.

Main values: `LISTENER` and `SHORT_SESSIONS`, properties of an embedded broker's SASL_SSL listener; `SECURED_WORKER`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_TLS: Final = Path(__file__).parents[2] / "tests" / "data" / "tls"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
LISTENER: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "plain.sasl.jaas.config": f'{_PLAIN} required user_me="secret";',
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": str(_TLS / "server.p12"),
    "ssl.keystore.password": "storepass",
    "ssl.key.password": "storepass",
}
#: The same, where a session has to be renewed every two seconds.
SHORT_SESSIONS: Final = {**LISTENER, "plain.connections.max.reauth.ms": "2000"}
_CLIENT: Final = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{_PLAIN} required username="me" password="secret";',
    "ssl.truststore.location": str(_TLS / "trust.jks"),
    "ssl.truststore.password": "storepass",
}
#: The settings of a worker whose own clients, and those of all its connectors, log in there.
SECURED_WORKER: Final = {
    f"{kind}{key}": text for kind in ("", "producer.", "consumer.", "admin.") for key, text in _CLIENT.items()
}
