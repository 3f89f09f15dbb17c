"""Stand-ins for the worker's Spark sessions. Main type: ``FakeSessions``. Thread: any."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from penstock.errors import SparkUnavailableException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FakeSessions:
    """Sessions that are there, and go, when a test says so; each is told by its number."""

    def __init__(self) -> None:
        self.generation = 1
        self.up = True
        self.failure: SparkUnavailableException | None = None
        self.asked = 0
        self._changed = threading.Condition()

    def lose(self) -> None:
        """The session is gone, and no other one is there."""
        self.up = False

    def replace(self) -> None:
        """There is another one."""
        with self._changed:
            self.generation += 1
            self.up = True
            self._changed.notify_all()

    def current(self, timeout_s: float) -> tuple[SparkSession, int] | None:
        """See ``SparkRuntime.current``."""
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        with self._changed:
            if not self._changed.wait_for(lambda: self.up, timeout_s):
                return None
            return cast("SparkSession", f"session {self.generation}"), self.generation

    def is_lost(self, generation: int, error: BaseException) -> bool:
        """See ``SparkRuntime.is_lost``."""
        return generation < self.generation or not self.up
