"""``Task`` and ``TaskContext``: what source and sink tasks, and their contexts, share.

Owning thread: each task has a thread of its own, on which the worker calls it (exceptions are named at the methods).
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.config import AbstractConfig


class Task(ABC):
    """A share of a connector's job. Subclass ``SourceTask``, ``FrameSourceTask``, ``SinkTask`` or ``FrameSinkTask``.

    Life: made with no arguments; ``initialize`` and ``start`` once; the loop; ``stop`` once. A task that failed or was
    restarted is a new instance.

    Attributes:
        config_class: The class of its settings, for ``settings``.
        settings: What ``start`` was given, parsed by ``config_class``.

    Source: org.apache.kafka.connect.connector.Task.
    """

    config_class: ClassVar[type[AbstractConfig] | None] = None
    settings: Any

    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads its settings, opens resources, finds where to resume. The default parses ``settings``.

        Called once, on the task's thread, after ``initialize``; again where it asks for that. May block for a while:
        the task is RUNNING when it returns.

        Args:
            props: What the connector's ``task_configs`` gave for this task, placeholders replaced.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, else
                after a wait that grows up to ``source.retry.delay.max.ms``, or ``errors.retry.delay.max.ms`` of a sink.
            Exception: Any other makes the task FAILED; ``stop`` is called even then.
        """
        if self.config_class is not None:
            self.settings = self.config_class.parse(props)

    def stop(self) -> None:
        """Ends: releases what ``start`` opened. The default does nothing.

        Called once, on the task's thread, when nothing else of the task runs or will run; also when ``start`` failed
        half way, so nothing may be taken to exist. A task that has not ended within
        ``task.shutdown.graceful.timeout.ms`` is abandoned: it commits nothing more. An exception is logged and does no
        harm.
        """

    def version(self) -> str:
        """The version; normally that of the connector."""
        return "undefined"


class TaskContext(ABC):  # noqa: B024 - what the worker implements is in its subclasses
    """The interface through which every task makes requests of the worker: the common part of source and sink tasks.

    Source: Penstock's own.
    """

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """Says how far the task is with work that has an end, such as the first load of a table.

        ``GET /connectors/NAME/status``, ``explain``, the terminal and the metrics ``penstock_task_progress_done`` and
        ``penstock_task_progress_total`` show it until something else is said or the task ends. Any thread; costs
        nothing, so it may be called after each batch.

        Args:
            done: How much is done; None: there is nothing to tell any more.
            total: How much there is; None if that is not known. May change.
            unit: What is counted: ``rows``, ``bytes``, ``files``.

        Raises:
            ValueError: A number is negative or none, or the unit is no text.

        Source: Penstock's own.
        """
