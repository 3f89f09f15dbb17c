"""When a producer asks for an id, and when it needs another one."""

from __future__ import annotations

import threading

from penstock.errors import TransactionAbortableException
from penstock.kafka.producer.accumulator import (
    ProducerId,
)
from penstock.kafka.producer.transaction import NO_IDENTITY, FindCoordinator, Initialize, Transaction
from penstock.kafka.protocol import error_of

KIND = error_of(-1)


def made(*, idempotent: bool = True, transaction: Transaction | None = None) -> ProducerId:
    return ProducerId(idempotent=idempotent, pause_s=0.5, transaction=transaction, state=threading.Condition())


def initialized(identity: tuple[int, int]) -> Transaction:
    transaction = Transaction("tx")
    transaction.initialize()
    assert transaction.question(0) == FindCoordinator()
    transaction.found(0, 0)
    assert transaction.question(0) == Initialize(NO_IDENTITY)
    transaction.initialized(0, identity, 0)
    return transaction


def test_one_question_is_under_way_and_the_next_follows_after_a_pause() -> None:
    producer_id = made()
    assert (producer_id.current, producer_id.question_at) == (None, 0.0)
    producer_id.asked()
    assert (producer_id.current, producer_id.question_at) == (None, None)
    producer_id.heard()
    producer_id.pause(10.0)
    assert (producer_id.current, producer_id.question_at) == (None, 10.5)
    producer_id.asked()
    producer_id.heard()
    producer_id.take(7, 0)
    assert (producer_id.current, producer_id.question_at) == ((7, 0), None)


def test_an_id_that_is_given_up_stays_until_it_is_dropped_and_is_asked_for_then() -> None:
    producer_id = made()
    producer_id.take(7, 0)
    assert producer_id.give_up(KIND)
    assert (producer_id.given_up, producer_id.current, producer_id.question_at) == (True, (7, 0), None)
    producer_id.drop()
    assert (producer_id.given_up, producer_id.current, producer_id.question_at) == (False, None, 0.0)


def test_a_producer_that_is_not_idempotent_has_no_id_and_none_to_give_up() -> None:
    producer_id = made(idempotent=False)
    assert not producer_id.give_up(KIND)
    assert (producer_id.given_up, producer_id.current, producer_id.question_at) == (False, (-1, -1), None)


def test_with_a_transaction_the_id_is_the_transactions_and_giving_up_fails_it() -> None:
    transaction = initialized((7, 3))
    transaction.begin(0.0)
    producer_id = made(transaction=transaction)
    assert producer_id.follow()
    assert not producer_id.follow()
    assert (producer_id.current, producer_id.question_at) == ((7, 3), None)
    assert not producer_id.give_up(KIND)
    assert not producer_id.given_up
    assert isinstance(transaction.failure, TransactionAbortableException)
