"""The HTTP source of the documentation, against a web server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from examples.items_source import ItemsSource
from tests.shares import QUICK
from tests.unit.connectors.http.web import Reply, Request, serving

from penstock.api import BackfillSpan
from penstock.testing import FrameSuite, SourceSuite, run_backfill, run_source


class TestItems(FrameSuite, SourceSuite):
    connector = ItemsSource
    count = 8
    most_kills = 5 if QUICK else 16
    tasks_max = 1
    wrong = {"poll.ms": "0"}

    @pytest.fixture(autouse=True)
    def _serving(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        self.refused = 0
        with serving(self.answer) as self.web:
            yield

    def answer(self, request: Request) -> Reply:
        if self.refused:
            self.refused -= 1
            return Reply(b"later", 429, {"retry-after": "0"})
        assert request.headers["authorization"] == "Bearer secret"
        after = int(parse_qs(urlsplit(request.path).query)["after"][0])
        return Reply([{"id": number, "name": f"n{number}"} for number in range(after + 1, min(after + 4, 9))])

    def prepare(self, path: Path) -> dict[str, str]:
        return {"url": f"{self.web.url}/items", "topic": "t", "token": "secret"}

    def test_a_service_that_wants_fewer_requests_is_asked_again(self, tmp_path: Path) -> None:
        self.refused = 2
        with run_source(ItemsSource, self.prepare(tmp_path)) as source:
            source.finish(8)

        assert [one.value for one in source.committed][-1] == {"id": 8, "name": "n8"}
        assert [one.key for one in source.committed][-1] == {"id": 8}
        assert len(source.retries) == 2
        assert "answers 429" in source.retries[0]

    @pytest.mark.parametrize("again", [False, True])
    def test_a_range_of_ids_is_read_once_more(self, tmp_path: Path, again: bool) -> None:
        run = run_backfill(ItemsSource, self.prepare(tmp_path), BackfillSpan(first="2", end=6), again=again)

        assert [one["id"] for one in run.values] == [2, 3, 4, 5]
        assert run.parts[0].reads == {"from": 2, "to": 6}
