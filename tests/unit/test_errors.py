"""The tree of errors: its shape, its texts, its Java names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import errors


def _classes() -> list[type[BaseException]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [item for item in found if isinstance(item, type)]


@pytest.mark.parametrize("cls", _classes(), ids=lambda cls: cls.__name__)
def test_every_error_has_a_java_name_that_is_reported(cls: type[BaseException]) -> None:
    error = cls("x")

    assert errors.java_class_name(error).startswith("org.apache.kafka.")
    assert errors.java_class_name(error).rpartition(".")[2].endswith("Exception")


@pytest.mark.parametrize("cls", _classes(), ids=lambda cls: cls.__name__)
def test_every_error_has_one_of_the_two_roots(cls: type[BaseException]) -> None:
    assert issubclass(cls, (errors.ConnectException, errors.KafkaException))


def test_kafkas_errors_are_no_connect_errors() -> None:
    assert not issubclass(errors.KafkaRetriableException, errors.ConnectException)
    assert not issubclass(errors.ConfigException, errors.ConnectException)


def test_a_lost_spark_session_is_retriable() -> None:
    assert issubclass(errors.SparkUnavailableException, errors.RetriableException)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.ConfigException("plain text"), "plain text"),
        (errors.ConfigException("a", None), "Invalid value null for configuration a"),
        (errors.ConfigException("a", None, "why"), "Invalid value null for configuration a: why"),
        (errors.ConfigException("a", True, "why"), "Invalid value true for configuration a: why"),
        (errors.ConfigException("a", ["x", 1], "why"), "Invalid value [x, 1] for configuration a: why"),
        (errors.ConfigException("a", value="v", message="why"), "Invalid value v for configuration a: why"),
    ],
)
def test_a_config_error_reads_as_in_java(error: errors.ConfigException, text: str) -> None:
    assert str(error) == text


def test_a_config_error_keeps_what_it_is_about() -> None:
    error = errors.ConfigException("tasks.max", 0, "too small")

    assert (error.name, error.value) == ("tasks.max", 0)
    assert errors.ConfigException("text alone").name is None


def test_an_error_of_another_library_is_named_by_its_python_path() -> None:
    class Private(ValueError):
        pass

    assert errors.java_class_name(ValueError("x")) == "ValueError"
    assert errors.java_class_name(Private("x")).startswith(f"{__name__}.")


def test_a_subclass_by_an_author_reports_the_class_it_extends() -> None:
    class MyRetry(errors.RetriableException):
        pass

    assert errors.java_class_name(MyRetry()) == "org.apache.kafka.connect.errors.RetriableException"


def test_a_trace_starts_with_class_and_message_and_shows_the_cause() -> None:
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as problem:
            raise errors.DataException("outer") from problem

    with pytest.raises(errors.DataException) as caught:
        fail()

    trace = errors.stack_trace(caught.value)
    assert trace.startswith("org.apache.kafka.connect.errors.DataException: outer\n")
    assert "KeyError: 'inner'" in trace
    assert "in fail" in trace


def test_a_trace_shows_where_a_file_is_imported_from_and_not_where_it_is(tmp_path: Path) -> None:
    code = "def fail():\n    raise OSError('inner')\n"
    names: dict[str, Any] = {}
    exec(compile(code, str(tmp_path / "plugins" / "my_source.py"), "exec"), names)
    try:
        try:
            names["fail"]()
        except OSError as error:
            raise errors.ConnectException("outer") from error
    except errors.ConnectException as error:
        trace = errors.stack_trace(error)
    assert 'File "my_source.py", line 2, in fail' in trace
    assert 'raise errors.ConnectException("outer") from error' in trace
    assert str(tmp_path) not in trace
    assert str(Path(__file__).parent) not in trace
