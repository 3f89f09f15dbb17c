"""Fences the producers of transactional ids: aborts their open transactions and stops them from sending.

Main functions: `fence_producers`; `fence_zombies` fences the producers of a connector's former tasks on the cluster of
these tasks, with the connector's client settings.

Thread: the caller's, which blocks.

Source: Admin.fenceProducers of Kafka (KIP-618), which is InitProducerId with each id; Worker.fenceZombies of Kafka
Connect.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.producer.transaction import Transaction, TransactionPhase
from penstock.kafka.producer.transaction_coordinator import NEEDS, Coordinator
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

#: The number of ids that are fenced at a time.
AT_A_TIME: Final = 8

Fenced = tuple[int, int] | KafkaException


def fence_producers(
    settings: ColumnSettings,
    transactional_ids: Iterable[str],
    timeout_s: float,
    *,
    name: str = "fencing",
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Fenced]:
    """Fences the producers that use these transactional ids.

    Args:
        settings: The settings of a producer: brokers, connections and login.
        transactional_ids: The ids; at most eight are fenced at a time.
        timeout_s: The timeout for all of them.
        name: A name for messages.
        clock: Monotonic seconds.

    Returns:
        For each id a new, unused producer id and epoch; or the reason why it could not be fenced:
        `TransactionalIdAuthorizationException` if the user has no right to it, `KafkaRetriableException` if the timeout
        expired.

    Raises:
        ConfigException: a key, a certificate or a package cannot be used.
    """
    waiting = deque(dict.fromkeys(transactional_ids))
    found: dict[str, Fenced] = {}
    if not waiting:
        return found
    deadline = clock() + timeout_s
    state = threading.Condition()
    connections = ProducerConnections(settings, name, NEEDS, clock, _nothing)
    asked: dict[str, tuple[Transaction, Coordinator]] = {}
    try:
        while (waiting or asked) and clock() < deadline and connections.fatal is None:
            while waiting and len(asked) < AT_A_TIME:
                one = waiting.popleft()
                transaction = Transaction(one, settings.retry_backoff, settings.retry_backoff_max)
                transaction.initialize()
                timeout = settings.transaction_timeout
                asked[one] = (
                    transaction,
                    Coordinator(transaction, connections, one, settings.client_id, timeout, state, clock),
                )
            now = clock()
            connections.tend(now)
            for _, coordinator in asked.values():
                coordinator.step(now, {})
            times = connections.times(now, waiting=True)
            times += [at for transaction, _ in asked.values() if (at := transaction.retry_at) > now]
            connections.wait(min([deadline, *times]) - now)
            _collect(asked, found)
        for one in (*asked, *waiting):
            found[one] = connections.fatal or KafkaRetriableException(
                f"The producer of the transactional id {one} was not fenced within {timeout_s:g} s: "
                f"{connections.trouble or 'its coordinator has not answered'}"
            )
    finally:
        connections.close()
    return found


def _collect(asked: dict[str, tuple[Transaction, Coordinator]], found: dict[str, Fenced]) -> None:
    """Moves the ids that are fenced, or failed permanently, from ``asked`` to ``found``."""
    for one, (transaction, _) in list(asked.items()):
        if transaction.phase is TransactionPhase.READY and transaction.identity is not None:
            found[one] = transaction.identity
        elif transaction.failure is not None:
            found[one] = transaction.failure
        else:
            continue
        del asked[one]


def _nothing() -> None:
    pass


def failed(fenced: Mapping[str, Fenced]) -> dict[str, KafkaException]:
    """The error of each id that could not be fenced."""
    return {one: result for one, result in fenced.items() if isinstance(result, KafkaException)}


#: The default timeout of Kafka's admin client for one call.
_TIMEOUT_S: Final = 60.0


def fence_zombies(
    worker: Mapping[str, str], connector: str, config: Mapping[str, str], ids: Sequence[str]
) -> dict[str, KafkaException]:
    """Fences the producers of a connector with these transactional ids.

    Args:
        worker: The worker's settings.
        connector: The name of the connector.
        config: Its settings, placeholders resolved.
        ids: The transactional ids.

    Returns:
        The error of each id that could not be fenced.

    Raises:
        ConfigException: the settings of the connector's producers cannot be used.
    """
    # The connector's producers may use another cluster than the worker's; their ids belong to that cluster.
    client = producer_settings(worker, config, client_id=f"connector-fencing-{connector}")
    return failed(fence_producers(ColumnSettings.of(client), ids, _TIMEOUT_S, name=f"{connector} (fencing)"))
