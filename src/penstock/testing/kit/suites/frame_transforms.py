"""Tests of every transform that works on frames, in Spark.

Main type: ``FrameTransformSuite``. It needs pytest and Java, so it is imported from here and not from
``penstock.testing``.

Owning thread: the test's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest

from penstock.api import ConnectRecord, SinkRecord, SourceRecord
from penstock.api.arrow import for_spark
from penstock.pipeline.batch.batches import Failures
from penstock.pipeline.batch.frames import FrameRunner
from penstock.pipeline.batch.segments import Framed
from penstock.testing.kit.suites.transforms import TransformSuite, parts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FrameTransformSuite(TransformSuite):
    """The tests of a ``FrameTransformation``: those of ``TransformSuite``, and of what frames ask for.

    They run in Spark, with the fixture ``spark`` of ``penstock.testing.kit.fixtures``, and so need Java.

    Source: Penstock's own.
    """

    @pytest.fixture(autouse=True)
    def _with_spark(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark

    def test_a_stateless_transform_has_no_state(self) -> None:
        """An instance that has worked gives the same as a new one."""
        made = self.make()
        first = [parts_of(one) for one in self._run(made, self.records()) if isinstance(one, ConnectRecord)]
        for other in (made, self.make()):
            again = [parts_of(one) for one in self._run(other, self.records()) if isinstance(one, ConnectRecord)]
            assert again == first, "another instance gives something else"

    def test_a_frame_may_be_cut_anywhere(self) -> None:
        """A record becomes the same by itself and in a batch."""
        given = list(self.records())
        together = self._applied([*given, *given])
        for place, record in enumerate(given):
            (alone,) = self._applied([record])
            for found in (together[place], together[place + len(given)]):
                assert isinstance(found, ConnectRecord) == isinstance(alone, ConnectRecord)
                if isinstance(found, ConnectRecord) and isinstance(alone, ConnectRecord):
                    assert parts_of(found) == parts_of(alone), "a record becomes another one in a batch"

    def test_making_the_plan_runs_no_job(self) -> None:
        """``apply`` says what is selected: to count or collect rows works on the whole batch once more."""
        session = _OneSession(self._spark())
        self._run(self.make(), self.records(), session)
        assert not session.hidden, f"apply has run {session.hidden} jobs of Spark while the plan was made"

    def _applied(self, records: Sequence[ConnectRecord]) -> list[ConnectRecord | Exception | None]:
        return self._run(self.make(), records)

    def _run(
        self, made: Any, records: Sequence[ConnectRecord], session: _OneSession | None = None
    ) -> list[ConnectRecord | Exception | None]:
        """The outcomes of a batch; of a record that has become several, the first."""
        found: list[ConnectRecord | Exception | None] = [None] * len(records)
        for kind in (SourceRecord, SinkRecord):
            rows = [row for row, record in enumerate(records) if isinstance(record, kind)]
            failures, segment = Failures(), Framed(made, None, False, type(made).__name__, "kit")
            runner = FrameRunner(cast("Any", session or _OneSession(self._spark())))
            live, positions = runner.apply(
                segment, [records[row] for row in rows], None, failures, len(rows), sink=kind is SinkRecord
            )
            places = range(len(live)) if positions is None else positions
            for place, record in reversed(list(zip(places, live, strict=True))):
                found[rows[failures.seq(place)]] = record
            for place, error in failures.errors.items():
                found[rows[place]] = error.exception if isinstance(error.exception, Exception) else None
        return found


#: Frames of fewer bytes are none of Spark's: what is collected of them runs no job.
_LOCAL: Final = "spark.sql.execution.arrow.localRelationThreshold"


class _OneSession:
    """Runs the plans of frames on a session, as the worker's jobs do.

    Attributes:
        hidden: How many jobs have run while plans were made.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.hidden = 0

    def collect(self, table: pa.Table, plan: Any, limit_s: float | None = None) -> tuple[pa.Table, Any]:
        """See ``SparkJobs.collect``."""
        given = self._frame_of(table)
        before = self._jobs()
        frame, shape = plan(given)
        self.hidden += self._jobs() - before
        return frame.toArrow(), shape

    def _frame_of(self, table: pa.Table) -> DataFrame:
        usual = self._session.conf.get(_LOCAL)
        self._session.conf.set(_LOCAL, "0")
        try:
            return self._session.createDataFrame(for_spark(table.combine_chunks()))
        finally:
            self._session.conf.set(_LOCAL, str(usual))

    def _jobs(self) -> int:
        """The number of jobs that the session has begun; 0 on Spark Connect, which does not say."""
        java = getattr(self._session, "_jsparkSession", None)
        return 0 if java is None else int(java.sparkContext().dagScheduler().numTotalJobs())
