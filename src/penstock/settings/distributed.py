"""A distributed worker's configuration, parsed.

Main types: `DistributedSettings`, `KeySettings` (how workers sign what they ask of each other). Frozen values; any
thread.

Source: DistributedConfig of Kafka 4.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.settings.distributed_definition import DistributedConfig
from penstock.settings.faults import Fault
from penstock.settings.worker import WorkerSettings

_DEFAULTED: Final = ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")
_LARGEST_KEY_BITS: Final = 1 << 16


@dataclass(frozen=True)
class KeySettings:
    """`inter.worker.*`: how workers sign what they ask of each other.

    Attributes:
        algorithm: Of keys, by Java's name.
        size_bits: Of keys; None for the algorithm's own.
        ttl_ms: How long a key counts; 0 for ever.
        signature: How this worker signs.
        verified: Which signatures it takes.
    """

    algorithm: str
    size_bits: int | None
    ttl_ms: int
    signature: str
    verified: tuple[str, ...]


class DistributedSettings(DistributedConfig, WorkerSettings):
    """The settings of a distributed worker.

    Attributes:
        raw: Every setting of the file, and the names of the group and of the topics where the file leaves them to
            their defaults: clients, transactional ids and topics are named after them in many places.
        defaulted: Those names, with what they are.
    """

    defaulted: tuple[tuple[str, str], ...]

    @classmethod
    def beside(cls, raw: dict[str, str], values: Mapping[str, object]) -> dict[str, Any]:
        """See `WorkerSettings`."""
        defaulted = {name: str(values[name]) for name in _DEFAULTED if name not in raw}
        return {"raw": {**raw, **defaulted}, "defaulted": tuple(defaulted.items())}

    @property
    def keys(self) -> KeySettings:
        """How workers sign what they ask of each other."""
        return KeySettings(
            self.inter_worker_key_generation_algorithm,
            self.inter_worker_key_size,
            self.inter_worker_key_ttl_ms,
            self.inter_worker_signature_algorithm,
            self.inter_worker_verification_algorithms,
        )

    @classmethod
    def cross_faults(cls, properties: Mapping[str, str], values: Mapping[str, object]) -> list[Fault]:
        """Faults of several settings together; those of signatures count for `connect.protocol=sessioned` alone."""
        faults = _group_faults(properties, values)
        if values.get("connect.protocol") == "sessioned":
            faults += _key_faults(properties, values)
        return faults


DISTRIBUTED: Final = DistributedSettings.definition()


def mac_of(algorithm: str) -> str | None:
    """The name by which Python knows the digest of one of Java's MACs; None when it has none.

    >>> mac_of("HmacSHA256"), mac_of("hmacsha512/256"), mac_of("AESCMAC")
    ('sha256', 'sha512_256', None)
    """
    lower = algorithm.strip().lower()
    digest = lower.removeprefix("hmac").replace("/", "_").replace("sha3-", "sha3_")
    return digest if lower.startswith("hmac") and digest in hashlib.algorithms_available else None


def _group_faults(properties: Mapping[str, str], values: Mapping[str, object]) -> list[Fault]:
    faults = []
    session, heartbeat = values.get("session.timeout.ms"), values.get("heartbeat.interval.ms")
    if isinstance(session, int) and isinstance(heartbeat, int) and heartbeat >= session:
        rule = (
            f"Invalid value {heartbeat} for configuration heartbeat.interval.ms: it must be lower than "
            f"session.timeout.ms, which is {session}; a third of it is usual"
        )
        faults.append(Fault("heartbeat.interval.ms", properties.get("heartbeat.interval.ms"), rule))
    topics = [name for name in _DEFAULTED if name.endswith("topic")]
    for name in topics:
        same = [other for other in topics if other != name and values.get(other) == values.get(name)]
        if same and name > same[0]:
            rule = f"Invalid value {values.get(name)} for configuration {name}: {same[0]} is the same topic"
            faults.append(Fault(name, properties.get(name), rule))
    for name in _DEFAULTED:
        if name in values and not str(values[name]).strip():
            rule = f"Invalid value {values[name]} for configuration {name}: it must have a name"
            faults.append(Fault(name, properties.get(name), rule))
    return faults


def _key_faults(properties: Mapping[str, str], values: Mapping[str, object]) -> list[Fault]:
    def fault(name: str, why: str) -> Fault:
        return Fault(name, properties.get(name), f"Invalid value {values.get(name)} for configuration {name}: {why}")

    faults = []
    verified = values.get("inter.worker.verification.algorithms")
    signature = values.get("inter.worker.signature.algorithm")
    unknown = "Python has no HMAC of that name; HmacSHA256 is usual"
    for name in ("inter.worker.key.generation.algorithm", "inter.worker.signature.algorithm"):
        if mac_of(str(values.get(name))) is None:
            faults.append(fault(name, unknown))
    if isinstance(verified, list):
        if not verified:
            faults.append(fault("inter.worker.verification.algorithms", "at least one algorithm is needed"))
        elif any(mac_of(str(one)) is None for one in verified):
            faults.append(fault("inter.worker.verification.algorithms", unknown))
        elif signature not in verified:
            why = (
                f"it lacks {signature}, which inter.worker.signature.algorithm names: workers must take what they sign"
            )
            faults.append(fault("inter.worker.verification.algorithms", why))
    size = values.get("inter.worker.key.size")
    if isinstance(size, int) and not 8 <= size <= _LARGEST_KEY_BITS:
        faults.append(fault("inter.worker.key.size", f"it counts bits, from 8 to {_LARGEST_KEY_BITS}"))
    return faults
