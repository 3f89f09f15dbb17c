"""Arrow's allocator in a worker."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.pipeline.spark.jvm import CHOICE, choose_memory_pool


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


#: Prints how many blocks of 1 MB have pages of their own when one is taken after another was given back.
TAKE_TWO = """
import ctypes
from penstock.pipeline.spark.jvm import choose_memory_pool

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.mallinfo2.restype = ctypes.c_void_p, [ctypes.c_void_p], Info
choose_memory_pool()
libc.free(libc.malloc(1 << 20))
before = libc.mallinfo2().hblks
libc.malloc(1 << 20)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.parametrize(
    ("environment", "own"),
    [({}, "1"), ({"MALLOC_ARENA_MAX": "8"}, "0"), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"}, "0")],
)
def test_large_blocks_are_given_back_unless_the_environment_speaks_of_malloc(
    environment: dict[str, str], own: str
) -> None:
    if platform.libc_ver()[0] != "glibc":
        return
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}

    made = subprocess.run(
        [sys.executable, "-c", TAKE_TWO], env=kept | environment, capture_output=True, text=True, check=True
    )

    assert made.stdout.strip() == own
