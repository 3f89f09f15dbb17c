"""The rules for every ``RecordLog``: the log of a topic and the one in memory both pass them.

Main object: ``RULES``; each rule takes a function that makes a log of one worker on a topic that they share. Thread:
the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.errors import KafkaException, ProducerFencedException
from penstock.kafka.topic_log.clients import LogRecord
from penstock.stores.interface import RecordLog

NewLog = Callable[[], RecordLog]


def _started(new_log: NewLog) -> tuple[RecordLog, list[LogRecord]]:
    log, seen = new_log(), list[LogRecord]()
    log.start(seen.extend)
    return log, seen


def _pairs(records: list[LogRecord]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def a_start_hands_over_what_is_there(new_log: NewLog) -> None:
    """A log that is started later has what others have written."""
    first, _ = _started(new_log)
    first.write([(b"a", b"1"), (b"b", None)])
    _, seen = _started(new_log)

    assert sorted(_pairs(seen), key=str) == [(b"a", b"1"), (b"b", None)]


def a_write_was_handed_over_when_it_is_answered(new_log: NewLog) -> None:
    """Whoever has written sees it."""
    log, seen = _started(new_log)
    log.write([(b"a", b"1")])
    assert _pairs(seen) == [(b"a", b"1")]
    log.write([])
    log.write([(b"a", b"2")])
    assert _pairs(seen) == [(b"a", b"1"), (b"a", b"2")]


def a_read_to_the_end_has_what_others_have_written(new_log: NewLog) -> None:
    """In the order of each partition."""
    (one, _), (other, seen) = _started(new_log), _started(new_log)
    for number in range(5):
        one.write([(b"a", b"%d" % number)])
    other.read_to_end(20)

    assert [value for _, value in _pairs(seen)] == [b"%d" % number for number in range(5)]
    assert [record.offset for record in seen] == sorted(record.offset for record in seen)


def whoever_writes_one_record_is_told(new_log: NewLog) -> None:
    """Without waiting for it."""
    (log, seen), told = _started(new_log), list[Exception | None]()
    log.write_async(b"a", b"1", told.append)
    # A write behind it is stored behind it.
    log.write([(b"a", b"2")])

    assert told == [None]
    assert [value for _, value in _pairs(seen)] == [b"1", b"2"]


def whoever_claims_last_writes(new_log: NewLog) -> None:
    """And the others are told so, until they claim again; what needs no claim is written by all."""
    (old, _), (new, seen) = _started(new_log), _started(new_log)
    _refused(old)
    old.claim()
    old.write([(b"a", b"old"), (b"b", b"old")], transactional=True)
    new.claim()
    _refused(old)
    old.write([(b"c", b"plain")])
    new.write([(b"a", b"new")], transactional=True)
    old.claim()
    old.write([(b"a", b"again")], transactional=True)
    _refused(new)
    new.read_to_end(20)

    assert [value for key, value in _pairs(seen) if key == b"a"] == [b"old", b"new", b"again"]
    assert (b"c", b"plain") in _pairs(seen)


def a_log_that_was_stopped_does_nothing_until_it_is_started_again(new_log: NewLog) -> None:
    """And then it begins at the beginning."""
    log, _ = _started(new_log)
    log.write([(b"a", b"1")])
    log.stop()
    log.stop()
    assert "closed" in str(_error_of(lambda: log.read_to_end(1)))
    assert "closed" in str(_error_of(lambda: log.write([(b"a", b"2")])))
    seen: list[LogRecord] = []
    log.start(seen.extend)

    assert _pairs(seen) == [(b"a", b"1")]


def _refused(log: RecordLog) -> None:
    error = _error_of(lambda: log.write([(b"a", b"zombie")], transactional=True))
    assert isinstance(error, ProducerFencedException), error


def _error_of(call: Callable[[], None]) -> KafkaException | None:
    try:
        call()
    except KafkaException as error:
        return error
    return None


RULES: Final[tuple[Callable[[NewLog], None], ...]] = (
    a_start_hands_over_what_is_there,
    a_write_was_handed_over_when_it_is_answered,
    a_read_to_the_end_has_what_others_have_written,
    whoever_writes_one_record_is_told,
    whoever_claims_last_writes,
    a_log_that_was_stopped_does_nothing_until_it_is_started_again,
)
