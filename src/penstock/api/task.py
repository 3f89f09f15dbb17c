"""``Task``: what source and sink tasks share.

Owning thread: each task has a thread of its own, on which the worker calls it (exceptions are named at the methods).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class Task(ABC):
    """A share of a connector's job. Subclass ``SourceTask``, ``FrameSourceTask``, ``SinkTask`` or ``FrameSinkTask``.

    Life: made with no arguments; ``initialize`` and ``start`` once; the loop; ``stop`` once. A task that failed or was
    restarted is a new instance.

    Source: org.apache.kafka.connect.connector.Task.
    """

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads its settings, opens resources, finds where to resume.

        Called once, on the task's thread, after ``initialize``. May block for a while: the task is RUNNING when it
        returns. An exception makes the task FAILED; ``stop`` is called even then.

        Args:
            props: What the connector's ``task_configs`` gave for this task, placeholders replaced.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ends: releases what ``start`` opened.

        Called once, on the task's thread, when nothing else of the task runs or will run; also when ``start`` failed
        half way, so nothing may be taken to exist. A task that has not ended within
        ``task.shutdown.graceful.timeout.ms`` is abandoned: it commits nothing more. An exception is logged and does no
        harm.
        """

    def version(self) -> str:
        """The version; normally that of the connector."""
        return "undefined"
