"""What is said of a JVM that is gone, without asking it."""

import pytest

from penstock.pipeline.spark.driver_jvm import brief, how_ended


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
