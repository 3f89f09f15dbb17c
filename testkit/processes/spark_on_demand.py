"""A worker whose Spark session starts with the first batch or check that needs one, not with the worker or its tasks.

`python -m testkit.processes.spark_on_demand MODULE ARGUMENT...` runs the worker's module with its arguments. A session
takes four seconds of processor time to start, more than all else that a worker does in tests that move no records.

Thread: the main one patches; the session starts in the thread that asks for it first.
"""

from __future__ import annotations

import runpy
import sys
from typing import TYPE_CHECKING

from penstock.pipeline.spark.session import SparkRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    """Runs the worker."""
    start, want, current = SparkRuntime.start, SparkRuntime.want, SparkRuntime.current

    def leave(self: SparkRuntime) -> None:
        """Leaves the start to whoever needs a session."""

    def demand(self: SparkRuntime, timeout_s: float | None = None) -> tuple[SparkSession, int] | None:
        start(self)
        want(self)
        return current(self, timeout_s)

    SparkRuntime.start = SparkRuntime.want = leave  # type: ignore[method-assign]
    SparkRuntime.current = demand  # type: ignore[method-assign]
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
