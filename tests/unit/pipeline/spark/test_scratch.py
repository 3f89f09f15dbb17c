"""Files that hand a batch to another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.spark.prepared_plan import scratch_file

READ = "import sys; print(open(sys.argv[1], 'rb').read().decode())"


@pytest.mark.parametrize("in_memory", [True, False])
def test_another_process_reads_what_was_written_and_nothing_is_left(tmp_path: Path, in_memory: bool) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with scratch_file(str(tmp_path), in_memory=in_memory) as path:
        Path(path).write_bytes(b"a batch")
        read = subprocess.run([sys.executable, "-c", READ, path], check=True, capture_output=True, text=True)
        assert len(os.listdir(tmp_path)) == (0 if in_memory else 1)

    assert read.stdout == "a batch\n"
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("in_memory", [True, False])
def test_nothing_is_left_when_the_call_fails(tmp_path: Path, in_memory: bool) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no such thing"), scratch_file(str(tmp_path), in_memory=in_memory):
        raise OSError("no such thing")

    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_memory_has_no_files_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")

    with scratch_file(str(tmp_path), in_memory=True) as path:
        assert Path(path).parent == tmp_path
