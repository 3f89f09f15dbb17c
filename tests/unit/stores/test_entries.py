"""Keys that are equal as JSON are one key, in the spelling that is stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.stores import offsets as module
from penstock.stores.offsets import OffsetEntries, key_identity

TABLE_FIRST = b'["c",{"table":"t1","db":"x"}]'
DB_FIRST = b'["c",{"db":"x","table":"t1"}]'
OTHER = b'["c",{"db":"x","table":"t2"}]'


def written(entries: OffsetEntries, changes: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    """What is stored after a write."""
    exact = entries.changes(changes)
    after = entries.after(exact)
    entries.apply(exact)
    assert entries.copy() == after
    return after


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (TABLE_FIRST, DB_FIRST, True),
        (b'["c",{"t":"\\u00e9"}]', '["c",{"t":"é"}]'.encode(), True),
        (b'["c", {"n": 1.0E10}]', b'["c",{"n":10000000000.0}]', True),
        (b'["c",{"n":1}]', b'["c",{"n":1.0}]', False),
        (b'["c",{"n":1}]', b'["c",{"n":true}]', False),
        (b'["c",{"n":1}]', b'["c",{"n":"1"}]', False),
        (b'["c",{"n":null}]', b'["c",{}]', False),
        (b'["c",{"a":1,"b":2}]', b'["d",{"b":2,"a":1}]', False),
        (b'["c",{"t":"\\ud800"}]', b'["c",{"t":"\\ud801"}]', False),
        (b"[" * 400 + b"]" * 400, b"[" * 401 + b"]" * 401, False),
    ],
)
def test_keys_are_equal_as_json_and_not_as_text(one: bytes, other: bytes, equal: bool) -> None:
    assert (key_identity(one) == key_identity(other)) is equal


@pytest.mark.parametrize(("stored", "now"), [(TABLE_FIRST, DB_FIRST), (DB_FIRST, TABLE_FIRST)])
def test_a_key_keeps_the_spelling_in_which_java_stored_it(stored: bytes, now: bytes) -> None:
    entries = OffsetEntries({OTHER: b"1", stored: b"5"})
    assert entries.get(now) == b"5"
    assert written(entries, {now: b"9"}) == {OTHER: b"1", stored: b"9"}
    assert entries.get(now) == entries.get(stored) == b"9"


@pytest.mark.parametrize(("stored", "now"), [(TABLE_FIRST, DB_FIRST), (DB_FIRST, TABLE_FIRST)])
def test_a_key_is_removed_in_any_spelling_and_then_new_again(stored: bytes, now: bytes) -> None:
    entries = OffsetEntries({stored: b"5"})
    assert written(entries, {now: None}) == {}
    assert entries.get(stored) is None
    assert written(entries, {now: b"1"}) == {now: b"1"}
    assert written(entries, {stored: b"2"}) == {now: b"2"}


@pytest.mark.parametrize("first", [TABLE_FIRST, DB_FIRST])
@pytest.mark.parametrize("now", [TABLE_FIRST, DB_FIRST, b'["c", {"db": "x", "table": "t1"}]'])
def test_several_spellings_in_a_file_become_the_first_one_when_the_key_is_written(first: bytes, now: bytes) -> None:
    second = DB_FIRST if first == TABLE_FIRST else TABLE_FIRST
    entries = OffsetEntries({first: b"5", OTHER: b"1", second: b"9"})
    assert entries.several() == [(first, second)]
    assert [entries.get(key) for key in (first, second, b'["c", {"table":"t1","db":"x"}]')] == [b"5", b"9", b"9"]
    assert written(entries, {now: b"10"}) == {first: b"10", OTHER: b"1"}
    assert entries.several() == []
    assert entries.get(second) == b"10"


def test_several_spellings_are_removed_together() -> None:
    entries = OffsetEntries({TABLE_FIRST: b"5", DB_FIRST: b"9", OTHER: b"1"})
    assert written(entries, {DB_FIRST: None}) == {OTHER: b"1"}


def test_of_equal_keys_in_one_write_the_last_one_counts() -> None:
    assert written(OffsetEntries(), {TABLE_FIRST: b"1", DB_FIRST: b"2"}) == {TABLE_FIRST: b"2"}
    assert written(OffsetEntries({DB_FIRST: b"0"}), {TABLE_FIRST: b"1", DB_FIRST: None}) == {}


def test_a_write_looks_at_its_own_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = OffsetEntries({b'["c",{"table":"t%d","db":"x"}]' % number: b"0" for number in range(1000)})
    looked_at: list[bytes] = []

    def noted(key: bytes) -> bytes:
        looked_at.append(key)
        return key_identity(key)

    monkeypatch.setattr(module, "key_identity", noted)
    exact = entries.changes({b'["c",{"db":"x","table":"t7"}]': b"1", b'["c",{"db":"x","table":"new"}]': b"1"})
    entries.apply(exact)
    assert entries.get(b'["c",{"table":"t7","db":"x"}]') == b"1"
    assert len(looked_at) <= 4


SPELLINGS = st.sampled_from(
    [TABLE_FIRST, DB_FIRST, b'["c",{"a":1,"b":1}]', b'["c",{"b":1,"a":1}]', b'["c", {"b":1,"a":1}]', b"x", OTHER]
)


@examples(40)
@given(st.lists(st.dictionaries(SPELLINGS, st.none() | st.sampled_from([b"1", b"2", b"3"]), max_size=4), max_size=8))
def test_it_is_a_map_by_identity_whatever_is_written(writes: list[dict[bytes, bytes | None]]) -> None:
    entries = OffsetEntries()
    expected: dict[bytes, bytes | None] = {}
    for write in writes:
        stored = written(entries, write)
        expected.update({key_identity(key): value for key, value in write.items()})
        assert {key_identity(key): value for key, value in stored.items()} == {
            key: value for key, value in expected.items() if value is not None
        }
        assert all(entries.get(key) == expected.get(key_identity(key)) for key in [TABLE_FIRST, DB_FIRST, b"x", OTHER])
        assert len(stored) == len({key_identity(key) for key in stored})
