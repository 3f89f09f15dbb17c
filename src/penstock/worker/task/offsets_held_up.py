"""Reports a task that cannot start because its offsets topic cannot be read to its end.

Main type: ``OffsetsHeldUp``, of one task. The first report is a line at INFO, since the open transaction of a killed
task usually ends soon. If it lasts, a WARNING follows once a minute, and ``explain``, the status of the task and
``/health`` show it.

Owning thread: the task's; ``text`` may be asked from any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock.model import ConnectorTaskId
from penstock.telemetry.logs import SeldomLog
from penstock.telemetry.standstills import Standstill, goes_on, stands_still, task_owner
from penstock.worker.task.waiting import because

logger = logging.getLogger(__name__)

REASON: Final = "open_transaction"
#: The wait after which the report is a WARNING.
_LONG_S: Final = 15.0


class OffsetsHeldUp:
    """The messages about offsets that are held up, for one task.

    Args:
        task: Its id.
        clock: Monotonic seconds.

    Attributes:
        text: The cause of the wait; None if there is none, or it is unknown.
    """

    def __init__(self, task: ConnectorTaskId, clock: Callable[[], float]) -> None:
        self.text: str | None = None
        self._task = task
        self._clock = clock
        self._since: float | None = None
        self._seldom = SeldomLog(logger, clock)
        self._standstill: Standstill | None = None

    def waits(self, error: Exception) -> None:
        """The topic was not read to its end in time.

        Args:
            error: The cause; its own cause may name the open transaction (``HeldUpException``).
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        self.text = held_up = getattr(error.__cause__, "held_up", None)
        if now - self._since < _LONG_S:
            logger.info("Task %s waits for the end of its offsets topic: %s", self._task, error)
        else:
            self._seldom.warning(
                "waits",
                "Task %s has waited for the end of its offsets topic for %.0f s, and starts when it is read: %s",
                self._task,
                now - self._since,
                error,
            )
        told = because(REASON if held_up is not None else "broker").because(held_up or str(error))
        self._standstill = stands_still(
            task_owner(self._task),
            told.reason,
            told.text,
            details=told.to_json(),
            connector=self._task.connector,
        )

    def goes_on(self) -> None:
        """It was read, or the task ends."""
        if self._since is not None:
            logger.info("Task %s no longer waits for the end of its offsets topic", self._task)
        self.text = self._since = None
        if self._standstill is not None:
            goes_on(task_owner(self._task), self._standstill)
