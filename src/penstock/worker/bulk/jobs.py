"""The worker's view of bulk jobs: checks that executors can do the work, and decides after a failed job.

Main types: ``Executors`` (asks them once for each session), ``JobFailure``. Main function: ``judged``.

Thread: any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConnectException, SparkSessionLostException, SparkUnavailableException
from penstock.pipeline.batch.source.frame_spark import misfit_of
from penstock.pipeline.spark.session import SparkRuntime
from penstock.worker.bulk.failures import Failure
from penstock.worker.bulk.runs import AttemptCounter
from penstock.worker.bulk.shipping import own_path, probe_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Executors:
    """The executors of the sessions that a task has.

    Args:
        runtime: The Spark session.
    """

    def __init__(self, runtime: SparkRuntime) -> None:
        self._runtime = runtime
        self._probed: int | None = None

    def probe(self, session: SparkSession, payload: bytes) -> None:
        """Probes the executors of a session once. Thread: the job's.

        Raises:
            ConnectException: An executor cannot do the work; the message names the remedy.
        """
        generation = self._runtime.generation
        if self._probed != generation:
            probe_executors(session, payload, own_path(), max(1, self._runtime.parallelism))
            self._probed = generation


@dataclass(frozen=True)
class JobFailure:
    """A job that has failed.

    Attributes:
        message: The description of the failure.
        partition: The Spark partition whose attempt ended the job, if known.
        again: True if another job is tried.
    """

    message: str
    partition: int | None
    again: bool


def judged(error: Exception, tries: AttemptCounter, dealt: int) -> JobFailure:
    """Decides between another job and failing the task.

    Args:
        error: The error of the job.
        tries: The count of jobs; this call adds the failed one.
        dealt: The number of rows that were handled so far.

    Raises:
        Exception: The error itself, if no other job can help and the error needs no explanation.
    """
    if isinstance(error, SparkUnavailableException | SparkSessionLostException):
        raise error
    if misfit := misfit_of(error):
        raise misfit from error
    failure = Failure.of(error)
    if failure is None and isinstance(error, ConnectException):
        raise error
    message = brief(error) if failure is None else failure.message
    again = (failure is None or not failure.final) and tries.again(dealt)
    return JobFailure(message, None if failure is None else failure.partition, again)


def brief(error: Exception) -> str:
    """The first line of an error's text; its class, where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
