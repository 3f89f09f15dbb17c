"""Asks the coordinator what a `Transaction` wants to know, over the connections of a producer.

Main type: `Coordinator`; `NEEDS` are the requests that brokers must take for it.

Thread: the one of its connections; the lock that it is given guards the transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from penstock.kafka.connections import Connections
from penstock.kafka.fields import VERSIONS, Api
from penstock.kafka.link import Link
from penstock.kafka.protocol_errors import error_of
from penstock.kafka.transaction import AddPartitions, FindCoordinator, Initialize, Question, Transaction
from penstock.kafka.transaction_wire import (
    INIT_PRODUCER_ID_VERSION,
    add_partitions_request,
    add_partitions_response,
    end_transaction_request,
    end_transaction_response,
    find_coordinator_request,
    find_coordinator_response,
    init_transactions_request,
    init_transactions_response,
)
from penstock.kafka.transport import LinkLostException
from penstock.kafka.wire import Address

NEEDS: Final[Mapping[Api, int]] = MappingProxyType(
    {
        Api.FIND_COORDINATOR: VERSIONS[Api.FIND_COORDINATOR],
        Api.INIT_PRODUCER_ID: INIT_PRODUCER_ID_VERSION,
        Api.ADD_PARTITIONS_TO_TXN: VERSIONS[Api.ADD_PARTITIONS_TO_TXN],
        Api.END_TXN: VERSIONS[Api.END_TXN],
    }
)


class Coordinator:
    """The coordinator of one transactional id.

    Args:
        transaction: what is asked for.
        connections: how.
        transactional_id: of the producer.
        client_id: what brokers' logs call the client.
        timeout_s: after which the coordinator is to abort a transaction.
        state: is held while the transaction changes, and notified afterwards.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        transaction: Transaction,
        connections: Connections,
        transactional_id: str,
        client_id: str,
        timeout_s: float,
        state: threading.Condition,
        clock: Callable[[], float],
    ) -> None:
        self._transaction = transaction
        self._connections = connections
        self._id = transactional_id
        self._client_id = client_id
        self._timeout_ms = round(timeout_s * 1000)
        self._state = state
        self._clock = clock
        self._address: Address | None = None

    def step(self, now: float, known: Mapping[int, Address]) -> None:
        """Sends the question that the transaction has now, if any.

        Args:
            now: monotonic seconds.
            known: the brokers, as far as they are known.
        """
        with self._state:
            if now < self._transaction.retry_at:
                return
            # A question that nobody can be asked now is not taken.
            if self._transaction.has_coordinator and self._address is not None:
                link = self._connections.to(self._address, now)
            else:
                link = self._connections.any(now, known)
            if link is None or not link.usable:
                self._given_up_on(link)
                return
            question = self._transaction.question(now)
        if question is not None:
            self._ask(link, question)

    def _given_up_on(self, link: Link | None) -> None:
        """Has any broker asked for the coordinator again, if the one that was known cannot be reached."""
        if link is None and self._transaction.has_coordinator:
            self._transaction.has_coordinator = False

    def _ask(self, link: Link, question: Question) -> None:
        client_id, own = self._client_id, self._id

        def make(number: int) -> Sequence[bytes]:
            match question:
                case FindCoordinator():
                    return [find_coordinator_request(number, client_id, own)]
                case Initialize(identity):
                    return [init_transactions_request(number, client_id, own, self._timeout_ms, identity)]
                case AddPartitions(identity, places):
                    return [add_partitions_request(number, client_id, own, identity, places)]
                case _:
                    return [end_transaction_request(number, client_id, own, question.identity, question.commit)]

        def answered(payload: memoryview) -> None:
            now = self._clock()
            match question:
                case FindCoordinator():
                    found = find_coordinator_response(payload)
                    self._address = found.address
                    self._tell(found.error_code)
                    self._change(lambda: self._transaction.found(found.error_code, now))
                case Initialize():
                    made = init_transactions_response(payload)
                    self._tell(made.error_code)
                    identity = (made.producer_id, made.producer_epoch)
                    self._change(lambda: self._transaction.initialized(made.error_code, identity, now))
                case AddPartitions():
                    codes = add_partitions_response(payload)
                    self._change(lambda: self._transaction.added(codes, now))
                case _:
                    code = end_transaction_response(payload)
                    self._tell(code)
                    self._change(lambda: self._transaction.ended(code, now))

        self._connections.ask(link, make, answered, self._lost)

    def _lost(self, _: LinkLostException) -> None:
        self._change(lambda: self._transaction.lost(self._clock()))

    def _change(self, change: Callable[[], None]) -> None:
        with self._state:
            change()
            self._state.notify_all()

    def _tell(self, code: int) -> None:
        kind = error_of(code)
        if code and kind.retriable and kind.name != "CONCURRENT_TRANSACTIONS":
            self._connections.warn(
                kind.name, ": the coordinator of its transactions says %s; it is asked again", kind.name
            )
