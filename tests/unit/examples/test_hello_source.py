"""The hello-world source of the documentation."""

from examples.hello_source import HelloSource, HelloTask
from tests.unit.examples.source_context import Context


def started(context: Context) -> HelloTask:
    connector = HelloSource()
    connector.start({"name": "hello", "topic": "greetings"})
    [config] = connector.task_configs(4)
    task = HelloTask()
    task.initialize(context)
    task.start(config)
    return task


def test_it_greets_once_a_second_and_counts() -> None:
    context = Context()
    task = started(context)

    polled = [record for _ in range(3) for record in task.poll() or []]

    assert [record.value for record in polled] == ["hello 1", "hello 2", "hello 3"]
    assert {record.topic for record in polled} == {"greetings"}
    assert context.waiting.waits == [1.0, 1.0, 1.0]


def test_it_goes_on_behind_the_committed_greeting() -> None:
    context = Context()
    [first] = started(context).poll() or []
    context.commit(first.source_partition, first.source_offset)

    [second] = started(context).poll() or []

    assert second.value == "hello 2"


def test_a_stop_ends_the_poll_without_a_greeting() -> None:
    context = Context()
    task = started(context)

    context.stopping.set()

    assert task.poll() is None
    task.stop()


def test_a_configuration_without_topic_is_refused() -> None:
    [topic] = HelloSource().validate({"name": "hello"}).config_values

    assert topic.name == "topic"
    assert topic.error_messages == ['Missing required configuration "topic" which has no default value.']
