"""The bytes of a JSON message as Jackson reads them: put into plain UTF-8, or refused, in front of any parser.

Jackson takes UTF-8, UTF-16 and UTF-32, with a byte order mark or without, finds out by itself which, and is lenient
with some UTF-8; it refuses names of more than 50,000 bytes (in UTF-8) or characters, and numbers of more than 1,000
digits. All parsers here take UTF-8 only and have other limits. Nearly all messages are told to be plain by a look at
the bytes of a whole column; the others are put right one at a time.

Main functions: ``plain_json`` (one message) and ``plain_column`` (many of them). Thread: any; pure functions.
Source: com.fasterxml.jackson.core 2.21: json.ByteSourceJsonBootstrapper, json.UTF8StreamJsonParser, io.UTF32Reader,
StreamReadConstraints.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.pipeline.columns.text_bounds import bytes_of, places_of

MAX_NAME_LENGTH: Final = 50_000
MAX_NUMBER_LENGTH: Final = 1_000

#: What stands for bytes that are no text: no JSON may hold it, so that whoever reads as far fails there.
_NO_TEXT: Final = "\x00"
#: The first bytes of a byte order mark.
_MARKS: Final = (0xEF, 0xFE, 0xFF)
_LONE: Final = re.compile("[\ud800-\udfff]")
_QUOTE, _BACKSLASH = 0x22, 0x5C
#: A string, or a number with its whole part, fraction and exponent.
_TOKEN: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"([ \t\r\n]*:)?|(\d+)(?:\.(\d+))?(?:[eE][+-]?(\d+))?', re.DOTALL)
#: For each byte whether numbers have it, as a digit.
_LOOKS: Final = bytes(0x31 if byte in b"0123456789.eE+-" else 0x30 for byte in range(256))
_IN_NUMBERS: Final = np.frombuffer(_LOOKS, np.uint8) == 0x31
_IS_8_TO_F: Final = np.frombuffer(bytes(byte in b"89abcdefABCDEF" for byte in range(256)), bool)
_IS_C_TO_F: Final = np.frombuffer(bytes(byte in b"cdefCDEF" for byte in range(256)), bool)
#: A number that is too long covers at least so many of the bytes that are looked at.
_STEP: Final = 128
_COVERED: Final = MAX_NUMBER_LENGTH // _STEP


#: An escape: of a whole pair, of a half, or another one.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_ANY_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class UnreadableBytesError(ValueError):
    """Bytes that Jackson does not read."""


# ------------------------------------------------------------------------------------------------------- one message
def plain_json(data: bytes) -> bytes:
    """A message in UTF-8 without a byte order mark; the same one if it is that already.

    >>> plain_json(b'{"a":1}'), plain_json(b'\\xff\\xfe7\\x00'), plain_json(b'\\xef\\xbb\\xbf[1]')
    (b'{"a":1}', b'7', b'[1]')

    Raises:
        UnreadableBytesError: The bytes are in no encoding that JSON may have, or a name or number is too long.
    """
    if not data:
        return data
    encoding, plain = "utf-8", data
    if data[0] in _MARKS or b"\0" in data or not _is_utf8(data):
        start, encoding = _encoding_of(data)
        plain = _encoded(_text_of(data[start:], encoding))
    if _may_be_refused(plain):
        # Jackson has a parser of its own for UTF-8, which counts bytes.
        _ensure_taken(plain.decode(), "utf-8" if encoding == "utf-8" else "utf-16-le")
    return plain


def _may_be_refused(data: bytes) -> bool:
    if len(data) > MAX_NUMBER_LENGTH and (_may_have_long_number(data) or _may_have_long_name(data)):
        return True
    return b"\\u" in data and _ANY_HALF.search(data) is not None


def _may_have_long_number(data: bytes) -> bool:
    return b"1" * _COVERED in data[::_STEP].translate(_LOOKS)


def _may_have_long_name(data: bytes) -> bool:
    if len(data) <= MAX_NAME_LENGTH:
        return False
    return max(map(len, data.replace(b'\\"', b"__").split(b'"'))) > MAX_NAME_LENGTH


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _encoded(text: str) -> bytes:
    """Text as UTF-8; two halves of a surrogate pair become one character, a lone one an escape."""
    if _LONE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        text = _LONE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    return text.encode()


def _text_of(data: bytes, encoding: str) -> str:
    match encoding:
        case "utf-8":
            return data.decode() if _is_utf8(data) else _lenient_utf8(data)
        case "utf-32-be" | "utf-32-le":
            return _utf32(data, encoding)
        case _:
            return codecs.decode(data, encoding, "penstock.java_utf16")


def _encoding_of(data: bytes) -> tuple[int, str]:
    """The length of the byte order mark, and the encoding.

    Raises:
        UnreadableBytesError: Its bytes are in an order that no parser takes.
    """
    if len(data) >= 4:
        first = data[:4]
        if first in _UNUSUAL_MARKS:
            raise _unusual_order()
        for mark, encoding in _ENCODINGS.items():
            if first.startswith(mark):
                return len(mark), encoding
        zeros = tuple(byte == 0 for byte in first)
        if zeros[:3] == (True, True, True):
            return 0, "utf-32-be"
        if zeros[1:] == (True, True, True):
            return 0, "utf-32-le"
        if zeros.count(True) == 3:
            raise _unusual_order()
    if len(data) >= 2:
        if data[0] == 0:
            return 0, "utf-16-be"
        if data[1] == 0:
            return 0, "utf-16-le"
    return 0, "utf-8"


_ENCODINGS: Final[Mapping[bytes, str]] = {
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF8: "utf-8",
}
_UNUSUAL_MARKS: Final = (b"\x00\x00\xff\xfe", b"\xfe\xff\x00\x00")


def _unusual_order() -> UnreadableBytesError:
    return UnreadableBytesError("its bytes are UTF-32 in an order that is neither big-endian nor little-endian")


def _java_utf16(error: UnicodeError) -> tuple[str, int]:
    """Goes on behind what is no UTF-16 as Java does: behind both units where the second one is no half of a pair."""
    assert isinstance(error, UnicodeDecodeError)
    unit = error.object[error.start : error.start + 2]
    high = unit[0 if error.encoding.endswith("be") else -1] & 0xFC == 0xD8 if len(unit) == 2 else False
    return "\ufffd", min(error.start + (4 if high else 2), len(error.object))


codecs.register_error("penstock.java_utf16", _java_utf16)


def _utf32(data: bytes, encoding: str) -> str:
    """Text of which halves of surrogate pairs are as they are; what is no character ends it."""
    whole = len(data) // 4 * 4
    codes = np.frombuffer(data[:whole], ">u4" if encoding.endswith("be") else "<u4")
    wrong = np.flatnonzero(codes > 0x10FFFF)
    end = int(wrong[0]) if len(wrong) else len(codes)
    text = "".join(map(chr, codes[:end].tolist()))
    return text if end == len(codes) and whole == len(data) else text + _NO_TEXT


def _lenient_utf8(data: bytes) -> str:
    """Text of bytes of which some are no UTF-8: longer forms than needed are read, as part of a string."""
    found: list[str] = []
    at = 0
    while at < len(data):
        first = data[at]
        length = 1 if first < 0x80 else 2 if first & 0xE0 == 0xC0 else 3 if first & 0xF0 == 0xE0 else 4
        rest = data[at + 1 : at + length]
        bad = length == 4 and first & 0xF8 != 0xF0
        if bad or len(rest) < length - 1 or any(byte & 0xC0 != 0x80 for byte in rest):
            return "".join([*found, _NO_TEXT])
        code = first if length == 1 else first & (0x7F >> length)
        for byte in rest:
            code = code << 6 | byte & 0x3F
        if length == 3 and 0xD800 <= code < 0xE000:
            return "".join([*found, _NO_TEXT])
        if length in (2, 3) and code < 0x80:
            found.append(f"\\u{code:04x}")  # a mark or a quote may not be written so
        else:
            found.append(_utf16_units(code) if length == 4 else chr(code))
        at += length
    return "".join(found)


def _utf16_units(code: int) -> str:
    """A character of four bytes, which may be beyond all characters, as Java makes two of it."""
    beyond = code - 0x10000 & 0xFFFFFFFF
    return chr(0xD800 | beyond >> 10 & 0xFFFF) + chr(0xDC00 | beyond & 0x3FF)


def _ensure_taken(text: str, encoding: str) -> None:
    """Looks at all names and numbers.

    Args:
        text: The message.
        encoding: In which names are measured, by its units.

    Raises:
        UnreadableBytesError: One is too long, or a name cannot be in this encoding.
    """
    for found in _TOKEN.finditer(text):
        name, colon, whole, fraction, exponent = found.groups()
        if whole is not None:
            digits = len(whole.lstrip("0") or "0") + len(fraction or "") + len(exponent or "")
            if digits > MAX_NUMBER_LENGTH:
                raise UnreadableBytesError(f"a number has {digits} digits, and {MAX_NUMBER_LENGTH} are allowed")
        elif not colon:
            continue
        elif encoding == "utf-8" and any(half[1] for half in _ESCAPE.finditer(name.encode())):
            raise UnreadableBytesError("a name has half of a surrogate pair")
        elif (length := _length(name, encoding)) > MAX_NAME_LENGTH:
            units = "bytes" if encoding == "utf-8" else "characters"
            raise UnreadableBytesError(f"a name has {length} {units}, and {MAX_NAME_LENGTH} are allowed")


def _length(name: str, encoding: str) -> int:
    """The units of a name; 0 for what is no string."""
    if 3 * len(name) <= MAX_NAME_LENGTH:
        return len(name)
    try:
        length = len(json.loads(f'"{name}"').encode(encoding, "surrogatepass"))
    except ValueError:
        return 0
    return length if encoding == "utf-8" else length // 2


# --------------------------------------------------------------------------------------------------------- a column
@dataclass(frozen=True)
class Plain:
    """Messages in plain UTF-8.

    Attributes:
        column: They, with null in place of those that are refused.
        refused: By reason the rows that are refused.
        changed: Whether some of them hold half of a surrogate pair, which columns cannot: it is ``?`` in them.
    """

    column: pa.ChunkedArray
    refused: Mapping[str, list[int]] = field(default_factory=dict)
    changed: bool = False


def plain_column(column: pa.ChunkedArray) -> Plain:
    """The messages of a column, as they are read where there are columns."""
    odd: list[int] = []
    start = 0
    for chunk in column.chunks:
        odd += [start + row for row in _odd_rows(chunk)]
        start += len(chunk)
    found: dict[int, bytes | None] = {}
    refused: dict[str, list[int]] = {}
    changed = False
    for row in odd:
        message = column[row].as_py()
        try:
            plain = plain_json(message)
        except UnreadableBytesError as error:
            refused.setdefault(str(error), []).append(row)
            found[row] = None
            continue
        marked = _ESCAPE.sub(_whole_or_mark, plain)
        changed = changed or marked != plain
        if marked != message:
            found[row] = marked
    if not found:
        return Plain(column)
    order = np.arange(len(column))
    order[list(found)] = len(column) + np.arange(len(found))
    rewritten = pa.array(found.values(), column.type)
    return Plain(pa.chunked_array([*column.chunks, rewritten]).take(pa.array(order)), refused, changed)


def _whole_or_mark(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else b"?"


def _odd_rows(chunk: pa.BinaryArray) -> list[int]:
    """The rows that may not be plain; few of others are among them."""
    if not len(chunk):
        return []
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = bytes_of(chunk)
    if not len(data):
        return []
    bounds = offsets.astype(np.int64) - offsets[0]
    odd = np.zeros(len(chunk), dtype=bool)
    if data.min() == 0:
        odd[_rows_of(places_of(data, 0), bounds)] = True
    if data.max() >= 0x80:
        there = bounds[:-1] < bounds[1:]
        odd[np.flatnonzero(there)[np.isin(data[bounds[:-1][there]], _MARKS)]] = True
        odd |= _are_not_utf8(chunk)
    odd[_rows_of(_places_of_halves(data), bounds)] = True
    longest = int(np.diff(bounds).max())
    if longest > MAX_NUMBER_LENGTH:
        odd[_rows_of(_places_in_long_numbers(data), bounds)] = True
    if longest > MAX_NAME_LENGTH:
        odd[_rows_of(_places_in_long_strings(data), bounds)] = True
    if chunk.null_count:
        odd &= chunk.is_valid().to_numpy(zero_copy_only=False)
    rows: list[int] = np.flatnonzero(odd).tolist()
    return rows


def _rows_of(places: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return np.unique(np.searchsorted(bounds, places, side="right") - 1)


def _are_not_utf8(chunk: pa.BinaryArray) -> np.ndarray:
    try:
        chunk.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([one is not None and not _is_utf8(one) for one in chunk.to_pylist()])
    return np.zeros(len(chunk), dtype=bool)


def _places_of_halves(data: np.ndarray) -> np.ndarray:
    """Where escapes may be half of a surrogate pair; a whole pair behind a backslash counts as well."""
    places = places_of(data, _BACKSLASH)
    if not len(places):
        return places
    # What is behind the end of the data is no part of an escape.
    ahead = np.append(data, np.zeros(12, np.uint8)) if places[-1] + 12 >= len(data) else data
    surrogates = (ahead[places + 1] == ord("u")) & ((ahead[places + 2] | 0x20) == ord("d"))
    places = places[surrogates & _IS_8_TO_F[ahead[places + 3]]]
    low = _IS_C_TO_F[ahead[places + 3]]
    paired = np.zeros(len(places), dtype=bool)
    both = ~low[:-1] & low[1:] & (np.diff(places) == 6)
    paired[:-1] |= both
    paired[1:] |= both
    suspect: np.ndarray = places[~paired | ((places > 0) & (data[places - 1] == _BACKSLASH))]
    return suspect


def _places_in_long_numbers(data: np.ndarray) -> np.ndarray:
    """Places of which all of a row of them, a step apart, are of characters that numbers have."""
    looked_at = _IN_NUMBERS[data[::_STEP]]
    sums = np.cumsum(np.concatenate([[0], looked_at]))
    firsts = np.flatnonzero(sums[_COVERED:] - sums[:-_COVERED] == _COVERED)
    # A number that is too long lies on all of these, and on a message of its own at the last.
    return (firsts + _COVERED - 1) * _STEP


def _places_in_long_strings(data: np.ndarray) -> np.ndarray:
    """Ends of strings, or of what is between two, that are longer than a name may be."""
    quotes = places_of(data, _QUOTE)
    quotes = quotes[(quotes == 0) | (data[quotes - 1] != _BACKSLASH)]
    ends: np.ndarray = quotes[1:][np.diff(quotes) > MAX_NAME_LENGTH]
    return ends
