"""Arrow's allocator in a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.pipeline.memory_pool import CHOICE, choose_memory_pool


@pytest.fixture(autouse=True)
def the_pool_stays() -> Iterator[None]:
    before = pa.default_memory_pool()
    yield
    pa.set_memory_pool(before)


def test_jemalloc_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOICE, raising=False)
    expected = "jemalloc" if "jemalloc" in pa.supported_memory_backends() else pa.default_memory_pool().backend_name

    assert choose_memory_pool() == expected
    assert pa.default_memory_pool().backend_name == expected


def test_what_the_environment_says_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "system")
    before = pa.default_memory_pool().backend_name

    assert choose_memory_pool() == before


def test_an_arrow_without_jemalloc_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOICE, raising=False)
    monkeypatch.setattr(pa, "supported_memory_backends", lambda: ["system"])
    before = pa.default_memory_pool().backend_name

    assert choose_memory_pool() == before
