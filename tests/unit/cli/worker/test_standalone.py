"""The command connect-standalone, as a process and by its function, without a broker."""

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.worker_commands import ended, worker_file

from penstock.cli.worker import standalone


def standalone_file(directory: Path, **changes: str | None) -> str:
    """A worker file; ``rest_port`` stands for ``rest.port``, None leaves a setting out."""
    return worker_file(directory, offset_storage_file_filename=str(directory / "offsets"), **changes)


def test_a_worker_file_with_faults_names_all_of_them(tmp_path: Path) -> None:
    code, output = ended("standalone", standalone_file(tmp_path, key_converter=None, offset_flush_interval_ms="soon"))
    assert code == 1
    assert "contains the following 2 error(s)" in output
    assert 'Missing required configuration "key.converter"' in output
    assert "Invalid value soon for configuration offset.flush.interval.ms" in output
    assert "Traceback" not in output


def test_a_missing_worker_file_is_a_start_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert standalone.run(str(tmp_path / "gone.properties"), []) == 1
    assert "gone.properties cannot be read: No such file or directory" in caplog.text


def test_a_connector_file_without_a_name_is_a_connector_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c.properties").write_text("connector.class=FileStreamSource\n", encoding="utf-8")
    assert standalone.run(standalone_file(tmp_path), [str(tmp_path / "c.properties")]) == 3
    assert "c.properties has no name" in caplog.text


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """A fresh process that imports what `connect-standalone` does, and prepares itself as a worker's."""
    code = """
import gc, json, resource, sys
from penstock.cli.worker import standalone, worker
heavy = [name for name in ("pyspark", "pyarrow", "pandas", "numpy", "confluent_kafka") if name in sys.modules]
worker.collect_rarely()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
worker.raise_file_limit()
files = resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
worker.raise_file_limit()
most = resource.getrlimit(resource.RLIMIT_NOFILE)
collector = gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count() > 0
print(json.dumps({"heavy": heavy, "collector": collector, "files": files, "most": most}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_nothing_heavy_is_imported_before_the_rest_server_listens(fresh: dict[str, Any]) -> None:
    assert fresh["heavy"] == []


def test_a_worker_looks_through_young_objects_seldom(fresh: dict[str, Any]) -> None:
    assert fresh["collector"] == [True, 300_000, True]
    assert gc.get_threshold()[0] != 300_000, "the tests' own process keeps Python's settings"


def test_a_worker_may_open_as_many_files_as_its_user(fresh: dict[str, Any]) -> None:
    assert fresh["files"]
    assert fresh["most"] == [64, 64]
