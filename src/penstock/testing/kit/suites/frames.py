"""Tests of columnar tasks: how a frame is cut, and what its columns may look like.

Main type: ``FrameSuite``.

Owning thread: the test's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.api import FrameSinkTask, FrameSourceTask, SinkFrame, SourceFrame
from penstock.testing.kit.frames import frames_of_records, no_rows, records_of_frame
from penstock.testing.kit.suites.sources import SourceSuite


class FrameSuite:
    """The tests of a task of frames, in addition to those of its connector: ``class TestMine(FrameSuite,
    SourceSuite)``.

    With a ``SourceSuite`` they look at the frames that ``poll`` gives, with a ``SinkSuite`` they give ``put`` frames
    that are cut and laid out in other ways than those of the other tests.

    Source: Penstock's own.
    """

    def __init_subclass__(cls, **named: Any) -> None:
        """Leaves out the tests of the other kind of task."""
        super().__init_subclass__(**named)
        of_sinks = [name for name in vars(FrameSuite) if name.startswith("test_frames_that_are_put")]
        of_sources = [name for name in vars(FrameSuite) if name.startswith("test_a_frame_that_is_polled")]
        for name in of_sinks if issubclass(cls, SourceSuite) else of_sources:
            setattr(cls, name, None)

    # ------------------------------------------------------------------------------------------------------ sources
    def test_a_frame_that_is_polled_has_a_position_behind_its_last_row(self, tmp_path: Path) -> None:
        """``offset_after`` of the last row is ``source_offset``, and no two rows of a frame have one position."""
        for frame in self._frames(tmp_path):
            rows = len(records_of_frame(frame, None))
            if frame.offset_after is None or not rows:
                continue
            offsets = [dict(frame.offset_after(row)) for row in range(rows)]
            assert offsets[-1] == dict(frame.source_offset), (
                f"offset_after({rows - 1}) is {offsets[-1]}, and source_offset is {dict(frame.source_offset)}"
            )
            twice = [one for one, count in Counter(map(repr, offsets)).items() if count > 1]
            assert not twice, f"several rows have the position {twice[0]}: a restart would lose or repeat one"

    def test_a_frame_that_is_polled_is_a_table_that_fits_its_schemas(self, tmp_path: Path) -> None:
        """Its columns are those of a frame, with types that their schemas hold."""
        frames = self._frames(tmp_path)
        assert frames, "poll() gave no frame"
        for frame in frames:
            records_of_frame(frame, None)

    # -------------------------------------------------------------------------------------------------------- sinks
    def test_frames_that_are_put_may_be_cut_anywhere(self, tmp_path: Path) -> None:
        """One row at a time, and all at once: the target is the same."""
        suite: Any = self
        suite._write(tmp_path)
        expected = list(suite.contents())
        for batch in (1, 3):
            suite._write(tmp_path, batch=batch)
            found = list(suite.contents())
            assert Counter(map(repr, found)) == Counter(map(repr, expected)), (
                f"it is another target with batches of {batch}"
            )

    def test_frames_that_are_put_may_be_laid_out_in_any_way(self, tmp_path: Path) -> None:
        """Columns in several chunks, and parts of longer ones."""
        suite: Any = self
        suite._write(tmp_path)
        expected = list(suite.contents())
        for layout in (_in_chunks, _sliced):
            with suite._run(tmp_path) as run:
                run._begin()
                for life in run._lives:
                    batch = run._next(life, None)
                    for frame in frames_of_records(batch, life.task.value_form, life.context, None):
                        life.task.put(layout(frame))
                    for one in batch:
                        place = (one.original_topic, one.original_kafka_partition)
                        life.next[place] = life.put_to[place] = one.original_kafka_offset + 1
            found = list(suite.contents())
            assert Counter(map(repr, found)) == Counter(map(repr, expected)), f"it is another target {layout.__doc__}"

    def test_frames_that_are_put_may_have_no_rows(self, tmp_path: Path) -> None:
        """As after ``context.timeout``."""
        suite: Any = self
        suite._write(tmp_path)
        expected = list(suite.contents())
        with suite._run(tmp_path) as run:
            run._begin()
            for life in run._lives:
                life.task.put(no_rows(life.task.value_form, life.context, None))
            run.finish()
        found = list(suite.contents())
        assert Counter(map(repr, found)) == Counter(map(repr, expected))

    def _frames(self, tmp_path: Path) -> list[SourceFrame]:
        suite: Any = self
        run = suite._run(tmp_path)
        frames: list[SourceFrame] = []
        with run:
            for _ in range(20):
                run.poll()
                frames += [one.frame for one in run._pending if one.is_last and one.frame is not None]
                run.commit()
                if len(run.committed) >= suite.count:
                    break
            assert all(isinstance(one, FrameSourceTask | FrameSinkTask) for one in run.tasks)
        return frames


def _in_chunks(frame: SinkFrame) -> SinkFrame:
    """with columns in chunks"""
    table = pa.concat_tables([frame.table.slice(row, 1) for row in range(frame.num_rows)])
    return replace(frame, table=table)


def _sliced(frame: SinkFrame) -> SinkFrame:
    """with columns that are parts of longer ones"""
    rows = frame.num_rows
    table = pa.concat_tables([frame.table, frame.table]).combine_chunks().slice(rows, rows)
    return replace(frame, table=table)
