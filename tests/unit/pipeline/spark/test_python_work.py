"""What Python workers do for one task is cancelled by a tag of its own, and nothing more begins then."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.errors import ConnectException
from penstock.pipeline.spark.gate import PythonWork


class Context:
    """A Spark context in which jobs run until they are cancelled."""

    def __init__(self) -> None:
        self.tags = threading.local()
        self.cancelled: dict[str, threading.Event] = {}
        #: How many requests to cancel find nothing yet.
        self.deaf = 0

    def addJobTag(self, tag: str) -> None:
        self.tags.now = tag
        self.cancelled.setdefault(tag, threading.Event())

    def removeJobTag(self, tag: str) -> None:
        assert self.tags.now == tag
        self.tags.now = None

    def cancelJobsWithTag(self, tag: str) -> None:
        self.deaf -= 1
        if self.deaf < 0:
            self.cancelled[tag].set()

    def job(self) -> None:
        assert self.cancelled[self.tags.now].wait(10)
        raise RuntimeError("cancelled")


class Session:
    def __init__(self, context: Context) -> None:
        self._sc = context


class Connect:
    """A session of Spark Connect, which knows its own tags."""

    def __init__(self) -> None:
        context = Context()
        self.addTag, self.removeTag, self.interruptTag = (
            context.addJobTag,
            context.removeJobTag,
            context.cancelJobsWithTag,
        )
        self.job = context.job


@pytest.mark.parametrize("deaf", [0, 1])
@pytest.mark.parametrize("connect", [False, True])
def test_what_is_under_way_is_cancelled(deaf: int, connect: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.spark.gate._AGAIN_S", 0.01)
    context = Context()
    context.deaf = deaf
    session: Any = Connect() if connect else Session(context)
    job = session.job if connect else context.job
    work, begun, said = PythonWork(), threading.Event(), []

    def run() -> None:
        try:
            with work.under_way(session):
                begun.set()
                job()
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(10)
    work.end()
    thread.join(10)
    assert said == ["cancelled"]
    with pytest.raises(ConnectException, match="abandoned"), work.under_way(session):
        pass


def test_the_work_of_others_goes_on() -> None:
    context = Context()
    session: Any = Session(context)
    mine, other = PythonWork(), PythonWork()
    with other.under_way(session):
        mine.end()
    assert not any(one.is_set() for one in context.cancelled.values())
    with other.under_way(session):
        pass
