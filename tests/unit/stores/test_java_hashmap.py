import json
import random
from pathlib import Path

import pytest

from penstock.stores.offset_file import JavaFormatError, decode, encode

DATA = Path(__file__).parents[2] / "data" / "offsets"


def stored(name: str) -> bytes:
    return (DATA / f"{name}.offsets").read_bytes()


def test_the_file_of_a_java_worker_is_read() -> None:
    expected = [tuple(part.encode() for part in pair) for pair in json.loads(stored_json())]

    assert list(decode(stored("java-connect-4.3")).items()) == expected


def stored_json() -> str:
    return (DATA / "java-connect-4.3.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["java-connect-4.3", "java-empty", "java-hundred"])
def test_what_java_wrote_is_written_again_byte_for_byte(name: str) -> None:
    content = stored(name)

    assert encode(decode(content)) == content  # type: ignore[arg-type]


def test_one_entry_has_the_documented_layout() -> None:
    written = encode({b'["c-ref-sa",{"filename":"/x"}]': b'{"position":10}'})

    assert written.startswith(
        bytes.fromhex("aced00057372 0011") + b"java.util.HashMap" + bytes.fromhex("0507dac1c31660d1 03 0002 46 000a")
    )
    assert bytes.fromhex(
        "7870 3f400000 0000000c 77 08 00000010 00000001 7572 0002 5b42 acf317f8060854e0 02 0000 7870"
    ) in (written)
    assert written.endswith(bytes.fromhex("7571007e0002 0000000f") + b'{"position":10}' + b"\x78")


def test_an_array_written_once_and_referred_to_is_read_at_each_place_and_null_stays_null() -> None:
    assert decode(stored("java-shared-and-null")) == {b"a": b"same", b"b": b"same", b"c": None}


def test_capacity_doubles_when_three_quarters_are_used_as_in_java() -> None:
    def header(count: int) -> bytes:
        return encode({b"%d" % index: b"" for index in range(count)})

    assert bytes.fromhex("3f400000 0000000c 7708 00000010 0000000c") in header(12)
    assert bytes.fromhex("3f400000 00000018 7708 00000020 0000000d") in header(13)


def test_any_entries_survive_a_round_trip() -> None:
    numbers = random.Random(11)
    for count in (0, 1, 12, 13, 400):
        entries: dict[bytes, bytes | None] = {
            numbers.randbytes(numbers.randrange(60)) + b"%d" % index: (
                None if numbers.random() < 0.1 else numbers.randbytes(numbers.randrange(2000))
            )
            for index in range(count)
        }
        assert list(decode(encode(entries)).items()) == list(entries.items())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{}", "does not start as Java serialization"),
        (b"\xac\xed\x00\x05", "ends too early"),
        (stored("java-strings"), "a String where a byte array belongs"),
        (stored("java-treemap"), r"the class java\.util\.TreeMap"),
        (stored("java-hundred") + b"x", "data after the end"),
        (b"\xac\xed\x00\x05\x74\x00\x01a", "expected a java.util.HashMap, found a String"),
    ],
)
def test_anything_but_a_map_of_byte_arrays_is_refused_with_what_was_found(content: bytes, reason: str) -> None:
    with pytest.raises(JavaFormatError, match=reason):
        decode(content)


def test_a_file_cut_anywhere_is_refused() -> None:
    whole = stored("java-connect-4.3")

    for length in range(len(whole)):
        with pytest.raises(JavaFormatError):
            decode(whole[:length])


def test_a_file_with_a_flipped_byte_never_breaks_the_reader() -> None:
    whole = stored("java-shared-and-null")

    for position in range(len(whole)):
        for bit in (1, 16, 128):
            damaged = bytearray(whole)
            damaged[position] ^= bit
            try:
                found = decode(bytes(damaged))
            except JavaFormatError:
                continue
            assert all(isinstance(key, bytes | None) for key in found)
