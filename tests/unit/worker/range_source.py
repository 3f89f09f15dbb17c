"""A source that reads with Spark."""

from __future__ import annotations

from penstock.api import FrameSourceTask, SourceConnector, SourceFrame


class RangesTask(FrameSourceTask):
    def poll(self) -> SourceFrame:
        if self.context.configs()["of"] == "session":
            frame = self.context.spark().range(5, 9)
            return SourceFrame(frame, "ranges", None, {}, {"id": 9})
        return SourceFrame(lambda session: session.range(5, 9), "ranges", None, {}, {"id": 9})


class Ranges(SourceConnector):
    task_class = RangesTask
