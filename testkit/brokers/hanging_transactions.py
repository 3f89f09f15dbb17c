"""Hanging transactions, left behind on purpose: open in partitions, and not under way for their coordinator.

Main function: ``leave_hanging``. Main value: ``PERMITS``, the server property with which a broker takes such records.

Thread: the test's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from testkit.processes.transaction_worker import producer

#: Without this a broker asks the coordinator before it takes the first record of a transaction (KIP-890).
PERMITS: Final = {"transaction.partition.verification.enable": "false"}
_WAIT_S: Final = 30.0


def leave_hanging(
    bootstrap: str,
    transactional_id: str,
    records: Mapping[str, Sequence[tuple[bytes, bytes | None]]],
    *,
    timeout_ms: int = 1000,
) -> int:
    """Writes records of a transaction of which the coordinator knows nothing.

    Args:
        bootstrap: The broker, which runs with ``PERMITS``.
        transactional_id: Of the producer.
        records: Keys and values by topic.
        timeout_ms: After which the coordinator would end a transaction of that id.

    Returns:
        The producer id.
    """
    made = producer(bootstrap, transactional_id, transaction_timeout_ms=str(timeout_ms))
    try:
        transaction = made._transaction
        # What a coordinator that had forgotten them, or had ended them without their markers, would leave.
        transaction.may_send = lambda place: True  # type: ignore[method-assign]
        for topic, entries in records.items():
            made.send_offsets_entries(topic, entries)
        assert made.wait_delivered(_WAIT_S)
        assert transaction.identity is not None
        return transaction.identity[0]
    finally:
        made.close(0)
