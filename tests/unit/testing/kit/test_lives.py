"""The kit makes calls again as a worker does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from penstock.api import Chunk, PartitionedSource
from penstock.errors import ConnectException, RetriableException
from penstock.testing import run_source


class Away(PartitionedSource):
    """A source that cannot be reached at first."""

    errors: ClassVar[list[Exception]] = []

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        if self.errors:
            raise self.errors.pop(0)
        return [{"feed": "a"}]

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        if offset is None:
            yield Chunk(["x"], "t", {"next": 1})


def test_the_start_of_a_connector_is_tried_again() -> None:
    Away.errors = [RetriableException("the feed is away"), RetriableException("still away")]
    with run_source(Away, {}) as run:
        assert [record.value for record in run.poll()] == ["x"]
    assert run.retries == ["the feed is away", "still away"]


def test_another_error_of_its_start_ends_the_run() -> None:
    Away.errors = [RetriableException("the feed is away"), ConnectException("there is no such feed")]
    with pytest.raises(ConnectException, match="no such feed"), run_source(Away, {}) as run:
        run.poll()
