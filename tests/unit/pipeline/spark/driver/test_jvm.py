"""What is said of a JVM that is gone, without asking it."""

from typing import Any

import pytest

from penstock.pipeline.spark.driver.jvm import brief, how_ended
from penstock.pipeline.spark.session import SparkRuntime


class JavaError(Exception):
    """Its message is in the JVM, as with Py4J's."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("gone")


def test_an_error_whose_message_died_with_the_jvm_is_told_by_its_class() -> None:
    assert brief(JavaError()) == "JavaError: "


def test_only_the_first_line_of_a_message_is_told() -> None:
    assert brief(ValueError("\nfirst\nsecond")) == "ValueError: first"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (3, "ran out of memory (spark.driver.memory is 2g)"),
        (52, "ran out of memory (spark.driver.memory is 2g)"),
        (-9, "was killed, as the system does when memory runs out"),
        (-6, "ended with exit code -6"),
        (134, "ended with exit code 134"),
        (None, "does not answer"),
    ],
)
def test_a_jvm_that_ended_for_lack_of_memory_is_named_as_that(code: int | None, told: str) -> None:
    assert how_ended(code, "2g") == told


class GoneJvm:
    """A JVM that was killed a moment ago: nobody has looked yet."""

    def lost_by(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)


def test_a_session_that_somebody_found_gone_is_gone_for_all_at_once() -> None:
    runtime: Any = SparkRuntime({"spark.master": "local[1]"})
    runtime._driver, runtime._session, runtime._generation = GoneJvm(), object(), 1

    assert not runtime.is_lost(1, ValueError("of the job"))
    assert runtime.up
    assert runtime.is_lost(1, ConnectionRefusedError("refused"))
    # Who tries again now would find the JVM gone again.
    assert not runtime.up
