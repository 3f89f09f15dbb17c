"""The producer of transactions where no coordinator answers: nobody waits for ever, and everybody is told why."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest
from testkit.brokers.scripted_broker import ScriptedBroker
from testkit.doubles.source_doubles import produce_batch

from penstock.api import RecordMetadata
from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
)
from penstock.kafka.producer.in_flight import FailedDelivery, ProducerClosedException
from penstock.kafka.producer.transaction import NO_IDENTITY, Initialize, TransactionPhase, fence_producers
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

WAIT_S = 10.0


class Ignored:
    """Receipts that nobody reads."""

    def delivered(
        self, first: int, end: int, failures: Sequence[FailedDelivery], metadata: Mapping[int, RecordMetadata] | None
    ) -> None:
        pass


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker that knows nothing of transactions, and says otherwise; it does not answer what it does not know."""
    with ScriptedBroker({"t": 1}) as made:
        made.versions |= {10: (0, 6), 22: (0, 5), 24: (0, 5), 26: (0, 5)}
        yield made


def settings(address: str, **own: str) -> ColumnSettings:
    worker = {"bootstrap.servers": address, "producer.reconnect.backoff.ms": "10", "producer.retry.backoff.ms": "10"}
    worker |= {f"producer.{name.replace('_', '.')}": text for name, text in own.items()}
    return ColumnSettings.of(producer_settings(worker, {}, client_id="c", transactional_id="tx"))


@pytest.fixture
def made(broker: ScriptedBroker) -> Iterator[TransactionalProducer]:
    one = TransactionalProducer(settings(broker.bootstrap, buffer_memory="20000"), name="c-0")
    yield one
    one.close(0)


def give_identity(made: TransactionalProducer) -> None:
    """As if a coordinator had answered."""
    with made._state:
        made._transaction.initialize()
        made._transaction.has_coordinator = True
        assert made._transaction.question(0) == Initialize(NO_IDENTITY)
        made._transaction.initialized(0, (7, 0), 0)


def test_a_coordinator_that_does_not_answer_is_told_with_what_is_known_of_it() -> None:
    one = TransactionalProducer(settings("127.0.0.1:1"), name="c-0")
    try:
        for _ in range(2):
            with pytest.raises(KafkaRetriableException, match=r"(?s)tx did not answer within 0\.2 s: .*refused"):
                one.init_transactions(0.2)
    finally:
        one.close(0)


def test_a_broker_without_transactions_ends_the_producer_at_once(broker: ScriptedBroker) -> None:
    del broker.versions[24]
    one = TransactionalProducer(settings(broker.bootstrap), name="c-0")
    try:
        with pytest.raises(KafkaException, match=r"does not take ADD_PARTITIONS_TO_TXN requests.*2\.5"):
            one.init_transactions(WAIT_S)
    finally:
        one.close(0)


def test_nothing_is_sent_without_an_identity(made: TransactionalProducer) -> None:
    with pytest.raises(KafkaException, match="is new, and has to be open"):
        made.send(produce_batch(["a"], ["t"]), Ignored())
    with pytest.raises(KafkaException, match="is new, and has to be ready"):
        made.abort_transaction(WAIT_S)


def test_who_waits_for_room_is_told_when_the_producer_is_fenced(made: TransactionalProducer) -> None:
    give_identity(made)
    outcome: list[BaseException] = []

    def send() -> None:
        try:
            for _ in range(20):
                made.send(produce_batch(["x" * 1000] * 5, ["t"] * 5), Ignored())
        except ProducerFencedException as error:
            outcome.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    sending.join(0.3)
    assert sending.is_alive(), "no partition is part of the transaction, so nothing goes out"
    with made._state:
        made._transaction.fatal = True
        made._transaction.failure = ProducerFencedException("fenced")
        made._state.notify_all()
    sending.join(WAIT_S)
    assert len(outcome) == 1
    assert not made.wait_delivered(WAIT_S), "nothing more will be stored, which is told at once"
    for use in (lambda: made.commit(WAIT_S), lambda: made.abort_transaction(WAIT_S)):
        with pytest.raises(ProducerFencedException):
            use()


def test_a_commit_waits_for_the_records_before_it_asks(made: TransactionalProducer) -> None:
    give_identity(made)
    made.send(produce_batch(["a"], ["t"]), Ignored())
    with pytest.raises(KafkaRetriableException, match=r"tx were not stored within 0\.2 s"):
        made.commit(0.2)
    assert made._transaction.phase is TransactionPhase.OPEN
    with made._state:
        made._transaction.added({("t", 0): 0}, 0)
    with pytest.raises(KafkaRetriableException, match=r"has not answered the abort within 0\.2 s"):
        made.abort_transaction(0.2)
    assert made._open == {}, "what is given up is forgotten all the same"


def test_a_commit_that_is_not_answered_is_of_unknown_outcome(made: TransactionalProducer) -> None:
    give_identity(made)
    with made._state:
        made._transaction.begin(0.0)
        made._transaction._added.add(("t", 0))
    for _ in range(2):
        with pytest.raises(CommitOutcomeUnknownException, match="Commit again to ask on"):
            made.commit(0.1)
    with pytest.raises(CommitOutcomeUnknownException, match="Commit it again"):
        made.abort_transaction(0.1)


def test_who_waits_is_told_when_the_producer_is_closed(made: TransactionalProducer) -> None:
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            made.init_transactions(WAIT_S)
        except ProducerClosedException as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    made.abort()
    waiting.join(WAIT_S)
    assert len(outcome) == 1


def test_fencing_tells_each_id_when_the_time_is_over() -> None:
    found = fence_producers(settings("127.0.0.1:1"), [f"tx-{number}" for number in range(10)], 0.3)
    assert len(found) == 10
    assert all(isinstance(one, KafkaRetriableException) for one in found.values())
    assert "refused" in str(found["tx-9"])
    assert fence_producers(settings("127.0.0.1:1"), [], 0.3) == {}
