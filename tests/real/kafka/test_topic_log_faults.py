"""A log whose broker is killed, frozen and started again."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from testkit.brokers.embedded import freeze, thaw
from testkit.brokers.log_lab import LogLab, Recorder
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.topic_log.internal_topics import Kind

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def lab(fragile_broker: EmbeddedBroker) -> Iterator[LogLab]:
    with LogLab(fragile_broker.bootstrap_servers) as lab:
        yield lab


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_reads_and_writes_go_on_after_a_broker_was_killed_under_them(
    fragile_broker: EmbeddedBroker, lab: LogLab
) -> None:
    log, seen = lab.started(Kind.OFFSET)
    stored: list[int] = []
    ending = threading.Event()

    def write() -> None:
        number = 0
        while not ending.is_set():
            try:
                log.write([(b"key", b"%d" % number), (b"other%d" % (number % 9), b"%d" % number)], 60)
                stored.append(number)
            except KafkaRetriableException:
                pass  # A broker that starts for longer than a record may wait; the next one is written.
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    await_true(lambda: len(stored) > 20)
    fragile_broker.kill()
    fragile_broker.start()
    before = len(stored)
    await_true(lambda: len(stored) > before + 20)
    ending.set()
    writer.join(90)
    log.read_to_end(60)
    fresh, seen_afresh = lab.started(Kind.OFFSET)

    # What was answered is there, in order, for this log and for a new one.
    for records in (seen.records, seen_afresh.records):
        values = [int(record.value or b"-1") for record in records if record.key == b"key"]
        assert sorted(set(stored) - set(values)) == []
        # A record whose acknowledgement got lost may be stored twice, but no older one comes after it.
        assert values == sorted(values)
    assert seen.values() == seen_afresh.values()
    fresh.stop()


def test_transactions_go_on_after_a_broker_was_killed_between_them(fragile_broker: EmbeddedBroker, lab: LogLab) -> None:
    log, seen = lab.started(transactional=True)
    log.claim(60)
    log.write([(b"a", b"1"), (b"b", b"1")], transactional=True)

    fragile_broker.kill()
    fragile_broker.start()
    written = []
    for number in (2, 3):
        try:
            log.write([(b"a", b"%d" % number), (b"b", b"%d" % number)], 60, transactional=True)
        except KafkaException:
            # Whatever has become of the transaction: with the id claimed again it goes on.
            log.claim(60)
            log.write([(b"a", b"%d" % number), (b"b", b"%d" % number)], 60, transactional=True)
        written.append(number)

    assert seen.values() == {b"a": b"3", b"b": b"3"}
    pairs = [record.value for record in seen.records if record.key == b"a"]
    assert pairs == [record.value for record in seen.records if record.key == b"b"]


def test_a_frozen_broker_hangs_nobody_and_the_error_says_topic_and_stage(
    fragile_broker: EmbeddedBroker, lab: LogLab
) -> None:
    log, seen = lab.started(transactional=True)
    log.claim(60)
    log.write([(b"a", b"1")])
    told: list[Exception | None] = []
    freeze(fragile_broker)
    try:
        with pytest.raises(KafkaRetriableException, match=rf"record.* for the topic {log.topic} were not acknowledged"):
            assert seconds(lambda: log.write([(b"a", b"2")], 1)) < 5
        with pytest.raises(KafkaRetriableException, match=rf"{log.topic}, being asked for its ends.* longer than 1 s"):
            assert seconds(lambda: log.read_to_end(1)) < 8
        with pytest.raises(KafkaRetriableException, match=rf"could not write \(topic {log.topic}\)"):
            log.write([(b"a", b"3")], 1, transactional=True)
        assert seconds(lambda: log.write_async(b"b", b"1", told.append)) < 0.5
        with pytest.raises(KafkaRetriableException, match="could not be claimed"):
            log.claim(1)
    finally:
        thaw(fragile_broker)
    log.claim(60)
    log.write([(b"a", b"4")], 60, transactional=True)
    await_true(lambda: told == [None])

    assert seen.values()[b"a"] == b"4"
    assert seen.values()[b"b"] == b"1"


def test_a_start_while_brokers_are_away_ends_in_time_and_may_be_tried_again(
    fragile_broker: EmbeddedBroker, lab: LogLab
) -> None:
    log, seen = lab.log(), Recorder()
    fragile_broker.kill()
    try:
        with pytest.raises(KafkaRetriableException, match=rf"{log.topic}, being asked for its ends.* longer than 1 s"):
            assert seconds(lambda: log.start(seen, 1)) < 8
        assert seconds(log.stop) < 5
    finally:
        fragile_broker.start()

    log.start(seen, 60)
    log.write([(b"a", b"1")], 60)
    assert seen.values() == {b"a": b"1"}


def test_a_log_is_stopped_while_its_broker_is_frozen(fragile_broker: EmbeddedBroker, lab: LogLab) -> None:
    log, _ = lab.started(transactional=True)
    log.claim(60)
    told: list[Exception | None] = []
    freeze(fragile_broker)
    try:
        log.write_async(b"a", b"1", told.append)
        took = seconds(log.stop)
    finally:
        thaw(fragile_broker)

    assert took < 15
    assert len(told) == 1
    assert told[0] is not None
