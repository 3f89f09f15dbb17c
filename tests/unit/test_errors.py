"""The tree of errors: its shape, its texts, its Java names."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import orjson
import pytest

from penstock import errors
from penstock.traces import root_cause


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


def trace_of(outer: Exception, inner: Exception | None) -> str:
    """The trace of an error that was raised from another."""
    try:
        try:
            raise inner if inner is not None else outer
        except KeyError as problem:
            raise outer from problem
    except Exception as error:
        return errors.stack_trace(error)


def test_a_trace_begins_with_its_root_cause_and_says_what_that_led_to() -> None:
    trace = trace_of(errors.DataException("outer"), KeyError("inner"))
    assert trace.splitlines()[:3] == [
        "KeyError: 'inner'",
        "Led to: org.apache.kafka.connect.errors.DataException: outer",
        "Traceback (most recent call last):",
    ]
    assert "in trace_of" in trace
    assert root_cause(trace) == "\n".join(trace.splitlines()[:2])


@pytest.mark.parametrize("cause", [KeyError("inner"), None])
def test_a_cause_that_its_error_repeats_is_not_told_twice(cause: Exception | None) -> None:
    trace = trace_of(errors.DataException("no field 'inner'"), cause)
    assert trace.splitlines()[:2] == [
        "org.apache.kafka.connect.errors.DataException: no field 'inner'",
        "Traceback (most recent call last):",
    ]
    assert root_cause(trace) == trace.splitlines()[0]


def test_the_system_s_words_in_a_message_count_as_its_cause() -> None:
    error = errors.ConnectException("Cannot read it: No such file or directory")
    error.__cause__ = FileNotFoundError(2, "No such file or directory", "/no/such/file")
    assert root_cause(errors.stack_trace(error)).endswith("ConnectException: Cannot read it: No such file or directory")


def test_as_in_java_the_root_cause_may_come_last() -> None:
    error = errors.DataException("outer")
    error.__cause__ = KeyError("inner")
    lines = errors.stack_trace(error, root_first=False).splitlines()
    assert lines[0] == "org.apache.kafka.connect.errors.DataException: outer"
    assert lines[1] == "Caused by: KeyError: 'inner'"


def test_errors_that_cause_each_other_have_an_end() -> None:
    first, second = KeyError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert errors.stack_trace(first).splitlines()[:2] == ["KeyError: 'second'", "Led to: KeyError: 'first'"]


def test_errors_that_were_never_raised_have_a_trace_without_frames() -> None:
    outer = errors.ConnectException("outer")
    outer.__cause__ = KeyError("inner")
    heads = "KeyError: 'inner'\nLed to: org.apache.kafka.connect.errors.ConnectException: outer"
    assert errors.stack_trace(outer) == root_cause(errors.stack_trace(outer)) == heads
    with pytest.raises(errors.ConnectException):
        raise outer
    assert root_cause(errors.stack_trace(outer)) == heads
    assert "Traceback" in errors.stack_trace(outer)


def test_an_error_that_causes_itself_has_an_end() -> None:
    outer, inner = errors.DataException("no field 'inner'"), KeyError("inner")
    outer.__cause__ = inner
    inner.__cause__ = inner
    assert errors.stack_trace(outer).startswith("org.apache.kafka.connect.errors.DataException: no field 'inner'")


def _called(*files: Path | str) -> errors.ConnectException:
    """An error that was raised in the last of these files, each of which called the next."""
    call: Any = None
    for file in reversed(files):
        names: dict[str, Any] = {"call": call, "ConnectException": errors.ConnectException}
        source = "def run():\n    raise ConnectException('outer')\n" if call is None else "def run():\n    call()\n"
        exec(compile(source, str(file), "exec"), names)
        call = names["run"]
    with pytest.raises(errors.ConnectException) as caught:
        call()
    return caught.value


OURS = Path(errors.__file__).parent
INSTALLED = Path(pytest.__file__).parents[1]


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ([OURS / "worker/source/task.py", OURS / "threads.py"], ["penstock/threads.py"]),
        (
            [OURS / "worker/source/task.py", "/plugins/mine.py", INSTALLED / "requests/api.py"],
            ["mine.py", "requests/api.py"],
        ),
        (
            [OURS / "worker/sink/task.py", "/plugins/mine.py", OURS / "api/sink.py", threading.__file__],
            ["mine.py", "threading.py"],
        ),
        ([OURS / "worker/a.py", OURS / "connectors/file/source.py"], ["penstock/connectors/file/source.py"]),
        (
            [OURS / "worker/a.py", INSTALLED / "my_plugin/source.py", OURS / "a.py"],
            ["my_plugin/source.py", "penstock/a.py"],
        ),
        ([OURS / "worker/a.py", "/usr/lib/connect/plugins/mine.py", OURS / "b.py"], ["mine.py", "penstock/b.py"]),
        ([OURS / "worker/a.py", INSTALLED / "pyspark/sql/session.py", OURS / "b.py"], ["penstock/b.py"]),
    ],
)
def test_a_trace_has_the_frames_of_authors_and_the_last_of_ours(files: list[Path | str], shown: list[str]) -> None:
    trace = errors.stack_trace(_called(*files))
    named = [line.split('"')[1] for line in trace.splitlines() if line.startswith("  File ")]
    # The test itself is an author, too.
    assert [name for name in named if not name.endswith("test_errors.py")] == shown
    assert str(OURS) not in trace


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


def test_errors_of_libraries_go_by_what_does_the_same_in_java() -> None:
    class Own(json.JSONDecodeError):
        """Of an author, who calls it as the library does."""

    broken = json.JSONDecodeError("x", "{", 0)
    for error in (broken, orjson.JSONDecodeError("x", "{", 0), Own("x", "{", 0)):
        assert errors.java_class_name(error) == "com.fasterxml.jackson.core.JsonParseException"
        assert errors.stack_trace(error).startswith("com.fasterxml.jackson.core.JsonParseException: x")
    refused = ck.KafkaException(ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert errors.stack_trace(refused).startswith("org.apache.kafka.common.KafkaException: ")
