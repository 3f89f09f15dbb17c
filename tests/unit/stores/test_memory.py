import pytest

from penstock.errors import OffsetStoreException
from penstock.stores.interface import OffsetStore
from penstock.stores.memory import MemoryOffsetStore


def test_it_is_an_offset_store() -> None:
    assert isinstance(MemoryOffsetStore(), OffsetStore)


def test_written_entries_are_read_and_none_removes() -> None:
    store = MemoryOffsetStore({b"a": b"0"})
    store.start()

    store.set({b"a": b"1", b"b": b"2"})
    store.set({b"b": None, b"never": None})

    assert store.get([b"a", b"b"]) == {b"a": b"1", b"b": None}
    assert store.entries() == {b"a": b"1"}


def test_a_stopped_store_refuses_and_keeps_its_entries() -> None:
    store = MemoryOffsetStore()
    store.start()
    store.set({b"a": b"1"})
    store.stop()

    with pytest.raises(OffsetStoreException, match="not started"):
        store.get([b"a"])
    with pytest.raises(OffsetStoreException, match="not started"):
        store.set({})
    store.start()
    assert store.entries() == {b"a": b"1"}
