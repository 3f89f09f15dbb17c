"""Patterns of users end: in linear time, or at their limit.

Java's regular expressions, against what Java 17 recorded for the same patterns and texts.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.api import SourceRecord
from penstock.config import ConfigValue
from penstock.config.java_pattern import LIMIT_S, JavaPattern, Translated, compile_java
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


RECORDED = json.loads((Path(__file__).parents[2] / "data" / "config" / "java_regex.json").read_text(encoding="utf-8"))
VALID = [row for row in RECORDED["patterns"] if "error" not in row]
REFUSED = [row for row in RECORDED["patterns"] if "error" in row]


def _name(row: dict[str, Any]) -> str:
    return json.dumps(row["pattern"])


@pytest.mark.parametrize("row", VALID, ids=_name)
def test_a_pattern_matches_and_finds_what_java_does(row: dict[str, Any]) -> None:
    compiled = compile_java(row["pattern"])
    texts = RECORDED["texts"]
    matches = [index for index, text in enumerate(texts) if compiled.matches(text)]
    found = {str(i): [match.start(), match.end()] for i, text in enumerate(texts) if (match := compiled.find(text))}
    assert matches == row["matches"]
    assert found == row["found"]


@pytest.mark.parametrize("row", REFUSED, ids=_name)
def test_a_pattern_is_refused_with_javas_message(row: dict[str, Any]) -> None:
    with pytest.raises(ConfigException) as refused:
        compile_java(row["pattern"], name="topics.regex")
    expected = f"Invalid value {row['pattern']} for configuration topics.regex: Invalid regex: {row['error']}"
    assert str(refused.value) == expected


@pytest.mark.parametrize("pattern", [r"\G", r"\X", r"(?U)\w", r"\p{IsLatin}", "(?<=a*)b", r"\b{g}"])
def test_what_python_cannot_do_is_refused_and_not_read_as_something_else(pattern: str) -> None:
    with pytest.raises(ConfigException, match="for configuration regex: Invalid regex: "):
        compile_java(pattern)


def test_a_wrong_pattern_is_reported_with_its_setting_and_position() -> None:
    with pytest.raises(ConfigException) as refused:
        compile_java("ab[c", name="include")
    assert str(refused.value) == (
        "Invalid value ab[c for configuration include: Invalid regex: Unclosed character class near index 3\nab[c\n   ^"
    )


@pytest.mark.parametrize("pattern", ["x{99999999999}", "x{2147483648}", "x{2147483648,}", "x{0,99999999999}"])
def test_a_count_that_java_has_no_room_for_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigException, match="Illegal repetition range near index"):
        compile_java(pattern, name="regex")


def test_a_count_that_java_has_room_for_is_taken() -> None:
    assert compile_java("x{0,2147483647}").pattern == "x{0,2147483647}"


@pytest.mark.parametrize(
    "pattern", ["a" * 400_000, r"\p{L}" * 100_000, "(" * 100_000, r"(?:\b)" * 50_000, "[" * 90_000]
)
def test_a_pattern_that_would_take_minutes_to_compile_is_refused_in_time(pattern: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigException, match=r"Not supported here: (a pattern that takes more|maximum recursion)"):
        compile_java(pattern, name="regex")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("pattern", ["x{2147483647}", "(?:x{1000}){1000}", "(((x{99}){99}){99}){99}"])
def test_a_pattern_that_would_take_all_memory_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigException, match="Not supported here: repetitions that ask for more than 100000"):
        compile_java(pattern, name="regex")
