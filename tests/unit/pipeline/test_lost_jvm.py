"""What is said of a JVM that is gone, without asking it."""

from penstock.pipeline.spark.driver_jvm import brief


class JavaError(Exception):
    """Its message is in the JVM, as with Py4J's."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("gone")


def test_an_error_whose_message_died_with_the_jvm_is_told_by_its_class() -> None:
    assert brief(JavaError()) == "JavaError: "


def test_only_the_first_line_of_a_message_is_told() -> None:
    assert brief(ValueError("\nfirst\nsecond")) == "ValueError: first"
