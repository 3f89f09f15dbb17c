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

#: Of a producer that is not idempotent: no id, no epoch.
_NOBODY: Final = (-1, -1)


class ProducerId:
    """The id and the epoch that record batches are sent with.

    Args:
        idempotent: Whether there is any.
        pause_s: How long brokers that gave none are left alone, in seconds.
        transaction: Whose id it is, with transactions.
        state: Is held while the transaction is looked at or changes, and notified afterwards.

    Attributes:
        current: Id and epoch; None while there are none.
        given_up: Whether another one is to follow once nothing is under way.
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
        """The time when brokers may be asked for an id (monotonic seconds), or None as long as they need not be."""
        if self.current is not None or self._asking or self._transaction is not None:
            return None
        return self._ask_at

    def asked(self) -> None:
        """A broker was asked for an id."""
        self._asking = True

    def heard(self) -> None:
        """The broker that was asked has answered, or never will."""
        self._asking = False

    def take(self, producer_id: int, epoch: int) -> None:
        """A broker gave an id."""
        self.current = (producer_id, epoch)

    def pause(self, now: float) -> None:
        """No broker is asked for a while: one gave no id, or does not know that of the producer any more."""
        self._ask_at = now + self._pause_s

    def follow(self) -> bool:
        """Takes the id that the transaction has now.

        Returns:
            Whether it is another one, so that numbers begin anew.
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
        """Gives up the sequence numbers: a batch may be in Kafka though it counts as lost, or the other way round.

        Returns:
            Whether the producer goes on with another id. With a transaction that fails; without any id nothing happens.
        """
        if self._transaction is not None:
            with self._state:
                self._transaction.fail(kind, new_epoch=True)
                self._state.notify_all()
            return False
        self.given_up = self._idempotent
        return self._idempotent

    def drop(self) -> None:
        """Nothing is under way with the id that was given up: another one is asked for."""
        self.given_up = False
        self.current = None
