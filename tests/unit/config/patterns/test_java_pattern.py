"""Patterns of users end: in linear time, or at their limit."""

from __future__ import annotations

import pickle
import threading
import time

import pytest

from penstock.api import SourceRecord
from penstock.config import ConfigValue
from penstock.config.patterns.java_pattern import LIMIT_S, JavaPattern, Translated
from penstock.config.patterns.translation import compile_java
from penstock.config.providers import EnvVarConfigProvider
from penstock.data import STRING_SCHEMA
from penstock.errors import ConfigException, DataException, PatternTimeoutException
from penstock.kafka.consumer.offsets import Subscription
from penstock.settings.topics import check_topics
from penstock.transforms.predicates import TopicNameMatches
from penstock.transforms.topics import RegexRouter

TEXT = "a" * 60
#: RE2 runs the first three; the others are left to the engine with a limit.
LINEAR = ["(a+)+b", "(a|aa)+b", "(a*)*b", "(?i)(a|aa)+b", "^(a|aa)+b$", "(?iu)([a-z]|aa)+B|c$"]
LIMITED = [r"(a|aa)+\b(?!c)b", "(?=a)(a|aa)+b", "(a|aa)+(?<!x)b", "(a|aa)+x?+b"]


@pytest.mark.parametrize("pattern", LINEAR)
def test_what_re2_can_run_answers_at_once(pattern: str) -> None:
    begun = time.thread_time()
    assert not compile_java(pattern).matches(TEXT * 100)
    assert compile_java(pattern).matches(f"{TEXT}b")
    assert time.thread_time() - begun < 1


@pytest.mark.parametrize("pattern", LIMITED)
def test_what_re2_cannot_run_is_given_up_with_pattern_and_text_named(pattern: str) -> None:
    begun = time.thread_time()
    with pytest.raises(PatternTimeoutException) as given_up:
        compile_java(pattern).matches(TEXT * 2)
    assert time.thread_time() - begun < 1
    assert pattern in str(given_up.value)
    assert f"'{TEXT}... (120 characters)'" in str(given_up.value)
    assert isinstance(given_up.value, DataException)


def test_other_threads_run_while_a_pattern_is_tried() -> None:
    counted = 0
    ended = threading.Event()

    def search() -> None:
        with pytest.raises(PatternTimeoutException):
            compile_java(LIMITED[0]).matches(TEXT)
        ended.set()

    thread = threading.Thread(target=search)
    thread.start()
    while not ended.wait(0.001):
        counted += 1
    thread.join()
    assert counted > 3


class Engine:
    """A stand-in for the engine with a limit: its searches end for want of time, so many of them."""

    def __init__(self, failing: int, *, own_s: float = 0) -> None:
        self._failing = failing
        self._own_s = own_s
        self.limits: list[float] = []

    def fullmatch(self, text: str, *, timeout: float, concurrent: bool) -> object:
        self.limits.append(timeout)
        begun = time.thread_time()
        while time.thread_time() - begun < self._own_s:
            pass
        if len(self.limits) <= self._failing:
            raise TimeoutError
        return text


def pattern_of(engine: Engine) -> JavaPattern:
    # Not shared with others, as compiled ones are.
    pattern = JavaPattern("a(?!b)", Translated("a(?!b)", None))
    pattern._limited = engine
    return pattern


def test_a_search_that_ended_for_what_other_threads_took_begins_anew_with_more_time() -> None:
    engine = Engine(failing=2)

    assert pattern_of(engine).matches("a")
    assert engine.limits == [LIMIT_S, 2 * LIMIT_S, 4 * LIMIT_S]


@pytest.mark.parametrize(("own_s", "searches"), [(0, 4), (LIMIT_S, 1)])
def test_a_search_that_takes_its_time_itself_or_again_and_again_is_given_up_and_not_tried_for_the_next_record(
    own_s: float, searches: int
) -> None:
    engine = Engine(failing=9, own_s=own_s)
    pattern = pattern_of(engine)

    for _ in range(3):
        with pytest.raises(PatternTimeoutException):
            pattern.matches("a")

    assert len(engine.limits) == searches
    with pytest.raises(PatternTimeoutException):
        pattern.matches("b")
    assert len(engine.limits) == 2 * searches


def test_half_of_a_surrogate_pair_is_text_as_any_other() -> None:
    assert compile_java("a.b").matches("a\ud800b")
    assert not compile_java("a.b").matches("\ud800")


def test_a_pattern_survives_pickling() -> None:
    pattern = pickle.loads(pickle.dumps(compile_java("a(?<n>b)")))
    assert isinstance(pattern, JavaPattern)
    assert pattern.matches("ab")
    assert dict(pattern.groupindex) == {"n": 1}


@pytest.mark.parametrize(("pattern", "text", "expected"), [("(?i)k", "\u212a", False), ("(?iu)k", "\u212a", True)])
def test_letters_beyond_ascii_fold_only_where_java_folds_them(pattern: str, text: str, expected: bool) -> None:
    assert compile_java(pattern).matches(text) is expected


def _record() -> SourceRecord:
    return SourceRecord({}, {}, TEXT, value_schema=STRING_SCHEMA, value="v")


@pytest.mark.parametrize("pattern", LIMITED)
def test_every_place_that_takes_a_pattern_gives_up(pattern: str) -> None:
    router, predicate = RegexRouter(), TopicNameMatches()
    router.configure({"regex": pattern, "replacement": "x"})
    predicate.configure({"pattern": pattern})
    with pytest.raises(PatternTimeoutException):
        router.apply(_record())
    with pytest.raises(PatternTimeoutException):
        predicate.test(_record())
    with pytest.raises(PatternTimeoutException):
        Subscription.matching(pattern).covers(TEXT)
    found: dict[str, ConfigValue] = {}
    check_topics({"topics.regex": pattern, "errors.deadletterqueue.topic.name": TEXT}, found)
    assert pattern in found["topics.regex"].error_messages[0]
    with pytest.raises(ConfigException, match=r"allowlist\.pattern"):
        EnvVarConfigProvider({TEXT: "1"}).configure({"allowlist.pattern": pattern})


@pytest.mark.parametrize("pattern", LINEAR)
def test_no_place_hangs_on_a_pattern_of_linear_time(pattern: str) -> None:
    router, predicate = RegexRouter(), TopicNameMatches()
    router.configure({"regex": pattern, "replacement": "x"})
    predicate.configure({"pattern": pattern})
    routed = router.apply(_record())
    assert routed is not None
    assert routed.topic == TEXT
    assert not predicate.test(_record())
    assert not Subscription.matching(pattern).covers(TEXT)
