"""The source of the documentation whose rows executors write."""

from typing import Any

from examples.load_source import LoadSource, LoadTask
from tests.unit.examples.source_context import Context


class Session:
    """A session that says what was read."""

    @property
    def read(self) -> "Session":
        return self

    def parquet(self, path: str) -> str:
        return f"rows of {path}"


def started(context: Context) -> LoadTask:
    connector = LoadSource()
    connector.start({"name": "load", "topic": "sales", "path": "/data"})
    [config] = connector.task_configs(4)
    task = connector.task_class()()
    task.initialize(context)
    task.start(config)
    return task


def test_the_folder_is_one_run_and_nothing_follows_it() -> None:
    context = Context()
    task = started(context)
    frame = task.poll()
    assert frame is not None
    session: Any = Session()
    read: Any = frame.data(session)
    assert read == "rows of /data"
    assert (frame.topic, frame.run, frame.source_partition) == ("sales", "all", {"path": "/data"})
    assert frame.as_source_frame().source_offset == {"loaded": True}
    assert task.poll() is None
    assert context.waiting.waits == [1.0]
    task.stop()


def test_what_is_loaded_is_not_loaded_again() -> None:
    context = Context()
    context.commit({"path": "/data"}, {"loaded": True})
    assert started(context).poll() is None
