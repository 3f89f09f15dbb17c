"""Ends a process at a named point: the probe of a worker that is to end itself, and of its Python workers of Spark.

Main type: ``EndAt``. A value that may be sent to other processes. Thread: any.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EndAt:
    """Kills the process that comes to a point, once.

    Attributes:
        orders: A file that names the point; removed before the end.
    """

    orders: str

    def __call__(self, point: str) -> None:
        """The process has come to a point."""
        path = Path(self.orders)
        try:
            wanted = path.read_text()
        except FileNotFoundError:
            return
        if wanted == point:
            path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
