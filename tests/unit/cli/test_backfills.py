"""What ``penstock connectors backfill --wait`` shows until a backfill ends."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.cli import connectors as module

PATH = ["connectors", "days", "backfill"]


class Session:
    """A worker's answers, one after the other."""

    def __init__(self, *answers: tuple[str, int, int | None], json: bool = False) -> None:
        self.api, self.json = self, json
        self.answers = [{"state": state, "records": records, "total": total} for state, records, total in answers]

    def call(self, method: str, path: Sequence[str]) -> Mapping[str, Any]:
        assert (method, path) == ("GET", PATH)
        return self.answers.pop(0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)


RUNNING = {"state": "RUNNING", "records": 0, "total": 9}
ANSWERS = (("RUNNING", 3, 9), ("RUNNING", 3, 9), ("RUNNING", 6, None), ("COMPLETED", 9, 9))


@pytest.mark.parametrize("json", [False, True])
def test_without_a_terminal_each_change_is_a_line(capsys: pytest.CaptureFixture[str], json: bool) -> None:
    session: Any = Session(*ANSWERS, json=json)
    assert module._awaited(session, PATH, RUNNING)["state"] == "COMPLETED"
    assert capsys.readouterr().out == ("" if json else "3 of 9 (33%) records\n6 records\n")


def test_on_a_terminal_there_is_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    session: Any = Session(*ANSWERS)
    assert module._awaited(session, PATH, RUNNING)["records"] == 9
    assert capsys.readouterr().out == ""
    assert "Backfill of days" in terminal.getvalue()
