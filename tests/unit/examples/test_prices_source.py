"""The source of a plain table of the documentation."""

from pathlib import Path

from examples import prices_source
from examples.prices_source import PRICE, PricesSource, PricesTask
from tests.unit.examples.source_context import Context

from penstock.api import SourceFrame, SourceRecord
from penstock.pipeline.batch.source.frame_input import frame_to_records, in_arrow

LINES = "id,name,price,changed\n1,pen,1.5,2026-01-01T12:00:00\n2,,20,2026-01-02T00:00:00\n"


def started(context: Context, file: Path) -> PricesTask:
    connector = PricesSource()
    connector.start({"name": "prices", "topic": "p", "file": str(file)})
    [config] = connector.task_configs(4)
    task = connector.task_class()()
    task.initialize(context)
    task.start(config)
    return task


def texts(frame: SourceFrame | None) -> list[str]:
    assert frame is not None
    return [str(record.value) for record in records(frame)]


def records(frame: SourceFrame) -> list[SourceRecord]:
    frame = in_arrow(frame)
    return frame_to_records(frame, frame.data)


def test_rows_are_structs_of_the_schema(tmp_path: Path) -> None:
    context, file = Context(), tmp_path / "prices.csv"
    file.write_text(LINES)
    task = started(context, file)
    frame = task.poll()

    assert texts(frame) == [
        "Struct{id=1,name=pen,price=1.5,changed=Thu Jan 01 12:00:00 UTC 2026}",
        "Struct{id=2,price=20.0,changed=Fri Jan 02 00:00:00 UTC 2026}",
    ]
    assert frame is not None
    assert {record.value_schema for record in records(frame)} == {PRICE}
    assert task.poll() is None
    assert context.waiting.waits == [1.0]
    task.stop()


def test_it_goes_on_behind_any_delivered_row(tmp_path: Path) -> None:
    context, file = Context(), tmp_path / "prices.csv"
    file.write_text(LINES)
    frame = started(context, file).poll()
    assert frame is not None
    assert frame.offset_after is not None
    context.commit(frame.source_partition, frame.offset_after(0))

    assert [text[:12] for text in texts(started(context, file).poll())] == ["Struct{id=2,"]


def test_it_stands_on_its_page() -> None:
    program = Path(prices_source.__file__).read_text(encoding="utf-8")
    page = (Path(__file__).parents[3] / "docs/frames.md").read_text(encoding="utf-8")

    assert f"```python\n{program}```" in page
