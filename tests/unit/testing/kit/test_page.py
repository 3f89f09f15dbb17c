"""The command of the page about tests prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs/writing-connectors.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_tests_of_the_greeting_pass_as_the_page_shows() -> None:
    found = re.search(r"^\$ python -m (pytest .*)\n(.*)\n(\d+ passed)$", PAGE, re.M)
    assert found is not None

    ran = subprocess.run(
        [sys.executable, "-m", *found[1].split(), "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert found[2] in ran.stdout.splitlines()
    assert found[3] in ran.stdout
