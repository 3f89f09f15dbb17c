"""Asks Java what it makes of bytes that should be JSON: ``python -m differential.json_bytes --record FILE``.

A case is a text in an encoding, or bytes that are no text, read as a key, as a value, with and without a schema, and as
the body of a REST request. What Java answers is kept for the tests (``tests/data/json``), which ask Penstock.

Main functions: ``main``, ``cases``, ``data_of``. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from differential.java import java_answers

#: A text in pieces: each with how often it is repeated.
Pieces = Sequence[tuple[str, int]]

_ENCODINGS: Final = ("utf-8", "utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le")
#: Texts that are tried in every encoding.
_EVERYWHERE: Final[Sequence[Pieces]] = [
    [('{"a":"x","b":[1,2.50,null]}', 1)],
    [('{"a":"Grüße 日本 \U0001f600"}', 1)],
    [("7", 1)],
    [('"t"', 1)],
    [("", 1)],
    [(" ", 1)],
    [("  [1]  ", 1)],
    [("null", 1)],
    [('{"a":1', 1)],
]
#: Texts that are tried in UTF-8.
_TEXTS: Final[Sequence[Pieces]] = [
    # Names, numbers and strings as long as Jackson reads them, and one longer.
    *([('{"', 1), ("n", size), ('":1}', 1)] for size in (49_999, 50_000, 50_001, 60_000)),
    *([('{"', 1), ("é", size), ('":1}', 1)] for size in (25_000, 25_001, 50_001)),
    *([('{"a":{"b":[{"', 1), ("n", size), ('":1}]}}', 1)] for size in (50_000, 50_001)),
    *([('{"', 1), ("\\u006e", size), ('":1}', 1)] for size in (50_000, 50_001)),
    *([('{"', 1), ("\\t", size), ('" :1}', 1)] for size in (50_000, 50_001)),
    [('{"a":"', 1), ("n", 60_000), ('"}', 1)],
    *([("9", size)] for size in (999, 1_000, 1_001, 1_002)),
    *([("-", 1), ("9", size)] for size in (1_000, 1_001)),
    *([("0", size), ("1", 1)] for size in (999, 1_000, 1_500)),
    *([('{"a":', 1), ("9", size), ("}", 1)] for size in (1_000, 1_001)),
    *([("[1,", 1), ("9", size), ("]", 1)] for size in (1_000, 1_001)),
    *([("1.", 1), ("5", size)] for size in (998, 999, 1_000, 1_001)),
    *([("9", size), (".5", 1)] for size in (998, 999, 1_000)),
    *([("1.", 1), ("5", size), ("e3", 1)] for size in (995, 996, 997, 998, 999)),
    *([("9", size), ("e-3", 1)] for size in (996, 997, 998, 999, 1_000)),
    *([("-1.", 1), ("5", size)] for size in (998, 999, 1_000)),
    [('{"a":"', 1), ("9", 2_000), ('"}', 1)],
    [('{"a":[', 1), ("1,", 2_000), ("1]}", 1)],
    # What may stand behind a value, or not.
    *([(text, 1)] for text in ("1\0", "1 \0", "-1\0", "1.5\0", "1e2\0", "0\0", "true\0", "null\0", '"a"\0', "[1]\0")),
    *([(text, 1)] for text in ("1x", "1,", "1]", "1}", "1:", '1"', "1/", "1.5x", "1-", "0x1", "1.", "1e", "-", "+1")),
    *([(text, 1)] for text in ("truex", "true1", "true,", "nullx", "null\t", "true/", "1\x0b", "1\x01", "1\x1f2")),
    *([(text, 1)] for text in ('{"a":1} x', '{"a":1}}', "[1]]", '"a"b', '{"a":1}{"a":2}', "1 2", "1\n2", "[1],")),
    *([(text, 1)] for text in ('{"a":1\0}', '{"a\0":1}', '\0{"a":1}', "[1,\0 2]", "[1\0,2]", '{"a":"x\0"}')),
    # Half of a surrogate pair.
    *(
        [(text, 1)]
        for text in (
            '{"a":"\\ud800"}',
            '{"a":"\\udc00"}',
            '{"a":"x\\ud83dy"}',
            '{"a":"\\ud83d\\ude00"}',
            '{"a":"\\ude00\\ud83d"}',
            '{"a":"\\uD83D\\uDE00\\uD83D"}',
            '{"\\ud800":1}',
            '{"\\ud83d\\ude00":1}',
            '{"x\\uD83D\\uDE00y":1}',
            '{"\\udc00":1}',
            '{"\\ude00\\ud83d":1}',
            '{"\\ud800":"x","a":1}',
            '{"long enough a name \\ud800":1}',
            '{"\\\\ud800":1}',
            '{"\U0001f600":1}',
            '{"\\ud800":1,"\\ud801":2}',
            '"\\udfff"',
            '["\\ud800","ok"]',
            '{"a":"\\\\ud800"}',
            '{"a":"\\\\\\ud800"}',
        )
    ),
    # Numbers.
    *([(text, 1)] for text in ("01", "-01", "00", "-0", "-00", "-0.0", "0.0", "1.50", "1E5", "1e5", "1e400", "1e-400")),
    *([(text, 1)] for text in ("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 30)),
    *([(text, 1)] for text in ("NaN", "Infinity", "-Infinity", "[NaN]", ".5", "5.", "1.e3", "0.1e+05", "[01,-02.50]")),
    # Names, comments, quotes, control characters.
    *(
        [(text, 1)]
        for text in (
            '{"a":1,"a":2}',
            '{"a":{"x":1},"a":{"y":2}}',
            '{"":1}',
            "{a:1}",
            "{'a':1}",
            '{"a":1,}',
            "[1,]",
            "[,1]",
            "[1,,2]",
            '{"a" 1}',
            '{"a":}',
            "/* c */ 1",
            "// c\n1",
            "# c\n1",
            '{"a":1 /* c */}',
            '{"a":"\t"}',
            '{"a":"\x7f"}',
            '{"a":"\\x"}',
            '{"a":"\\u12"}',
            '{"a":"\\/\\b\\f"}',
            "\x0b1",
            "\x0c1",
            "\u00a01",
            "\u20281",
            "tru",
            "TRUE",
            "undefined",
            "",
            "{",
            "[",
            '"',
            "}",
        )
    ),
    *([("[", depth), ("]", depth)] for depth in (999, 1_000, 1_001)),
    *([('{"a":', depth), ("1", 1), ("}", depth)] for depth in (998, 1_000, 1_001)),
]
#: Bytes that are no text, or begin like another encoding.
_BYTES: Final = [
    *(b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe", b"\x00\x00\xfe\xff", b"\xff\xfe\x00\x00", b"\xef\xbb", b"\xef"),
    *(b"\xef\xbb\xbf ", b"\xef\xbb\xbf\xef\xbb\xbf1", b"\xfe\xff\x00 ", b"\xff\xfe \x00", b"1\xef\xbb\xbf"),
    *(b"\x00\x00\xff\xfe", b"\xfe\xff\x00\x00", b"\x00\x001\x00", b"\x001\x00\x00"),
    *(
        b"\x001",
        b"1\x00",
        b"\x00\x00\x001",
        b"1\x00\x00\x00",
        b"\x00",
        b"\x00\x00",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x00",
    ),
    *(
        b"[\x00",
        b"{\x00}\x00",
        b"\x00{\x00}",
        b"\x00{\x00}\x00",
        b"{\x00}\x00\x20",
        b"1\x00\x00",
        b"1\x002",
        b"1\x002\x00",
    ),
    *(b'{"\xed\xa0\x80":1}', b'{"\xc0\x80":1}', b'\xc0\xa2a"', b"\xc0\xb1", b'"\xe0\x80\x80"', b'"\xf0\x80\x80\xa2"'),
    *(
        b'"\xff"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"\xf4\x90\x80\x80"',
        b"\xff",
        b"\x80",
        b"1\xff",
        b'{"a":1}\xff',
    ),
    *(b'"\xf0\x9f\x98\x80"', b'{"\xff":1}', b"[1,\xff]", b'"\xef\xbf\xbf"', b'"\xe2\x80\xa8"'),
    '"\ud800"'.encode("utf-16-be", "surrogatepass"),
    '"\ud800"'.encode("utf-16-le", "surrogatepass"),
    '"\ud800x"'.encode("utf-16-be", "surrogatepass"),
    '"\udc00\ud800"'.encode("utf-16-be", "surrogatepass"),
    '"\ud800"'.encode("utf-32-be", "surrogatepass"),
    b'\x00\x00\x00"\x00\x11\x00\x00\x00\x00\x00"',
    '"ab"'.encode("utf-16-be")[:-1],
    '{"a":1}'.encode("utf-16-be")[:-1],
    '{"a":1}'.encode("utf-32-le")[:-3],
    "[1] ".encode("utf-16-le")[:-1],
]
#: Schemas of payloads; each with payloads that are tried.
_TYPED: Final = {
    '{"type":"string","optional":true}': ('"x"', '"\\ud800"', '"a\\udc00b"', "1", "null", "01"),
    '{"type":"int64","optional":true}': ("7", "007", "1.9", '"x"', "9" * 25, "1e3"),
    '{"type":"float64","optional":true}': ("7.50", "1e400", "01.5", "9" * 25),
    '{"type":"struct","optional":true,"fields":[{"field":"a","type":"string","optional":true}]}': (
        '{"a":"Grüße 日本 \U0001f600"}',
        '{"a":"\\ud800"}',
        '{"a":"x","a":"y"}',
        '{"a":"x","b":1}',
        "{}",
    ),
    '{"type":"map","keys":{"type":"string"},"values":{"type":"string","optional":true}}': (
        '{"\\ud800":"x"}',
        '{"a":"\\ud800"}',
        '{"a":"x","a":"y"}',
    ),
    '{"type":"array","items":{"type":"string","optional":true}}': ('["\\ud800","b"]',),
    "null": ('{"a":"\\ud800"}', "1", '{"a":01}', "-0.0"),
}
_NAMED: Final = '{"name":"%s","config":{"a":"b"}}'
_BODIES: Final[Sequence[Pieces]] = [
    *([(_NAMED % name, 1)] for name in ("n", "Grüße", "\\ud83d\\ude00", "\\ud800", "日本", "\\u0000")),
    [('{"name":"n","config":{"a":1,"b":1.50,"c":true,"d":null,"e":1e5,"f":-0.0,"g":100000000000000000000}}', 1)],
    [('{"name":"n","config":{"a":01}}', 1)],
    [('{"name":"n","config":{"a":NaN}}', 1)],
    [('{"name":"n","config":{"a":"1","a":"2"}}', 1)],
    [('{"name":"n","name":"m","config":{}}', 1)],
    [('{"name":"n","config":{}} x', 1)],
    [('{"name":"n","config":{}}\0', 1)],
    [('{"name":"n","config":{}}}', 1)],
    [('{"name":"n","config":{},}', 1)],
    [('/* c */{"name":"n","config":{}}', 1)],
    *([('{"name":"n","config":{"', 1), ("k", size), ('":1}}', 1)] for size in (50_000, 50_001)),
    *([('{"name":"n","config":{"a":', 1), ("9", size), ("}}", 1)] for size in (1_000, 1_001)),
    *([('{"name":"n","config":{"a":1.', 1), ("5", size), ("}}", 1)] for size in (998, 1_001)),
]


def data_of(case: dict[str, Any]) -> bytes:
    """The bytes of a case."""
    if "base64" in case:
        return base64.b64decode(case["base64"])
    text = "".join(piece * times for piece, times in case["text"])
    encoded: bytes = text.encode(case["encoding"])
    return "\ufeff".encode(case["encoding"]) + encoded if case.get("bom") else encoded


def cases() -> Iterator[dict[str, Any]]:
    """All cases."""
    seen: set[str] = set()
    for case in _cases():
        text = json.dumps(case)
        if text not in seen:
            seen.add(text)
            yield case


def _cases() -> Iterator[dict[str, Any]]:
    for pieces in _EVERYWHERE:
        for encoding in _ENCODINGS:
            for bom in (False, True):
                for of in ("key", "value") if pieces is _EVERYWHERE[0] else ("value",):
                    yield {"of": of, "schemas": False, "text": pieces, "encoding": encoding, "bom": bom}
    for pieces in _TEXTS:
        yield {"of": "value", "schemas": False, "text": pieces, "encoding": "utf-8"}
        if sum(len(text) * times for text, times in pieces) < 100_000:
            enveloped = [('{"schema":null,"payload":', 1), *pieces, ("}", 1)]
            yield {"of": "value", "schemas": True, "text": enveloped, "encoding": "utf-8"}
    for encoding in _ENCODINGS[1:]:
        for size in (50_000, 50_001):
            yield {"of": "value", "schemas": False, "text": [('{"', 1), ("é", size), ('":1}', 1)], "encoding": encoding}
        yield {"of": "value", "schemas": False, "text": [('{"\\ud800":"\\ud800"}', 1)], "encoding": encoding}
        for size in (1_000, 1_001):
            yield {"of": "value", "schemas": False, "text": [("[", 1), ("7", size), ("]", 1)], "encoding": encoding}
    for data in _BYTES:
        encoded = base64.b64encode(data).decode()
        yield {"of": "value", "schemas": False, "base64": encoded}
        yield {"of": "key", "schemas": True, "base64": encoded}
    for schema, payloads in _TYPED.items():
        for payload in payloads:
            text = f'{{"schema":{schema},"payload":{payload}}}'
            for encoding in _ENCODINGS:
                yield {"of": "value", "schemas": True, "text": [(text, 1)], "encoding": encoding}
            turned = f'\ufeff{{"payload":{payload},"schema":{schema}}} rest'
            yield {"of": "value", "schemas": True, "text": [(turned, 1)], "encoding": "utf-8"}
    schema = '{"type":"%s","optional":true}'
    for kind in ("int64", "float64", "string"):
        for pieces in ([("9", 1_000)], [("9", 1_001)], [("1.", 1), ("5", 998)], [("1.", 1), ("5", 1_001)]):
            whole = [(f'{{"schema":{schema % kind},"payload":', 1), *pieces, ("}", 1)]
            yield {"of": "value", "schemas": True, "text": whole, "encoding": "utf-8"}
    for pieces in _BODIES:
        yield {"of": "body", "text": pieces, "encoding": "utf-8"}
    for encoding in _ENCODINGS:
        for bom in (False, True):
            yield {"of": "body", "text": _BODIES[1], "encoding": encoding, "bom": bom}


#: Longer answers are told by their hash.
_LONG: Final = 200


def told(data: str | None) -> str | None:
    """A part of an answer as it is kept."""
    return data if data is None or len(data) <= _LONG else f"sha256 {hashlib.sha256(data.encode()).hexdigest()}"


def main() -> None:
    """Asks Java and keeps its answers."""
    arguments = argparse.ArgumentParser(prog="python -m differential.json_bytes", description=__doc__)
    arguments.add_argument("--record", type=Path, required=True, help="the file that cases and answers are written to")
    file = arguments.parse_args().record
    every = list(cases())
    asked = [{**one, "data": base64.b64encode(data_of(one)).decode()} for one in every]
    with tempfile.TemporaryDirectory() as directory:
        answers = java_answers(asked, Path(directory), "JsonBytes")
    lines = [
        json.dumps({**one, "java": {name: told(part) for name, part in answer.items() if name != "message"}})
        for one, answer in zip(every, answers, strict=True)
    ]
    file.write_text("\n".join(lines) + "\n", "ascii")
    print(f"{len(lines)} cases in {file}")


if __name__ == "__main__":
    main()
