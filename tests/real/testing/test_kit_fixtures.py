"""The fixtures of the authors' kit, in a run of pytest of its own, as an author has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = """
from examples.squares_source import SquaresSource

from penstock.testing import SourceSuite, run_source

pytest_plugins = ["penstock.testing.kit.fixtures"]


def test_a_source_that_reads_with_spark_goes_on_behind_a_kill(spark):
    with run_source(SquaresSource, {"topic": "t", "count": "5"}, spark=spark) as source:
        source.poll()
        source.commit(2)
        source.kill()
        source.finish(5)

    assert source.values == [0, 1, 4, 9, 16]
"""


@pytest.mark.java
@pytest.mark.slow
def test_a_source_that_reads_with_spark_is_run_with_a_session_of_the_kit(tmp_path: Path) -> None:
    file = tmp_path / "test_squares.py"
    file.write_text(TESTS, encoding="utf-8")

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
