"""Cancels the jobs in which Spark's Python workers run code of an abandoned task.

An endless loop in such code would occupy a core for ever, and only Spark knows its process. After a job is cancelled,
Spark ends processes that have not stopped after ``spark.python.task.killTimeout``, 2 s.

Main type: ``PythonWork``. Thread: any.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.errors import ConnectException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The longest wait for a cancelled job, which normally ends within seconds.
_TRIES: Final = 30
_AGAIN_S: Final = 1.0


class PythonWork:
    """The work of Python workers for one task. Thread: any."""

    def __init__(self) -> None:
        self._tag = f"penstock-{uuid.uuid4().hex}"
        self._changed = threading.Condition()
        self._sessions: list[SparkSession] = []
        self._ended = False

    @property
    def ended(self) -> bool:
        """True if no new work may begin, because the task was abandoned."""
        return self._ended

    @contextmanager
    def under_way(self, session: SparkSession) -> Iterator[None]:
        """Around a job.

        Raises:
            ConnectException: The work was ended.
        """
        with self._changed:
            if self._ended:
                raise ConnectException("Python workers of Spark do nothing more for this task: it was given up")
            self._sessions.append(session)
        try:
            # A classic session knows its tags only on their own thread; the context knows them on all.
            context = getattr(session, "_sc", None)
            add, remove = (
                (session.addTag, session.removeTag) if context is None else (context.addJobTag, context.removeJobTag)
            )
            add(self._tag)
            try:
                yield
            finally:
                remove(self._tag)
        finally:
            with self._changed:
                self._sessions.remove(session)
                self._changed.notify_all()

    def end(self) -> None:
        """Ends it, and lets nothing more begin; waits for the end.

        A job that is about to begin is not there yet, so it is asked for again.
        """
        for _ in range(_TRIES):
            with self._changed:
                self._ended = True
                if not self._sessions:
                    return
                session = self._sessions[0]
            _cancel(session, self._tag)
            with self._changed:
                self._changed.wait_for(lambda: not self._sessions, _AGAIN_S)


def _cancel(session: SparkSession, tag: str) -> None:
    context = getattr(session, "_sc", None)
    if context is None:
        session.interruptTag(tag)
    else:
        context.cancelJobsWithTag(tag)
