"""The example of a source of many things."""

from __future__ import annotations

from pathlib import Path

from examples.logs_source import LogsSource
from tests.shares import QUICK

from penstock.testing import FrameSuite, SourceSuite, run_source


class TestLogs(FrameSuite, SourceSuite):
    connector = LogsSource
    count = 5
    most_kills = 5 if QUICK else 16

    def prepare(self, path: Path) -> dict[str, str]:
        self.path = path
        (path / "a.csv").write_text("text\none\ntwo\nthree\n")
        (path / "b.csv").write_text("text\nfour\nfive\n")
        return {"folder": str(path), "topic": "logs"}

    def change(self) -> int:
        (self.path / "b.csv").write_text("text,number\nfour,4\nfive,5\nsix,6\n")
        return 1


def test_a_file_that_comes_while_it_runs_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\n")
    with run_source(LogsSource, {"folder": str(tmp_path), "topic": "logs"}) as source:
        source.poll()
        source.commit()
        (tmp_path / "b.csv").write_text("text\ntwo\n")
        source.finish(2)

    assert [one.value.get("text") for one in source.committed] == ["one", "two"]  # type: ignore[attr-defined]
    assert [source.offset({"file": name}) for name in ("a.csv", "b.csv")] == [{"rows": 1}, {"rows": 1}]
