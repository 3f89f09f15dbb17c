"""How a source task that delivers exactly once takes its transactional id, without taking it from its rightful owner.

Main types: `TransactionBeginning`, a `TransactionStart`; `Ownership`, what the herder says of it. Before a task is
started the herder has ended the producers of former tasks. Here, in this order: an instance that takes the place of one
that ended by itself waits until the worker has heard that the task is still its own; nothing is taken where the task is
to stop; the id is taken, which ends older instances of the same task; the herder is asked whether all is as it was.
Invariant 7.

Thread: the task's.
Source: ExactlyOnceWorkerSourceTask (initializeAndStart, preProducerCheck, postProducerCheck) of Kafka Connect; KIP-618;
runtime.md section 6.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.errors import KafkaRetriableException
from penstock.telemetry import waiting_for
from penstock.worker.transaction_parts import TransactionProducer

logger = logging.getLogger(__name__)

#: How often a wait looks whether the task is to stop.
_SLICE_S: Final = 0.5


@dataclass(frozen=True)
class Ownership:
    """What the herder knows of a task's owner. Both calls may block for some seconds.

    Attributes:
        confirm: Raises ConnectException where the task is made of something else by now, or is not this worker's.
        confirm_owner: Whether the group has said since a moment (monotonic seconds) that it is this worker's.
        again: Whether the task has ended by itself before, so that it may be another worker's by now.
    """

    confirm: Callable[[], None] = lambda: None
    confirm_owner: Callable[[float], bool] = lambda since_s: True
    again: bool = False


class TransactionBeginning:
    """Takes the transactional id of one task.

    Args:
        owner: The task, for messages.
        producer: Its producer, which has no id yet.
        ownership: Who it belongs to.
    """

    def __init__(self, owner: str, producer: TransactionProducer, ownership: Ownership) -> None:
        self._owner = owner
        self._producer = producer
        self._ownership = ownership

    def __call__(self, stopping: threading.Event) -> bool:
        """See `TransactionStart`.

        Raises:
            ConnectException: The task is not to run here any more.
            KafkaException: It may not use its id, or Kafka must not be used at all.
        """
        if self._ownership.again:
            self._await_owner(stopping)
        while not stopping.is_set():
            try:
                with waiting_for("broker"):
                    self._producer.init_transactions(_SLICE_S)
            except KafkaRetriableException as error:
                logger.debug("Task %s waits for its transactional id: %s", self._owner, error)
            else:
                self._ownership.confirm()
                return True
        return False

    @waiting_for("ownership")
    def _await_owner(self, stopping: threading.Event) -> None:
        """Wait for word that the task is this worker's: taking its id would end a successor on another worker.

        Where it is another worker's, the herder will hear of that, and stop it.
        """
        since_s = time.monotonic()
        while not stopping.is_set() and not self._ownership.confirm_owner(since_s):
            stopping.wait(_SLICE_S)
