"""What it means that Kafka does not let a worker into its group, in words that say what to do.

Main functions: ``refusal``, ``is_definite``. Pure; any thread.

Source: Kafka's protocol guide, error codes of FindCoordinator, JoinGroup and SyncGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.kafka.group.events import GroupRefusedException
from penstock.kafka.group.settings import GroupSettings

INVALID_SESSION_TIMEOUT: Final = "INVALID_SESSION_TIMEOUT"
LOGIN_REFUSED: Final = "SASL_AUTHENTICATION_FAILED"
TLS_FAILED: Final = "TLS_HANDSHAKE_FAILED"


def is_definite(code: str) -> bool:
    """Whether an error means that the broker does not take this member as it is; others may have passed by now."""
    return code in _TEXTS


def refusal(settings: GroupSettings, code: str, detail: str) -> GroupRefusedException:
    """The error for a code.

    Args:
        settings: Of the member.
        code: Kafka's name of the error, ``TLS_FAILED``, or whatever there is.
        detail: What is known beyond the code; the limits of the broker for ``INVALID_SESSION_TIMEOUT``.
    """
    text = _TEXTS.get(code, _other)(settings, detail)
    return GroupRefusedException(code, f"The worker cannot join the group {settings.group_id}: {text}")


def _other_members(settings: GroupSettings, detail: str) -> str:
    return (
        "its members are no Kafka Connect workers, or they have no protocol in common with this worker. Consumers and "
        "workers cannot share a group: set group.id to a name that nothing else uses (the consumers of a sink use "
        "connect-<its name>). Where other workers are in it, set connect.protocol as they do"
    )


def _session(settings: GroupSettings, detail: str) -> str:
    limits = detail or (
        "group.min.session.timeout.ms and group.max.session.timeout.ms, 6000 and 1800000 unless they were changed"
    )
    return (
        f"the broker does not allow session.timeout.ms={settings.session_timeout_ms}, its limits are {limits}. Set "
        "session.timeout.ms of the worker within them, or change them on all brokers"
    )


def _no_right(settings: GroupSettings, detail: str) -> str:
    return (
        f"the user of the worker has no right to it. Allow it to read the group, as in: kafka-acls --add "
        f'--allow-principal User:<name> --operation Read --group "{settings.group_id}"'
    )


def _full(settings: GroupSettings, detail: str) -> str:
    return "it has as many members as brokers allow (group.max.size). Stop a member, or raise that limit"


def _bad_name(settings: GroupSettings, detail: str) -> str:
    return "brokers take no such name. Set another group.id"


def _login(settings: GroupSettings, detail: str) -> str:
    mechanism = "" if settings.sasl is None else f" with {settings.sasl.mechanism}"
    return (
        f"a broker refuses the login{mechanism}: {detail}. Check sasl.mechanism, sasl.jaas.config and security.protocol"
    )


def _encryption(settings: GroupSettings, detail: str) -> str:
    return (
        f"no encrypted connection to a broker comes about: {detail}. Check ssl.truststore.location (who has signed the "
        "broker's certificate), ssl.keystore.location (where brokers want one of the worker), bootstrap.servers (the "
        "names have to be those of the certificate) and security.protocol"
    )


def _old_broker(settings: GroupSettings, detail: str) -> str:
    return f"the broker does not know a request that is needed: {detail}. Kafka 2.4 and newer have all of them"


def _other(settings: GroupSettings, detail: str) -> str:
    return f"the broker answers {detail}. Its log may say more"


_TEXTS: Final[Mapping[str, Callable[[GroupSettings, str], str]]] = {
    "INCONSISTENT_GROUP_PROTOCOL": _other_members,
    INVALID_SESSION_TIMEOUT: _session,
    "GROUP_AUTHORIZATION_FAILED": _no_right,
    "GROUP_MAX_SIZE_REACHED": _full,
    "INVALID_GROUP_ID": _bad_name,
    LOGIN_REFUSED: _login,
    "UNSUPPORTED_SASL_MECHANISM": _login,
    "ILLEGAL_SASL_STATE": _login,
    TLS_FAILED: _encryption,
    "UNSUPPORTED_VERSION": _old_broker,
}
