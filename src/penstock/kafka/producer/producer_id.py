"""The id of a producer, to which sequence numbers belong, and the decision when it needs a new one.

Main type: `ProducerId`. Without transactions the producer requests the id, and a new one when a broker no longer knows
it, or may have stored a batch that counts as lost. With transactions the id belongs to the transaction, which has to be
aborted then.

Thread: the producer's own. No I/O.

Source: TransactionManager of Kafka's producer; KIP-98, KIP-360.
"""

from __future__ import annotations

import threading
from typing import Final

from penstock.kafka.producer.transaction import Transaction
from penstock.kafka.protocol.errors import ErrorKind

#: The id and epoch of a producer that is not idempotent.
_NOBODY: Final = (-1, -1)


class ProducerId:
    """The id and the epoch that record batches are sent with.

    Args:
        idempotent: True if the producer has an id.
        pause_s: The pause before the next request after brokers gave no id, in seconds.
        transaction: The transaction that has the id, if there are transactions.
        state: Held during access to the transaction, and notified after changes.

    Attributes:
        current: Id and epoch; None while there are none.
        given_up: True if a new id is needed once nothing is in flight.
    """

    def __init__(
        self, *, idempotent: bool, pause_s: float, transaction: Transaction | None, state: threading.Condition
    ) -> None:
        self.current: tuple[int, int] | None = None if idempotent else _NOBODY
        self.given_up = False
        self._idempotent = idempotent
        self._pause_s = pause_s
        self._transaction = transaction
        self._state = state
        self._asking = False
        self._ask_at = 0.0

    @property
    def with_transactions(self) -> bool:
        """True if it belongs to a transaction."""
        return self._transaction is not None

    @property
    def question_at(self) -> float | None:
        """The time when a broker may be asked for an id (monotonic seconds), or None if that is not needed."""
        if self.current is not None or self._asking or self._transaction is not None:
            return None
        return self._ask_at

    def asked(self) -> None:
        """Notes a request for an id."""
        self._asking = True

    def heard(self) -> None:
        """Notes that the request was answered, or will never be."""
        self._asking = False

    def take(self, producer_id: int, epoch: int) -> None:
        """Takes the id that a broker gave."""
        self.current = (producer_id, epoch)

    def pause(self, now: float) -> None:
        """Pauses requests: a broker gave no id, or no longer knows that of the producer."""
        self._ask_at = now + self._pause_s

    def follow(self) -> bool:
        """Takes the current id of the transaction.

        Returns:
            True if it is a new id, so that numbers begin anew.
        """
        if self._transaction is None:
            return False
        with self._state:
            identity = self._transaction.identity
        if identity == self.current:
            return False
        self.current = identity
        return True

    def give_up(self, kind: ErrorKind) -> bool:
        """Abandons the sequence numbers: a batch may be in Kafka although it counts as lost, or the reverse.

        Returns:
            True if the producer continues with another id. A transaction fails then; without any id nothing happens.
        """
        if self._transaction is not None:
            with self._state:
                self._transaction.fail(kind, new_epoch=True)
                self._state.notify_all()
            return False
        self.given_up = self._idempotent
        return self._idempotent

    def drop(self) -> None:
        """Drops the abandoned id when nothing is in flight, so that a new one is requested."""
        self.given_up = False
        self.current = None
