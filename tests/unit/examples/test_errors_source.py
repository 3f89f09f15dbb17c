"""The source of errors in a log file."""

from __future__ import annotations

from pathlib import Path

from examples.errors_source import ErrorsTask
from tests.unit.examples.source_context import Context


def started(context: Context, file: Path) -> ErrorsTask:
    task = ErrorsTask()
    task.initialize(context)
    task.start({"file": str(file), "topic": "errors"})
    return task


def test_the_position_moves_past_lines_that_are_no_errors(tmp_path: Path) -> None:
    file, context = tmp_path / "log", Context()
    file.write_text("INFO a\nERROR b\nINFO c\nINFO")
    records = started(context, file).poll()
    assert records is not None
    assert [(one.value, one.source_offset) for one in records] == [("ERROR b", {"position": 15})]
    partition = {"file": str(file)}
    assert context.offset_storage_reader().offset(partition) == {"position": 22}
    assert context.told == [(22, 26, "bytes")]
    with file.open("a") as log:
        log.write(" d\nERROR e\n")
    again = started(context, file).poll()
    assert again is not None
    assert [one.value for one in again] == ["ERROR e"]
    assert started(context, file).poll() == []
