"""Settings of Kafka's clients that depend on each other: some are adjusted, some are refused.

Main functions: `adjust_producer`, `adjust_consumer`, `fit_together`; `LeftOut` is a setting that is not used.

Thread: any; everything is pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.kafka.client_values import RdValue, items

#: With more requests under way a broker does not know all of their numbers.
IDEMPOTENT_REQUESTS = 5
# As Java's: an optional protocol, which is not looked at, and a host with its port.
_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


@dataclass(frozen=True)
class LeftOut:
    """A setting that is not used, or must not be: with its value (secrets hidden) and why."""

    name: str
    value: str
    reason: str


def adjust_producer(java: Mapping[str, str], result: Mapping[str, RdValue], refused: list[LeftOut]) -> None:
    """Checks settings of a producer that depend on each other.

    Args:
        java: all settings, defaults among them.
        result: the converted values.
        refused: gets those that cannot be fulfilled together.
    """
    for address in items(java.get("bootstrap.servers", "")):
        found = _ADDRESS.fullmatch(address)
        if found is None or not found[1]:
            reason = f"{address!r} is no address: it has to be host:port"
            refused.append(LeftOut("bootstrap.servers", java["bootstrap.servers"], reason))
    if result.get("enable.idempotence") is not True:
        return
    limits = {
        "acks": (result.get("acks", "all") != "all", "all"),
        "retries": (result.get("retries", 1) == 0, "more than 0"),
        "max.in.flight.requests.per.connection": (
            int(result.get("max.in.flight.requests.per.connection", 1)) > IDEMPOTENT_REQUESTS,
            f"at most {IDEMPOTENT_REQUESTS}",
        ),
    }
    for name, (at_odds, needed) in limits.items():
        if at_odds:
            reason = f"an idempotent producer (enable.idempotence=true) needs it to be {needed}"
            refused.append(LeftOut(name, java[name], reason))


def adjust_consumer(
    java: Mapping[str, str], defaults: Mapping[str, str], result: dict[str, RdValue], unused: list[LeftOut]
) -> None:
    """Adjusts settings of a consumer that depend on each other.

    Args:
        java: all settings, defaults among them.
        defaults: of Java, for what is told only where it was set.
        result: the converted values; some are changed.
        unused: gets those that mean nothing beside others.
    """
    if result.get("group.protocol") == "consumer":
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if result.pop(name, None) is not None and java[name] != defaults.get(name):
                unused.append(LeftOut(name, java[name], "with group.protocol=consumer the broker decides"))
    elif "session.timeout.ms" in result or "max.poll.interval.ms" in result:
        # librdkafka refuses a session that is longer than the poll interval; Java does not.
        session = int(result.get("session.timeout.ms", 45_000))
        result["session.timeout.ms"] = min(session, int(result.get("max.poll.interval.ms", 300_000)))
    if "fetch.max.bytes" in result:
        # librdkafka refuses a fetch that is smaller than the largest message that a producer may send, and it cannot
        # be told that here is no producer. Either setting is at least 1000 there. A larger message still arrives.
        result["fetch.max.bytes"] = max(1000, int(result["fetch.max.bytes"]))
        result.setdefault("message.max.bytes", min(1_000_000, result["fetch.max.bytes"]))


def fit_together(result: dict[str, RdValue]) -> None:
    """Adjusts what librdkafka refuses together in a client of any kind, and Java does not.

    Args:
        result: the converted values; some are changed.
    """
    first, longest = int(result.get("reconnect.backoff.ms", 100)), int(result.get("reconnect.backoff.max.ms", 10_000))
    if first > longest:
        # As in Java, where all pauses are then as long as the longest.
        result["reconnect.backoff.ms"] = longest
