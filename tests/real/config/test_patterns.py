"""Random patterns, against the engine of the Java that is here."""

from __future__ import annotations

import pytest
from differential.patterns import main

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_pattern_answers_otherwise_than_in_java(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "3000", "--seed", str(seed)]) == 0, capsys.readouterr().out
