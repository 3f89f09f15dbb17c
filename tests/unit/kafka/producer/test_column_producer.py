"""The producer of columns against a broker that does what a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from testkit.brokers.scripted_broker import (
    GARBLED,
    LOSE_ANSWER,
    LOSE_REQUEST,
    SILENT,
    Delay,
    ProduceSeen,
    Refuse,
    ScriptedBroker,
    ScriptedCluster,
    Verdict,
)
from testkit.doubles.contexts import Deliveries
from testkit.doubles.source_doubles import produce_batch
from testkit.waiting import await_true

from penstock.api import RecordMetadata
from penstock.errors import KafkaRetriableException
from penstock.kafka.producer import column_producer as producer_module
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import ProducerClosedException
from penstock.kafka.protocol import Api
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.pipeline.batch.batches import ProduceBatch

WAIT_S = 10.0
QUICK = {"retry.backoff.ms": "10", "retry.backoff.max.ms": "50", "reconnect.backoff.ms": "10"}
MESSAGE_TOO_LARGE, INVALID_RECORD, UNKNOWN_PRODUCER_ID, TOPIC_NOT_ALLOWED, NOT_ENOUGH_REPLICAS = 10, 87, 59, 29, 19
UNKNOWN_SERVER_ERROR, REPLICAS_TOO_SLOW = -1, Refuse(7, stored=True)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"t": 1, "u": 3}) as made:
        yield made


@contextmanager
def producer(
    broker: str | ScriptedBroker | ScriptedCluster,
    *,
    each_row: bool = False,
    batch_ends: bool = False,
    stops_at_failure: bool = False,
    propagation_s: float = 30.0,
    **own: str,
) -> Iterator[ColumnProducer]:
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    worker = {"bootstrap.servers": bootstrap} | {f"producer.{name}": value for name, value in QUICK.items()}
    worker |= {f"producer.{name.replace('_', '.')}": value for name, value in own.items()}
    settings = ColumnSettings.of(producer_settings(worker, {}, client_id="c-0"))
    made = ColumnProducer(
        replace(settings, propagation=propagation_s),
        name="c-0",
        each_row=each_row,
        batch_ends=batch_ends,
        stops_at_failure=stops_at_failure,
    )
    try:
        yield made
    finally:
        made.close(0)


def batch(
    values: Sequence[str], keys: Sequence[bytes | None] | None = None, topics: Sequence[str] | None = None
) -> ProduceBatch:
    made = produce_batch(values, topics or ["t"] * len(values))
    return made if keys is None else with_column(made, "key", keys)


def with_column(made: ProduceBatch, name: str, values: Sequence[object]) -> ProduceBatch:
    at = made.table.column_names.index(name)
    table = made.table.set_column(at, name, pa.array(values, made.table.schema.field(name).type))
    return replace(
        made,
        table=table,
        has_keys=made.has_keys or name == "key",
        has_headers=made.has_headers or name == "headers",
        has_partition=made.has_partition or name == "partition",
    )


def numbered(count: int) -> list[str]:
    return [f"value {row}" for row in range(count)]


def encoded(values: Sequence[str]) -> list[bytes | None]:
    return [value.encode() for value in values]


# ------------------------------------------------------------------------------------------------- what is stored
def test_all_rows_arrive_in_order_and_are_reported_once(broker: ScriptedBroker) -> None:
    answers, values = Deliveries(), numbered(2 * producer_module.CHUNK_ROWS + 500)
    with producer(broker, batch_size="20000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == encoded(values)
    assert sorted(answers.rows) == list(range(len(values)))
    assert answers.failures == []
    assert answers.places == {}


def test_a_producer_that_has_nothing_to_do_rests(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with producer(broker.bootstrap) as made:
        connections = made._sender._connections
        select = connections._selector.select

        def noted(timeout: float) -> object:
            waits.append(timeout)
            return select(timeout)

        made.send(produce_batch(["a"], ["t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        monkeypatch.setattr(connections._selector, "select", noted)
        connections.wake()
        await_true(lambda: bool(waits))
        # At most until what is known of the cluster is too old.
        assert min(waits) > 30


def test_places_tell_where_each_row_is(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    given = with_column(batch(numbered(3)), "timestamp", [5, 6, 7])
    with producer(broker, each_row=True) as made:
        made.send(given, answers)
        made.send(given, Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert answers.places == {row: RecordMetadata("t", 0, row, 5 + row) for row in range(3)}


def test_places_tell_where_the_first_and_last_row_of_each_record_batch_are(broker: ScriptedBroker) -> None:
    given = with_column(batch(numbered(6), topics=["u"] * 6), "partition", [0, 0, 0, 0, 1, 1])
    given = with_column(given, "timestamp", [5, 6, 7, 8, 9, 10])
    answers = Deliveries()
    with producer(broker, batch_ends=True) as made:
        made.send(given, answers)
        assert made.wait_delivered(WAIT_S)
    assert answers.places == {
        0: RecordMetadata("u", 0, 0, 5),
        3: RecordMetadata("u", 0, 3, 8),
        4: RecordMetadata("u", 1, 0, 9),
        5: RecordMetadata("u", 1, 1, 10),
    }


def test_only_the_chosen_rows_are_sent(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    with producer(broker, each_row=True) as made:
        made.send(batch(["a", "b", "c", "d"]), answers, rows=pa.array([1, 3]))
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"b", b"d"]
    assert sorted(answers.places) == [1, 3]
    assert answers.rows == [1, 2, 3]


def test_rows_go_to_their_topics_partitions_and_keys(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    given = batch(["a", "b", "c", "d", "e"], [None, b"abc", b"foobar", b"abc", None], ["t", "u", "u", "u", "u"])
    given = with_column(given, "partition", [None, None, None, None, 1])
    with producer(broker, each_row=True) as made:
        made.send(given, answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a"]
    # murmur2 of "abc" is 479470107, that of "foobar" is -790332482.
    of_abc, of_foobar = 479470107 % 3, (-790332482 & 0x7FFFFFFF) % 3
    places = {row: (place.topic, place.partition) for row, place in answers.places.items()}
    assert places == {0: ("t", 0), 1: ("u", of_abc), 2: ("u", of_foobar), 3: ("u", of_abc), 4: ("u", 1)}
    stored = [value for partition in range(3) for value in broker.values("u", partition)]
    assert sorted(filter(None, stored)) == [b"b", b"c", b"d", b"e"]


def test_headers_and_nulls_arrive(broker: ScriptedBroker) -> None:
    given = batch(["a", "b"], [b"k", None])
    given = with_column(given, "headers", [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None])
    given = with_column(given, "value", [None, b""])
    with producer(broker) as made:
        made.send(given, Deliveries())
        assert made.wait_delivered(WAIT_S)
    first, second = broker.records("t", 0)
    assert (first.key, first.value, first.headers) == (b"k", None, (("h", b"1"), ("h", None)))
    assert (second.key, second.value, second.headers) == (None, b"", ())


def test_rows_without_keys_are_spread_over_the_partitions(broker: ScriptedBroker) -> None:
    with producer(broker, batch_size="100") as made:
        for _ in range(3):
            made.send(batch(numbered(300), topics=["u"] * 300), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert all(len(broker.values("u", partition)) > 100 for partition in range(3))


# ------------------------------------------------------------------------------------------- what goes wrong for now
@pytest.mark.parametrize(
    "mishap", [LOSE_REQUEST, LOSE_ANSWER, GARBLED, Refuse(NOT_ENOUGH_REPLICAS), REPLICAS_TOO_SLOW], ids=str
)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_what_is_lost_on_the_way_arrives_once_and_in_order(
    broker: ScriptedBroker, mishap: Verdict, number: int
) -> None:
    values, answers = numbered(2000), Deliveries()
    broker.answer_next(Api.PRODUCE, *[None] * number, mishap)
    with producer(broker, batch_size="4000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == encoded(values)
    assert sorted(answers.rows) == list(range(len(values)))
    assert answers.failures == []


def test_a_broker_that_goes_away_and_comes_back_gets_everything(broker: ScriptedBroker) -> None:
    values, answers = numbered(3000), Deliveries()
    with producer(broker, batch_size="4000") as made:
        made.send(batch(values[:1000]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        broker.stop()
        made.send(batch(values[1000:]), answers)
        assert not made.wait_delivered(0.1)
        broker.start()
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == encoded(values)
    assert answers.failures == []


def test_a_broker_that_falls_silent_is_left_and_asked_again(broker: ScriptedBroker) -> None:
    values = numbered(1000)
    broker.answer_next(Api.PRODUCE, None, SILENT)
    with producer(broker, batch_size="4000", request_timeout_ms="200") as made:
        made.send(batch(values), Deliveries())
        assert made.wait_delivered(WAIT_S)
        broker.release()
    assert broker.values("t", 0) == encoded(values)


def test_a_partition_follows_its_leader() -> None:
    with ScriptedCluster(2, {"t": 1}) as cluster:
        values = numbered(1000)
        first, second = cluster.brokers
        cluster.lead("t", 0, first)
        with producer(cluster, batch_size="4000") as made:
            made.send(batch(values[:500]), Deliveries())
            assert made.wait_delivered(WAIT_S)
            cluster.lead("t", 0, second)
            made.send(batch(values[500:]), Deliveries())
            assert made.wait_delivered(WAIT_S)
        assert cluster.values("t", 0) == encoded(values)
        assert second.produced


def test_a_producer_id_that_the_broker_has_forgotten_is_replaced(broker: ScriptedBroker) -> None:
    values, answers = numbered(1000), Deliveries()
    broker.answer_next(Api.PRODUCE, None, Refuse(UNKNOWN_PRODUCER_ID))
    with producer(broker, batch_size="4000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
    assert list(dict.fromkeys(broker.values("t", 0))) == encoded(values)
    assert answers.failures == []
    assert len({seen.batches[0].producer_id for seen in broker.produced}) == 2


def test_a_broker_that_does_not_take_any_producer_id_is_not_asked_without_a_pause(broker: ScriptedBroker) -> None:
    broker.on_produce = lambda seen: Refuse(UNKNOWN_PRODUCER_ID)
    with producer(
        broker, delivery_timeout_ms="300", request_timeout_ms="200", linger_ms="0", retry_backoff_ms="50"
    ) as made:
        made.send(batch(["a"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert len(broker.produced) < 30


def test_no_batch_is_taken_for_another_when_one_is_refused_behind_those_that_are_put_off(
    broker: ScriptedBroker,
) -> None:
    values, answers = [f"value {row:04}" for row in range(1000)], Deliveries()
    broker.answer_next(
        Api.PRODUCE, None, REPLICAS_TOO_SLOW, None, Refuse(NOT_ENOUGH_REPLICAS), Refuse(MESSAGE_TOO_LARGE)
    )
    with producer(broker, batch_size="2000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == encoded(values)
    assert answers.failures == []


@pytest.mark.parametrize(
    "mishaps",
    [[Refuse(UNKNOWN_SERVER_ERROR, stored=True)], [LOSE_ANSWER, Refuse(TOPIC_NOT_ALLOWED)]],
    ids=["an error after it was stored", "refused when it came again"],
)
def test_what_follows_a_batch_that_was_stored_and_then_refused_is_not_taken_for_it(
    broker: ScriptedBroker, mishaps: list[Verdict]
) -> None:
    answers, later = Deliveries(), Deliveries()
    broker.answer_next(Api.PRODUCE, None, *mishaps)
    with producer(broker) as made:
        for value, told in (("a", Deliveries()), ("b", answers), ("c", later)):
            made.send(batch([value]), told)
            assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a", b"b", b"c"]
    assert [failed.row for failed in answers.failures] == [0]
    assert later.failures == []


# ------------------------------------------------------------------------------------------------ what is lost for good
def test_a_row_that_makes_a_batch_too_large_for_the_topic_is_lost_alone(broker: ScriptedBroker) -> None:
    values, answers = numbered(300), Deliveries()
    values[123] = "x" * 2000

    def small_only(seen: ProduceSeen) -> Verdict | None:
        return Refuse(MESSAGE_TOO_LARGE) if len(seen.batches[0].raw) > 1500 else None

    broker.on_produce = small_only
    with producer(broker, batch_size="9000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == encoded([*values[:123], *values[124:]])
    assert [failed.row for failed in answers.failures] == [123]
    assert answers.failures[0].java_name == "org.apache.kafka.common.errors.RecordTooLargeException"
    text = "is 2000 bytes when serialized which is larger than the broker's or topic's max.message.bytes"
    assert text in str(answers.failures[0].error)
    assert sorted(answers.rows) == list(range(300))


def test_rows_that_the_broker_names_are_lost_and_the_others_stored(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    text = "Compacted topic cannot accept message without key"
    broker.answer_next(Api.PRODUCE, Refuse(INVALID_RECORD, [(1, text), (3, text)]))
    with producer(broker, each_row=True) as made:
        made.send(batch(["a", "b", "c", "d"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a", b"c"]
    assert [(failed.row, str(failed.error)) for failed in answers.failures] == [(1, text), (3, text)]
    assert sorted(answers.places) == [0, 2]


def test_what_may_not_be_written_is_lost(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    broker.answer_next(Api.PRODUCE, Refuse(TOPIC_NOT_ALLOWED))
    with producer(broker) as made:
        made.send(batch(["a", "b"]), answers)
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["c"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert [failed.row for failed in answers.failures] == [0, 1]
    assert answers.failures[0].java_name == "org.apache.kafka.common.errors.TopicAuthorizationException"
    assert broker.values("t", 0) == [b"c"]


def test_a_topic_that_does_not_exist_is_told_after_the_time_it_may_need_to_become_known(
    broker: ScriptedBroker,
) -> None:
    answers = Deliveries()
    with producer(broker, propagation_s=0.2) as made:
        made.send(batch(["a", "b"], topics=["none", "t"]), answers)
        assert made.wait_delivered(WAIT_S)
        broker.topics["none"] = 1
        made.send(batch(["c"], topics=["none"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert [(failed.row, failed.unknown_topic) for failed in answers.failures] == [(0, True)]
    assert broker.values("t", 0) == [b"b"]
    assert broker.values("none", 0) == [b"c"]


def test_a_topic_that_is_made_late_is_waited_for(broker: ScriptedBroker) -> None:
    with producer(broker) as made:
        sending = threading.Thread(target=made.send, args=(batch(["a"], topics=["late"]), Deliveries()))
        sending.start()
        broker.wait_until(lambda: sum(seen.api == Api.METADATA for seen in broker.requests) > 2)
        broker.topics["late"] = 1
        sending.join(WAIT_S)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("late", 0) == [b"a"]


def test_rows_larger_than_a_request_or_for_no_partition_are_named_and_the_others_go(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    given = with_column(batch(["a", "x" * 3000, "b", "c"]), "partition", [0, 0, 7, None])
    with producer(broker, max_request_size="2000") as made:
        made.send(given, answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a", b"c"]
    assert [failed.row for failed in answers.failures] == [1, 2]
    assert "is 3000 bytes when serialized which is larger than the producer's max.request.size" in str(
        answers.failures[0].error
    )
    assert "partition 7 does not exist, topic t has 1" in str(answers.failures[1].error)


def test_a_row_larger_than_a_request_is_found_among_many_small_ones(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    values = ["a"] * producer_module.CHUNK_ROWS + ["x" * 150_000]
    with producer(broker, max_request_size="100000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
    assert [failed.row for failed in answers.failures] == [len(values) - 1]
    assert len(broker.values("t", 0)) == len(values) - 1


def test_a_topic_whose_name_is_too_long_is_not_asked_for(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    with producer(broker) as made:
        made.send(batch(["a", "b"], topics=["x" * 40_000, "t"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert [failed.row for failed in answers.failures] == [0]
    assert answers.failures[0].java_name == "org.apache.kafka.common.errors.InvalidTopicException"
    assert broker.values("t", 0) == [b"b"]


def test_nobody_to_send_to_is_told_when_the_delivery_timeout_is_over() -> None:
    answers = Deliveries()
    with producer("127.0.0.1:1", delivery_timeout_ms="300", linger_ms="0", request_timeout_ms="200") as made:
        made.send(batch(["a", "b"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert [failed.row for failed in answers.failures] == [0, 1]
    assert {failed.java_name for failed in answers.failures} == {"org.apache.kafka.common.errors.TimeoutException"}


def test_what_is_not_answered_within_the_delivery_timeout_is_lost(broker: ScriptedBroker) -> None:
    answers, later = Deliveries(), Deliveries()
    broker.answer_next(Api.PRODUCE, None, *[Refuse(NOT_ENOUGH_REPLICAS)] * 1000)
    with producer(broker, delivery_timeout_ms="300", linger_ms="0", request_timeout_ms="200") as made:
        made.send(batch(["stored"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["a"]), answers)
        assert made.wait_delivered(WAIT_S)
        broker._script.clear()
        made.send(batch(["b"]), later)
        assert made.wait_delivered(WAIT_S)
    assert [failed.java_name for failed in answers.failures] == ["org.apache.kafka.common.errors.TimeoutException"]
    assert later.failures == []
    assert broker.values("t", 0) == [b"stored", b"b"]


def test_a_row_larger_than_all_that_may_be_under_way_is_named_and_the_others_go(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    with producer(broker, buffer_memory="65536", max_request_size="1000000") as made:
        made.send(batch(["a", "x" * 70_000, "b"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a", b"b"]
    text = "The message is 70000 bytes when serialized which is larger than buffer.memory (65536)"
    assert [failed.row for failed in answers.failures] == [1]
    assert text in str(answers.failures[0].error)


# ------------------------------------------------------------------------------------------- without idempotence
def test_without_acknowledgements_no_row_has_an_offset_and_all_arrive(broker: ScriptedBroker) -> None:
    answers, values = Deliveries(), numbered(3000)
    unheard: list[int] = []

    def heard(seen: ProduceSeen) -> Verdict | None:
        unheard.append(seen.acks)
        return None

    broker.on_produce = heard
    with producer(broker, each_row=True, acks="0", batch_size="4000") as made:
        made.send(batch(values), answers)
        assert made.wait_delivered(WAIT_S)
        broker.wait_until(lambda: sum(batch.count for seen in broker.produced for batch in seen.batches) == 3000)
    assert {answers.places[row].offset for row in range(3000)} == {-1}
    assert answers.failures == []
    assert set(unheard) == {0}
    assert broker.values("t", 0) == encoded(values)


def test_without_idempotence_batches_have_no_numbers_and_one_request_keeps_the_order(broker: ScriptedBroker) -> None:
    values = numbered(1000)
    broker.answer_next(Api.PRODUCE, None, Refuse(NOT_ENOUGH_REPLICAS), LOSE_REQUEST)
    with producer(broker, acks="1", batch_size="4000") as made:
        made.send(batch(values), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == encoded(values)
    assert {seen.acks for seen in broker.produced} == {1}
    numbers = {
        (one.producer_id, one.producer_epoch, one.base_sequence) for seen in broker.produced for one in seen.batches
    }
    assert numbers == {(-1, -1, -1)}
    assert Api.INIT_PRODUCER_ID not in {seen.api for seen in broker.requests}


def test_what_was_sent_as_often_as_it_may_be_is_lost_with_the_brokers_reason(broker: ScriptedBroker) -> None:
    answers, later = Deliveries(), Deliveries()
    broker.answer_next(Api.PRODUCE, None, *[Refuse(NOT_ENOUGH_REPLICAS)] * 3)
    with producer(broker, enable_idempotence="false", retries="2") as made:
        made.send(batch(["stored"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["a"]), answers)
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["b"]), later)
        assert made.wait_delivered(WAIT_S)
    assert len(broker.produced) == 5
    assert [failed.java_name for failed in answers.failures] == [
        "org.apache.kafka.common.errors.NotEnoughReplicasException"
    ]
    assert later.failures == []
    assert broker.values("t", 0) == [b"stored", b"b"]


def test_rows_go_round_all_partitions_where_that_is_asked_for(broker: ScriptedBroker) -> None:
    with producer(broker, partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner") as made:
        made.send(batch(numbered(9), [b"k"] * 9, ["u"] * 9), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert [len(broker.values("u", partition)) for partition in range(3)] == [3, 3, 3]


# ----------------------------------------------------------------------------------------- where nothing is tolerated
def test_without_tolerance_nothing_behind_a_row_that_is_refused_here_is_sent(broker: ScriptedBroker) -> None:
    answers, later = Deliveries(), Deliveries()
    with producer(broker, stops_at_failure=True, max_request_size="2000") as made:
        made.send(batch(["a", "x" * 3000, "b", "y" * 3000]), answers)
        made.send(batch(["c"]), later)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a"]
    assert [failed.row for failed in answers.failures] == [1]
    assert answers.rows == [0, 1], "what was not sent is not answered, so no offset passes it"
    assert later.rows == []


def test_without_tolerance_no_chunk_follows_one_with_a_row_that_kafka_did_not_take(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "CHUNK_ROWS", 10)
    answers = Deliveries()
    broker.on_produce = lambda seen: Refuse(TOPIC_NOT_ALLOWED)
    with producer(broker, stops_at_failure=True) as made:
        made.send(batch(["a"]), answers)
        assert made.wait_delivered(WAIT_S)
        made.send(batch(numbered(100)), answers)
        assert made.wait_delivered(WAIT_S)
    assert answers.rows == [0]
    assert len(broker.produced) == 1


# --------------------------------------------------------------------------------------------------------- life
def test_a_silent_broker_makes_send_wait_with_little_memory_until_it_is_aborted() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        outcome: list[BaseException] = []
        with producer(f"127.0.0.1:{server.getsockname()[1]}") as made:

            def send() -> None:
                try:
                    made.send(batch(["x"]), Deliveries())
                except ProducerClosedException as error:
                    outcome.append(error)

            thread = threading.Thread(target=send)
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
            made.abort()
            thread.join(WAIT_S)
            assert made.wait_delivered(0) is False
    assert len(outcome) == 1


def test_nothing_is_under_way_of_rows_that_cannot_be_encoded(broker: ScriptedBroker) -> None:
    answers = Deliveries()
    with producer(broker) as made:
        with pytest.raises(ValueError, match="a header without a key"):
            made.send(with_column(batch(["a"]), "headers", [[{"key": None, "value": b"1"}]]), answers)
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["b"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"b"]
    assert made._bytes == 0


def test_a_broker_whose_name_is_none_is_passed_over(broker: ScriptedBroker) -> None:
    with producer(f"a..b:9092,{broker.bootstrap}") as made:
        made.send(batch(["a"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a"]


def test_an_address_that_does_not_answer_is_followed_by_the_next_of_its_name(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as ends:
        for _ in range(4):
            waiting = ends.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", p)) for p in (full.getsockname()[1], broker.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with producer(broker, socket_connection_setup_timeout_ms="200", request_timeout_ms="150") as made:
            made.send(batch(["a"]), Deliveries())
            assert made.wait_delivered(WAIT_S)
    assert broker.values("t", 0) == [b"a"]


def test_what_is_under_way_is_bounded(broker: ScriptedBroker) -> None:
    held = threading.Event()
    broker.on_produce = lambda seen: Delay(held)
    with producer(broker, buffer_memory="100000") as made:

        def send() -> None:
            for _ in range(10):
                made.send(batch(["x" * 100] * 300), Deliveries())

        sending = threading.Thread(target=send)
        sending.start()
        sending.join(0.3)
        assert sending.is_alive()
        assert 0 < made._bytes <= 102_400
        held.set()
        sending.join(WAIT_S)
        assert made.wait_delivered(WAIT_S)
    assert len(broker.values("t", 0)) == 3000


def test_an_idle_producer_ends_at_once_and_leaves_nothing(broker: ScriptedBroker) -> None:
    with producer(broker) as made:
        made.send(batch(["a"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        started = time.monotonic()
        assert made.close(30) is True
        assert time.monotonic() - started < 1
    assert not any(thread.name == "producer-c-0" for thread in threading.enumerate())


def test_a_receipt_that_raises_does_not_stop_the_producer(broker: ScriptedBroker) -> None:
    class Broken:
        def delivered(self, *args: object) -> None:
            raise ValueError("no")

    answers = Deliveries()
    with producer(broker) as made:
        made.send(batch(["a"]), Broken())
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["b"]), answers)
        assert made.wait_delivered(WAIT_S)
    assert answers.rows == [0]


def test_a_broker_that_is_too_old_is_named_with_what_to_do(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.versions[Api.PRODUCE] = (0, 7)
    with producer(broker, delivery_timeout_ms="300", linger_ms="0", request_timeout_ms="200") as made:
        made.send(batch(["a"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert "does not take PRODUCE requests of version 8; brokers since Kafka 2.4 do" in caplog.text


def test_sending_ends_in_time_where_nobody_may_wait_longer_and_nothing_is_left_under_way(
    broker: ScriptedBroker,
) -> None:
    answers = Deliveries()
    with (
        producer("127.0.0.1:1") as made,
        pytest.raises(KafkaRetriableException, match=r"partitions of topic t are not known yet .*cannot be reached"),
    ):
        made.send(batch(numbered(1)), answers, within_s=0.3)
    broker.answer_next(Api.PRODUCE, SILENT)
    with producer(broker, buffer_memory="10000") as made:
        made.send(batch(["x" * 4000]), answers, within_s=WAIT_S)
        with pytest.raises(KafkaRetriableException, match="there is no room"):
            made.send(batch(["y" * 4000]), answers, within_s=0.1)
        broker.release()
        assert made.wait_delivered(WAIT_S)

    assert answers.rows == [0]
    assert broker.values("t", 0) == [b"x" * 4000]
