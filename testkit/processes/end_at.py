"""Ends a process at a named point: the probe of a worker that is to end itself, and of its Python workers of Spark.

Main type: ``EndAt``. A value that may be sent to other processes. Thread: any.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

#: In front of a point where the executor is to end.
EXECUTOR: Final = "executor:"


@dataclass(frozen=True)
class EndAt:
    """Kills the process that comes to a point, once.

    Attributes:
        orders: A file that names the point; removed before the end. With ``executor:`` in front the executor of Spark
            ends that has started the process.
        for_executors: See ``penstock.worker.bulk.shipping``.
    """

    orders: str
    for_executors: ClassVar[bool] = True

    def __call__(self, point: str) -> None:
        """The process has come to a point."""
        path = Path(self.orders)
        try:
            wanted = path.read_text()
        except FileNotFoundError:
            return
        if wanted.removeprefix(EXECUTOR) == point:
            path.unlink()
            os.kill(_executor() if wanted.startswith(EXECUTOR) else os.getpid(), signal.SIGKILL)


def _executor() -> int:
    """The JVM that has started PySpark's daemon, whose child a Python worker is."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
