"""The first records of a source, read by a process that can be ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pyarrow as pa
import pytest
from examples.errors_source import ErrorsSource
from examples.prices_source import PRICE, PricesSource
from testkit.spark_settings import QUICK_START
from testkit.waiting import await_true
from tests.unit.worker.counting_source import Counting
from tests.unit.worker.range_source import Ranges

from penstock.api import SourceFrame
from penstock.connectors.file import FileStreamSourceConnector
from penstock.model.payloads import PreviewLimits
from penstock.pipeline.batch.source.frame_input import frame_to_records
from penstock.worker.preview.chain import session_settings
from penstock.worker.preview.fork_server import NICENESS
from penstock.worker.preview.previewer import FirstRecords, SourceReaders

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def readers() -> Iterator[SourceReaders]:
    found = SourceReaders({})
    yield found
    found.close()


def test_reading_ends_with_the_number_of_records(readers: SourceReaders) -> None:
    read = readers.first_records(Counting, {"do": "count"}, PreviewLimits(records=7, seconds=30))
    assert [record.value for record in read.records] == [{"number": n} for n in (1, 1, 1, 2, 2, 2, 3)]
    assert (read.ended, read.error) == ("records", None)


def test_the_rows_of_a_plain_table_are_the_records_of_its_run(readers: SourceReaders, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("id,name,price,changed\n1,pen,1.5,2026-01-01T12:00:00.123456\n2,,20,2026-01-02T00:00:00.000000\n")
    read = readers.first_records(PricesSource, {"topic": "p", "file": str(file)}, PreviewLimits(records=2, seconds=30))
    columns = {"id": [1, 2], "name": ["pen", None], "price": [1.5, 20.0], "changed": [1767268800123, 1767312000000]}
    wanted = frame_to_records(SourceFrame(pa.table(columns), "p", PRICE, {}, {}), pa.table(columns))
    assert (read.records, read.ended) == (wanted, "records")


def test_a_source_that_moves_positions_and_tells_its_progress_is_read_too(
    readers: SourceReaders, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text("INFO a\nERROR b\nINFO c\n")
    read = readers.first_records(ErrorsSource, {"topic": "p", "file": str(file)}, PreviewLimits(records=1, seconds=30))
    assert ([record.value for record in read.records], read.error) == (["ERROR b"], None)


def test_rows_that_would_end_the_task_are_the_error(readers: SourceReaders, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("id,name,price,changed\n3000000000,pen,1.5,2026-01-01\n")
    read = readers.first_records(PricesSource, {"topic": "p", "file": str(file)}, PreviewLimits(records=2, seconds=30))
    assert (read.records, read.ended) == ([], "error")
    assert read.error is not None
    assert read.error.startswith(
        'The column "id" of a SourceFrame has the type int64, which does not fit Schema{INT32}'
    )


def test_reading_ends_with_the_bytes(readers: SourceReaders) -> None:
    read = readers.first_records(Counting, {"do": "count"}, PreviewLimits(records=10_000, seconds=30, bytes=2_000))
    assert 0 < len(read.records) < 1_000
    assert read.ended == "bytes"


def test_a_source_that_blocks_for_ever_is_gone_after_its_time_with_all_that_it_has_started(
    readers: SourceReaders, tmp_path: Path
) -> None:
    file, found = tmp_path / "pids", Queue[FirstRecords]()
    limits = PreviewLimits(seconds=6)
    config = {"do": "block", "pids": str(file)}
    reading = threading.Thread(target=lambda: found.put(readers.first_records(Counting, config, limits)))
    reading.start()
    await_true(file.exists)
    own, started = (int(pid) for pid in file.read_text().split())
    assert os.getpriority(os.PRIO_PROCESS, own) == NICENESS
    reading.join()
    read = found.get()
    assert (read.records, read.ended) == ([], "seconds")
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)
    # Nobody may have waited for the other yet.
    state = Path("/proc", str(started), "stat")
    await_true(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z")


def test_an_error_of_the_source_is_told(readers: SourceReaders) -> None:
    read = readers.first_records(Counting, {"do": "fail"}, PreviewLimits(seconds=30))
    assert (read.records, read.ended) == ([], "error")
    assert read.error == "ConnectException: no such table"


def test_a_source_without_tasks_has_no_records(readers: SourceReaders) -> None:
    assert readers.first_records(Counting, {"do": "nothing"}, PreviewLimits(seconds=30)).ended == "end"


def test_a_columnar_source_is_read_too(readers: SourceReaders, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    config = {"file": str(file), "topic": "t", "name": "f"}
    read = readers.first_records(FileStreamSourceConnector, config, PreviewLimits(records=4, seconds=30))
    assert [record.value for record in read.records] == [f"line {number}" for number in range(4)]
    assert {record.topic for record in read.records} == {"t"}
    assert read.ended == "records"


@pytest.mark.java
def test_a_source_that_reads_with_spark_has_a_session_whose_start_takes_none_of_its_time() -> None:
    own = SourceReaders(session_settings(QUICK_START))
    limits = PreviewLimits(records=3, seconds=2)
    found = []
    for of in ("session", "function"):
        read = own.first_records(Ranges, {"of": of}, limits)
        # The first query may take all of its time on a busy machine.
        if read.ended == "seconds":
            read = own.first_records(Ranges, {"of": of}, replace(limits, seconds=60))
        found.append(read)
    own.close()
    for read in found:
        assert (read.ended, read.error) == ("records", None)
        assert [(record.topic, str(record.value)) for record in read.records] == [
            ("ranges", f"Struct{{id={n}}}") for n in (5, 6, 7)
        ]


def test_a_session_that_does_not_start_is_the_error_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    own = SourceReaders(session_settings(QUICK_START))
    read = own.first_records(Ranges, {"of": "session"}, PreviewLimits(records=3, seconds=2))
    own.close()
    assert (read.records, read.ended) == ([], "error")
    assert read.error is not None
    assert read.error.startswith("SparkUnavailableException: the Spark session cannot start")


def test_a_source_that_ends_its_process_gives_no_records(readers: SourceReaders) -> None:
    read = readers.first_records(Counting, {"do": "die"}, PreviewLimits(seconds=30))
    assert (read.records, read.ended) == ([], "end")


def test_a_server_that_has_ended_is_replaced(readers: SourceReaders) -> None:
    assert readers.first_records(Counting, {"do": "count"}, PreviewLimits(records=1, seconds=30)).ended == "records"
    server = readers._server
    assert server is not None
    server.kill()
    server.wait()
    assert readers.first_records(Counting, {"do": "count"}, PreviewLimits(records=1, seconds=30)).ended == "records"
    readers.close()
    assert readers._server is None
