"""The settings that only librdkafka has, and their treatment.

``librdkafka.txt`` is the list of the library itself, written by ``python -m tools.reference.librdkafka``. A row is a
name, the clients that have it (C consumers, P producers, * all), type and values. A test compares it with the installed
version.

The owner of the worker's file controls which code runs in the worker, so that file may name libraries, commands and
files of librdkafka. A connector's configuration may not, under any override policy: a library's constructor runs as
soon as the name of the library is set.

Source: librdkafka's CONFIGURATION.md; rd_kafka_conf_set.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Property:
    """One setting of librdkafka."""

    name: str
    clients: str
    type: str
    lowest: int = 0
    highest: int = 0
    choices: tuple[str, ...] = ()


def _property(row: str) -> Property:
    name, clients, kind, *rest = row.split(" ")
    if kind == "integer" and rest:
        lowest, _, highest = rest[0].partition("..")
        return Property(name, clients, kind, int(lowest), int(highest))
    return Property(name, clients, kind, choices=tuple(rest[0].split(",")) if rest else ())


_LISTED: Final = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
PROPERTIES: Final[Mapping[str, Property]] = {one.name: one for one in map(_property, _LISTED.splitlines())}
"""Every setting that the library lists, by name. Settings for its own tests are not listed, and never set."""

#: In C, digits after a leading zero are octal.
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")

_LIBRARY: Final = "it loads a library into the worker"
_SHELL: Final = "it is part of a command that the worker's shell runs"
_FILE: Final = "the worker would read a file for it with its own rights"
_PROGRAM: Final = "it is for the program that uses librdkafka"

#: Settings that only the worker's file may set, with the reason or the alternative. Names of Java's clients are in
#: `table`.
_KEPT: Final[Mapping[str, str]] = {
    "builtin.features": _PROGRAM,
    "debug": "what it writes, secrets of the login among it, goes to the log of the whole worker",
    "enable.sasl.oauthbearer.unsecure.jwt": "it logs in with tokens that prove nothing",
    "enable.ssl.certificate.verification": "brokers would not have to prove who they are",
    "enabled_events": _PROGRAM,
    "https.ca.location": f"{_FILE}; use ssl.truststore.location or ssl.truststore.certificates",
    "internal.termination.signal": "it sends signals to the worker's process",
    "log.queue": _PROGRAM,
    "offset.store.method": "it writes offsets to a file; the worker commits them to Kafka",
    "offset.store.path": "it writes offsets to a file; the worker commits them to Kafka",
    "plugin.library.paths": _LIBRARY,
    "sasl.kerberos.keytab": f"{_SHELL}; use keyTab in sasl.jaas.config",
    "sasl.kerberos.kinit.cmd": "the worker's shell runs it",
    "sasl.kerberos.principal": f"{_SHELL}; use principal in sasl.jaas.config",
    "sasl.oauthbearer.assertion.file": "the worker would send what is in the file to the token endpoint",
    "sasl.oauthbearer.assertion.jwt.template.file": "the worker would send what is in the file to the token endpoint",
    "sasl.oauthbearer.assertion.private.key.file": _FILE,
    "sasl.oauthbearer.assertion.template.file": "the worker would send what is in the file to the token endpoint",
    "sasl.oauthbearer.config": "it is read by a callback, and callbacks are code",
    "sasl.oauthbearer.metadata.authentication.type": "the worker would log in as the machine that it runs on",
    "security.providers": "it names code to load",
    "ssl.ca.location": f"{_FILE}; use ssl.truststore.location or ssl.truststore.certificates",
    "ssl.certificate.location": f"{_FILE}; use ssl.keystore.location or ssl.keystore.certificate.chain",
    "ssl.crl.location": _FILE,
    "ssl.key.location": f"{_FILE}; use ssl.keystore.location or ssl.keystore.key",
    "topic.blacklist": "its patterns are run without a limit of time; use topics or topics.regex",
}
#: The same for all names with these prefixes, whether or not this version of the library has them.
_KEPT_FAMILIES: Final[Mapping[str, str]] = {
    "plugin.": _LIBRARY,
    "ssl.engine": _LIBRARY,
    "ssl.provider": _LIBRARY,
    "enable.sasl.oauthbearer.": "it changes how tokens are made and checked",
    "internal.": _PROGRAM,
    "test.": "it is for librdkafka's own tests",
    "ut_": "it is for librdkafka's own tests",
}
#: The Python client's additional settings: objects of Python, no text.
_OF_PYTHON: Final = frozenset({"default.topic.config", "logger", "on_commit", "on_delivery", "partitioner_callback"})
_CODE: Final = "it takes code, and none can be given in a configuration"

#: Settings whose texts must not be shown.
_SECRETS: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)


def property_for(name: str) -> Property | None:
    """The setting of this name that can be given as text; None if the library has none."""
    found = PROPERTIES.get(name)
    return None if found is None or found.type == "code" else found


def is_secret_of_librdkafka(name: str) -> bool:
    """True if the value of librdkafka's setting must not be shown.

    >>> is_secret_of_librdkafka("sasl.password"), is_secret_of_librdkafka("sasl.username")
    (True, False)
    """
    return name in _SECRETS


def reason_kept_from_connectors(name: str) -> str | None:
    """The reason why only the worker's file may set this for a client; None if a connector may.

    >>> reason_kept_from_connectors("plugin.library.paths")
    'it loads a library into the worker'
    >>> reason_kept_from_connectors("queued.min.messages")
    """
    if name in _KEPT:
        return _KEPT[name]
    listed = PROPERTIES.get(name)
    if name.endswith("_cb") or name in _OF_PYTHON or (listed is not None and listed.type == "code"):
        return _CODE
    return next((reason for begin, reason in _KEPT_FAMILIES.items() if name.startswith(begin)), None)


def kept_from_connectors() -> Mapping[str, str]:
    """The settings of the installed library that only the worker's file may set, by name, with the reasons."""
    found = {name: reason_kept_from_connectors(name) for name in sorted({*_KEPT, *PROPERTIES, *_OF_PYTHON})}
    return {name: reason for name, reason in found.items() if reason is not None}


def fault_of(name: str, text: str) -> str | None:
    """Returns the fault in the text of a setting of the library, or None if the library may have it."""
    found = PROPERTIES[name]
    word = text.strip()
    if found.type == "boolean":
        return None if word.lower() in ("true", "false", "1", "0") else "it is either true or false"
    if found.type == "integer":
        if _INTEGER.fullmatch(word) and found.lowest <= int(word) <= found.highest:
            return None
        return f"it is a number from {found.lowest} to {found.highest}"
    if found.type == "number":
        try:
            return None if math.isfinite(float(word)) else "it is a number"
        except ValueError:
            return "it is a number"
    if found.type == "choice" and word.lower() not in (one.lower() for one in found.choices):
        return f"it is one of {', '.join(found.choices)}"
    return None
