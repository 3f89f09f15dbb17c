"""Jobs of bulk work as the worker sees them: whether executors can do it, and what follows from a job that failed.

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
from penstock.worker.bulk.runs import Tries
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
        """Asks those of a session once. Thread: the job's.

        Raises:
            ConnectException: One of them cannot do the work; says what to do.
        """
        generation = self._runtime.generation
        if self._probed != generation:
            probe_executors(session, payload, own_path(), max(1, self._runtime.parallelism))
            self._probed = generation


@dataclass(frozen=True)
class JobFailure:
    """A job that has failed.

    Attributes:
        message: What happened.
        partition: The Spark partition whose attempt has ended the job, where that is known.
        again: Whether another job is tried.
    """

    message: str
    partition: int | None
    again: bool


def judged(error: Exception, tries: Tries, dealt: int) -> JobFailure:
    """Decides what follows from a job that failed.

    Args:
        error: What it has ended with.
        tries: Counts the jobs; counts this one.
        dealt: How much is dealt with by now.

    Raises:
        Exception: The error itself, where no other job can help and it says all there is to say.
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
