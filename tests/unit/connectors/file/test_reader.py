"""FileStream source and sink against real files, without a worker."""
# mypy: disable-error-code="union-attr,arg-type"

import os
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.api import ExactlyOnceSupport, SinkFrame
from penstock.connectors.file import (
    FileStreamSinkConnector,
    FileStreamSinkTask,
    FileStreamSourceConnector,
    FileStreamSourceTask,
)
from penstock.connectors.file import reader as reader_module
from penstock.connectors.file.reader import LineReader, split_lines
from penstock.errors import ConfigException, ConnectException

#: Bytes as hypothesis makes them, with many line ends among them.
FEW_BYTES = bytes(b"\n\r\nab\r"[byte % 6] for byte in range(256))


def texts(lines):
    return lines.values.to_pylist()


class TestSplitLines:
    @pytest.mark.parametrize(
        ("data", "lines", "ends"),
        [
            (b"", [], []),
            (b"abc", [], []),
            (b"a\nb\n", ["a", "b"], [2, 4]),
            (b"a\n\nb", ["a", ""], [2, 3]),
            (b"a\r\nb\r\n", ["a", "b"], [3, 6]),
            (b"a\rb\rc", ["a", "b"], [2, 4]),
            (b"a\r", [], []),
            (b"a\r\r\n\nb\n", ["a", "", "", "b"], [2, 4, 5, 7]),
            ("ünï\n☃\n".encode(), ["ünï", "☃"], [6, 10]),
        ],
    )
    def test_lines_end_with_lf_crlf_or_cr(self, data, lines, ends):
        got = split_lines(np.frombuffer(data, np.uint8))
        assert (texts(got), got.ends.tolist()) == (lines, ends)

    @pytest.mark.parametrize(("data", "lines"), [(b"a\nb", ["a", "b"]), (b"a\rb\r", ["a", "b"]), (b"a\n", ["a"])])
    def test_nothing_follows_final_bytes(self, data, lines):
        got = split_lines(np.frombuffer(data, np.uint8), final=True)
        assert texts(got) == lines
        assert got.consumed_bytes == len(data)

    @pytest.mark.parametrize(
        ("data", "marks"),
        [
            (b"\xed\xa0\x80", 1),
            (b"\xed\xa0", 1),
            (b"\xed\xa0\x80\xed\xb0\x80", 2),
            (b"\xf5\x80\x80\x80", 4),
            (b"\xf4\x90\x80\x80", 4),
            (b"\xc0\x80", 2),
            (b"\xe0\x80\x80", 3),
            (b"\xe2\x82", 1),
            (b"\xf0\x9f\x98", 1),
            (b"\xf1\x80\xc0", 2),
        ],
    )
    def test_there_are_as_many_replacement_characters_as_in_java(self, data, marks):
        got = split_lines(np.frombuffer(b"a" + data + b"b\n\xed\x9f\xbf\n", np.uint8))
        assert texts(got) == ["a" + marks * "\ufffd" + "b", "\ud7ff"]

    def test_bytes_that_are_not_utf8_read_as_the_replacement_character(self):
        got = split_lines(np.frombuffer(b"ok\n\xff\xfe bad\n", np.uint8))
        assert (texts(got), got.replaced) == (["ok", "\ufffd\ufffd bad"], 1)


class TestLineReader:
    @examples(40)
    @given(
        appended=st.lists(st.binary(max_size=40).map(lambda data: data.translate(FEW_BYTES)), max_size=6),
        first=st.integers(1, 9),
        largest=st.integers(9, 60),
    )
    def test_lines_and_positions_do_not_depend_on_where_reads_cut(self, tmp_path_factory, appended, first, largest):
        path = tmp_path_factory.mktemp("lines") / "in"
        path.touch()
        whole = b"".join(appended)
        found, ends = [], []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader_module, "FIRST_CHUNK_BYTES", first)
            patch.setattr(reader_module, "CHUNK_BYTES", largest)
            reader = LineReader(str(path), 0)
            for data in appended:
                with path.open("ab") as out:
                    out.write(data)
                while reader._position < path.stat().st_size:
                    if (chunk := reader.read()) is not None:
                        found += texts(chunk.lines)
                        ends += [chunk.start + end for end in chunk.lines.ends.tolist()]
            reader.close()
        expected = split_lines(np.frombuffer(whole, np.uint8))
        assert (found, ends) == (texts(expected), expected.ends.tolist())

    def read_all(self, reader):
        out = []
        while (chunk := reader.read()) is not None:
            out += texts(chunk.lines)
        return out

    def test_a_partial_last_line_waits_for_its_end(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("one\ntw")
        reader = LineReader(str(path), 0)
        assert self.read_all(reader) == ["one"]
        with path.open("a") as out:
            out.write("o\n")
        chunk = reader.read()
        assert (texts(chunk.lines), chunk.start, chunk.resume) == (["two"], 4, 8)

    def test_a_crlf_cut_in_two_is_one_line_end(self, tmp_path):
        path = tmp_path / "in"
        path.write_bytes(b"one\r")
        reader = LineReader(str(path), 0)
        assert reader.read() is None
        with path.open("ab") as out:
            out.write(b"\ntwo\n")
        assert self.read_all(reader) == ["one", "two"]

    def test_a_file_may_come_later(self, tmp_path):
        path = tmp_path / "in"
        reader = LineReader(str(path), 0)
        assert reader.read() is None
        path.write_text("here\n")
        assert self.read_all(reader) == ["here"]

    def test_a_truncated_file_is_read_from_its_start(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("one\ntwo\n")
        reader = LineReader(str(path), 0)
        assert self.read_all(reader) == ["one", "two"]
        path.write_text("new\n")
        assert reader.read() is None
        assert self.read_all(reader) == ["new"]

    def test_a_replaced_file_ends_the_old_one_and_loses_nothing(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("one\nhalf")
        reader = LineReader(str(path), 0)
        assert self.read_all(reader) == ["one", "half"][:1]
        other = tmp_path / "other"
        other.write_text("two\n")
        os.replace(other, path)
        last = reader.read()
        assert (texts(last.lines), last.resume) == (["half"], 0)
        assert self.read_all(reader) == ["two"]

    def test_a_named_pipe_is_a_stream_that_can_be_opened_again_and_has_no_positions(self, tmp_path):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        reader = LineReader(str(path), 0)
        assert reader.read() is None
        with path.open("w") as out:
            out.write("one\ntw")
            out.flush()
            chunk = reader.read()
            assert (texts(chunk.lines), chunk.start, chunk.resume) == (["one"], None, None)
            out.write("o\nend")
        assert self.read_all(reader) == ["two", "end"]
        with path.open("w") as out:
            out.write("again\n")
        assert self.read_all(reader) == ["again"]
        reader.close()

    def test_a_position_behind_the_end_means_another_file(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("one\n")
        assert self.read_all(LineReader(str(path), 4000)) == ["one"]

    def test_a_long_line_that_waits_for_its_end_is_not_copied_at_each_look(self, tmp_path):
        path = tmp_path / "in"
        path.write_bytes(b"x" * (3 * reader_module.FIRST_CHUNK_BYTES))
        reader = LineReader(str(path), 0)
        for _ in range(5):
            assert reader.read() is None
        memory = reader._buffer
        for _ in range(5):
            assert reader.read() is None
        assert reader._buffer is memory
        with path.open("ab") as out:
            out.write(b"y\n")
        assert [len(line) for line in self.read_all(reader)] == [3 * reader_module.FIRST_CHUNK_BYTES + 1]
        reader.close()

    def test_a_line_longer_than_a_chunk_is_one_line(self, tmp_path):
        path = tmp_path / "in"
        path.write_bytes(b"x" * 9_000_000 + b"\nend\n")
        reader = LineReader(str(path), 0)
        found: list[str] = []
        for _ in range(10):
            chunk = reader.read()
            found += texts(chunk.lines) if chunk else []
        assert [len(line) for line in found] == [9_000_000, 3]

    def test_a_directory_is_a_clear_error(self, tmp_path):
        reader = LineReader(str(tmp_path), 0)
        with pytest.raises(ConnectException, match="Cannot read file"):
            reader.read()

    def test_standard_input_has_lines_but_no_positions(self):
        readable, writable = os.pipe()
        reader = LineReader(None, 0, descriptor=readable)
        assert reader.read() is None
        os.write(writable, b"typed\nrest")
        chunk = reader.read()
        assert (texts(chunk.lines), chunk.start, chunk.resume) == (["typed"], None, None)
        os.close(writable)
        assert texts(reader.read().lines) == ["rest"]
        assert reader.read() is None
        os.close(readable)


class FakeReader:
    def __init__(self, offset):
        self.stored = offset

    def offset(self, partition):
        return self.stored


class FakeContext:
    def __init__(self, offset=None):
        self.stopping = threading.Event()
        self.reader = FakeReader(offset)

    def offset_storage_reader(self):
        return self.reader


def source_task(path, offset=None, **props):
    task = FileStreamSourceTask()
    task.initialize(FakeContext(offset))
    task.start({"file": str(path), "topic": "t", **props})
    return task


class TestSourceTask:
    def test_a_frame_says_where_to_resume_after_each_row(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("a\nbb\nccc\n")
        frame = source_task(path).poll()
        assert frame.data.column("value").to_pylist() == ["a", "bb", "ccc"]
        assert (frame.source_partition, frame.source_offset) == ({"filename": str(path)}, {"position": 9})
        assert [frame.offset_after(row) for row in range(3)] == [{"position": p} for p in (2, 5, 9)]

    def test_the_committed_position_is_where_it_goes_on(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("a\nbb\n")
        assert source_task(path, {"position": 2}).poll().data.column("value").to_pylist() == ["bb"]

    def test_batch_size_bounds_a_poll(self, tmp_path):
        path = tmp_path / "in"
        path.write_text("".join(f"{i}\n" for i in range(5)))
        task = source_task(path, **{"batch.size": "2"})
        frames = [task.poll() for _ in range(3)]
        assert [f.data.column("value").to_pylist() for f in frames] == [["0", "1"], ["2", "3"], ["4"]]
        assert [f.source_offset["position"] for f in frames] == [4, 8, 10]
        assert frames[1].offset_after(0) == {"position": 6}

    @pytest.mark.parametrize("offset", [{"position": -1}, {"position": "5"}, {"position": True}])
    def test_a_committed_offset_that_makes_no_sense_is_refused(self, tmp_path, offset):
        with pytest.raises(ConnectException, match="'position' has to be a whole number"):
            source_task(tmp_path / "in", offset)

    def test_poll_ends_at_once_when_the_task_stops(self, tmp_path):
        task = source_task(tmp_path / "in")
        threading.Timer(0.05, task.context.stopping.set).start()
        assert task.poll() is None


class TestSourceConnector:
    def test_one_file_makes_one_task(self):
        connector = FileStreamSourceConnector()
        connector.start({"file": "f", "topic": "t"})
        assert connector.task_configs(5) == [{"file": "f", "topic": "t"}]
        assert connector.task_class() is FileStreamSourceTask

    def test_a_missing_topic_is_refused(self):
        with pytest.raises(ConfigException, match="topic"):
            FileStreamSourceConnector().start({"file": "f"})

    def test_exactly_once_needs_a_file(self):
        connector = FileStreamSourceConnector()
        assert connector.exactly_once_support({"file": "f"}) is ExactlyOnceSupport.SUPPORTED
        assert connector.exactly_once_support({}) is ExactlyOnceSupport.UNSUPPORTED

    @pytest.mark.parametrize(
        ("partition", "offset", "message"),
        [
            ({"filename": "f"}, {}, "contain the key 'position'"),
            ({"filename": "f"}, {"position": "1"}, "expected to be a Long value"),
            ({"filename": "f"}, {"position": -1}, "non-negative"),
            ({"other": "f"}, {"position": 1}, "contain the key 'filename'"),
        ],
    )
    def test_offsets_that_are_no_positions_are_refused(self, partition, offset, message):
        with pytest.raises(ConnectException, match=message):
            FileStreamSourceConnector().alter_offsets({"file": "f"}, {frozenset(partition.items()): offset})

    def test_good_offsets_and_removals_are_accepted(self):
        offsets = {frozenset({("filename", "f")}): {"position": 3}, frozenset({("odd", 1)}): None}
        assert FileStreamSourceConnector().alter_offsets({"file": "f"}, offsets) is True

    def test_standard_input_has_no_offsets_to_change(self):
        with pytest.raises(ConnectException, match="stdin is used"):
            FileStreamSourceConnector().alter_offsets({}, {})


def sink_frame(*values):
    return SinkFrame(pa.table({"value": pa.array(values, pa.string())}), None, None)


def sink_task(path):
    task = FileStreamSinkTask()
    task.start({"file": str(path)})
    return task


class TestSink:
    def test_values_are_appended_as_lines(self, tmp_path):
        path = tmp_path / "out"
        path.write_text("before\n")
        task = sink_task(path)
        task.put(sink_frame("a", None, ""))
        task.put(sink_frame())
        task.put(sink_frame("ünï"))
        task.flush({})
        task.stop()
        assert path.read_text() == "before\na\nnull\n\nünï\n"

    def test_half_a_line_of_a_killed_write_is_dropped_when_its_record_comes_again(self, tmp_path):
        path = tmp_path / "out"
        path.write_text("one\ntw")
        task = sink_task(path)
        task.put(sink_frame("two", "three"))
        task.stop()
        assert path.read_text() == "one\ntwo\nthree\n"

    def test_a_foreign_last_line_without_an_end_is_kept_apart(self, tmp_path):
        path = tmp_path / "out"
        path.write_text("theirs")
        task = sink_task(path)
        task.put(sink_frame("ours"))
        task.stop()
        assert path.read_text() == "theirs\nours\n"

    def test_a_missing_folder_is_a_clear_error(self, tmp_path):
        with pytest.raises(ConnectException, match=r"Couldn't find or create file .*absent/out"):
            sink_task(tmp_path / "absent" / "out")

    def test_a_full_disk_is_a_clear_error(self):
        task = sink_task("/dev/full")
        with pytest.raises(ConnectException, match="Cannot write to /dev/full: No space left on device"):
            task.put(sink_frame("x"))
        task.stop()

    def test_every_task_gets_the_same_settings(self):
        connector = FileStreamSinkConnector()
        connector.start({"file": "f", "topics": "t"})
        assert connector.task_configs(2) == [{"file": "f", "topics": "t"}] * 2
