"""Converts the bytes of JSON messages to plain UTF-8 as Jackson reads them, or rejects them, before any parser.

Jackson accepts UTF-8, UTF-16 and UTF-32, with or without a byte order mark, detects the encoding, and tolerates some
invalid UTF-8; it rejects names of more than 50,000 bytes (in UTF-8) or characters, and numbers of more than 1,000
digits. The parsers here accept only UTF-8 and have other limits. This module needs no NumPy, because the REST server
reads bodies with it before the libraries of columns are loaded; ``byte_columns`` does the same for a column.

Source: com.fasterxml.jackson.core 2.21: json.ByteSourceJsonBootstrapper, json.UTF8StreamJsonParser, io.UTF32Reader,
StreamReadConstraints.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from struct import unpack_from
from typing import Final

MAX_NAME_LENGTH: Final = 50_000
MAX_NUMBER_LENGTH: Final = 1_000

#: Replaces undecodable bytes: JSON may not contain it, so a parser that reads this far fails there.
_NO_TEXT: Final = "\x00"
#: The first bytes of a byte order mark.
MARKS: Final = (0xEF, 0xFE, 0xFF)
_LONE: Final = re.compile("[\ud800-\udfff]")
#: A string, or a number with its whole part, fraction and exponent.
_TOKEN: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"([ \t\r\n]*:)?|(\d+)(?:\.(\d+))?(?:[eE][+-]?(\d+))?', re.DOTALL)
#: For each byte, whether it occurs in numbers as a digit.
LIKE_NUMBERS: Final = bytes(0x31 if byte in b"0123456789.eE+-" else 0x30 for byte in range(256))
#: A number that is too long covers at least this many of the sampled bytes.
STEP: Final = 128
COVERED: Final = MAX_NUMBER_LENGTH // STEP
#: An escape: a whole pair, half of a pair, or another one.
ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_ANY_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class UnreadableBytesError(ValueError):
    """Bytes that Jackson cannot read."""


def plain_json(data: bytes) -> bytes:
    """A message in UTF-8 without a byte order mark; unchanged if it already is.

    >>> plain_json(b'{"a":1}'), plain_json(b'\\xff\\xfe7\\x00'), plain_json(b'\\xef\\xbb\\xbf[1]')
    (b'{"a":1}', b'7', b'[1]')

    Raises:
        UnreadableBytesError: The bytes are in no encoding that JSON may have, or a name or number is too long.
    """
    if not data:
        return data
    encoding, plain = "utf-8", data
    if data[0] in MARKS or b"\0" in data or not is_utf8(data):
        start, encoding = _encoding_of(data)
        plain = _encoded(_text_of(data[start:], encoding))
    if _may_be_refused(plain):
        # Jackson's separate parser for UTF-8 counts bytes.
        _ensure_taken(plain.decode(), "utf-8" if encoding == "utf-8" else "utf-16-le")
    return plain


def _may_be_refused(data: bytes) -> bool:
    if len(data) > MAX_NUMBER_LENGTH and b"1" * COVERED in data[::STEP].translate(LIKE_NUMBERS):
        return True
    if len(data) > MAX_NAME_LENGTH and max(map(len, data.replace(b'\\"', b"__").split(b'"'))) > MAX_NAME_LENGTH:
        return True
    return b"\\u" in data and _ANY_HALF.search(data) is not None


def is_utf8(data: bytes) -> bool:
    """True if bytes are UTF-8."""
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
            return data.decode() if is_utf8(data) else _lenient_utf8(data)
        case "utf-32-be" | "utf-32-le":
            return _utf32(data, encoding)
        case _:
            return codecs.decode(data, encoding, "penstock.java_utf16")


def _encoding_of(data: bytes) -> tuple[int, str]:
    """The length of the byte order mark, and the encoding.

    Raises:
        UnreadableBytesError: The byte order is not supported by any parser.
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
    """Continues after invalid UTF-16 as Java does: after both units if the second is not half of a pair."""
    assert isinstance(error, UnicodeDecodeError)
    unit = error.object[error.start : error.start + 2]
    high = unit[0 if error.encoding.endswith("be") else -1] & 0xFC == 0xD8 if len(unit) == 2 else False
    return "\ufffd", min(error.start + (4 if high else 2), len(error.object))


codecs.register_error("penstock.java_utf16", _java_utf16)


def _utf32(data: bytes, encoding: str) -> str:
    """Text in which halves of surrogate pairs stay as they are; an invalid character ends it."""
    codes = unpack_from(f"{'>' if encoding.endswith('be') else '<'}{len(data) // 4}I", data)
    end = next((place for place, code in enumerate(codes) if code > 0x10FFFF), len(codes))
    text = "".join(map(chr, codes[:end]))
    return text if end * 4 == len(data) else text + _NO_TEXT


def _lenient_utf8(data: bytes) -> str:
    """Text of partly invalid UTF-8: overlong forms are read, as parts of strings."""
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
            found.append(f"\\u{code:04x}")  # A mark or a quote may not be overlong.
        else:
            found.append(_utf16_units(code) if length == 4 else chr(code))
        at += length
    return "".join(found)


def _utf16_units(code: int) -> str:
    """A character of four bytes, possibly beyond Unicode, as Java's two UTF-16 units."""
    beyond = code - 0x10000 & 0xFFFFFFFF
    return chr(0xD800 | beyond >> 10 & 0xFFFF) + chr(0xDC00 | beyond & 0x3FF)


def _ensure_taken(text: str, encoding: str) -> None:
    """Checks all names, measured in units of an encoding, and numbers.

    Raises:
        UnreadableBytesError: A name or number is too long, or a name cannot be encoded.
    """
    for found in _TOKEN.finditer(text):
        name, colon, whole, fraction, exponent = found.groups()
        if whole is not None:
            digits = len(whole.lstrip("0") or "0") + len(fraction or "") + len(exponent or "")
            if digits > MAX_NUMBER_LENGTH:
                raise UnreadableBytesError(f"a number has {digits} digits, and {MAX_NUMBER_LENGTH} are allowed")
        elif not colon:
            continue
        elif encoding == "utf-8" and any(half[1] for half in ESCAPE.finditer(name.encode())):
            raise UnreadableBytesError("a name has half of a surrogate pair")
        elif (length := _length(name, encoding)) > MAX_NAME_LENGTH:
            units = "bytes" if encoding == "utf-8" else "characters"
            raise UnreadableBytesError(f"a name has {length} {units}, and {MAX_NAME_LENGTH} are allowed")


def _length(name: str, encoding: str) -> int:
    """The length of a name in units; 0 if the text is not a string."""
    if 3 * len(name) <= MAX_NAME_LENGTH:
        return len(name)
    try:
        length = len(json.loads(f'"{name}"').encode(encoding, "surrogatepass"))
    except ValueError:
        return 0
    return length if encoding == "utf-8" else length // 2
