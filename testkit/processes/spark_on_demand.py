"""A worker whose Spark session starts with the first batch that needs one: lines of text as such need none.

`python -m testkit.processes.spark_on_demand MODULE ARGUMENT...` runs the worker's module with its arguments. A session
takes four seconds of processor time to start, more than all else that most workers of tests do.

Thread: the main one patches; the session starts in the thread that asks for it first.
"""

from __future__ import annotations

import runpy
import sys

from penstock.pipeline.spark.session import SparkRuntime


def main() -> None:
    """Runs the worker."""
    start, want = SparkRuntime.start, SparkRuntime.want

    def start_and_want(self: SparkRuntime) -> None:
        start(self)
        want(self)

    def wait_for_demand(self: SparkRuntime) -> None:
        """Leaves the start to whoever wants a session."""

    SparkRuntime.want, SparkRuntime.start = start_and_want, wait_for_demand  # type: ignore[method-assign]
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
