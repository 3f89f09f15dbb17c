"""Bytes are found wherever they stand among those of a batch, which is looked at block by block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.columns import sizes as text_bounds
from penstock.pipeline.columns.sizes import bytes_of, has_byte, offsets_of, places_below, places_of

DATA = np.frombuffer(b'a"[{\\b"\x01c[d{"' * 3, np.uint8)


@pytest.fixture(autouse=True, params=[1, 4, 5, 1 << 18])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_bounds, "_BLOCK", request.param)


@pytest.mark.parametrize("byte", b'"[\\z\x01')
def test_places_are_those_of_the_byte_and_no_others(byte: int) -> None:
    assert places_of(DATA, byte).tolist() == [place for place, one in enumerate(DATA.tolist()) if one == byte]
    assert has_byte(DATA, byte) == (byte in DATA.tolist())


def test_only_bits_of_the_mask_are_compared() -> None:
    expected = [place for place, one in enumerate(DATA.tolist()) if one in b"[{"]

    assert places_of(DATA, ord("["), mask=0xDF).tolist() == expected


def test_smaller_bytes_are_found() -> None:
    assert places_below(DATA, 0x20).tolist() == [7, 20, 33]
    assert places_below(DATA[:7], 0x20).tolist() == []


def test_of_nothing_there_are_no_places() -> None:
    nothing = np.empty(0, np.uint8)

    assert places_of(nothing, 1).tolist() == []
    assert not has_byte(nothing, 0)
    assert places_below(nothing, 0x20).tolist() == []


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_offsets_are_those_of_a_slice(kind: pa.DataType) -> None:
    part = pa.array(["one", None, "three", ""], kind).slice(1)

    assert (offsets_of(part) - offsets_of(part)[0]).tolist() == [0, 0, 5, 5]
    assert bytes(bytes_of(part)) == b"three"
