"""Random patterns, against the engine of the Java that is here."""

from __future__ import annotations

import pytest
from differential.patterns import main

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_no_pattern_answers_otherwise_than_in_java(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "3000", "--seed", "1"]) == 0, capsys.readouterr().out
