"""Names that Java's Protobuf library accepts and Python's rejects: packages with other characters, such as Debezium's
``server-1.db.t``, and symbols that occur in several enums of one scope.

In files for the library each such character is spelt out in letters, and such symbols contain the name of their enum;
names are converted back for display.

Main functions: ``spelt_package``, ``spelt_symbols``, ``spelt_text``, ``told_apart`` (files for the library),
``real_name``, ``real_symbol``. Thread: pure functions over
files that belong to the caller.
Source: com.google.protobuf.Descriptors.FileDescriptor, which checks the names of types, but not of packages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_MARK: Final = "_penstock_u"
_SPELT: Final = re.compile(rf"{_MARK}([0-9a-f]*)_")
_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_OF_ENUM: Final = "_penstock_of_"
_ENUM: Final = re.compile(r"(\benum\s+(\w+)\s*)(\{[^}]*\})")
_SYMBOL: Final = re.compile(r"([{;\n]\s*)([A-Za-z_]\w*)(\s*=\s*-?(?:0[xX][0-9a-fA-F]+|\d+)\s*[;\[])")
_STATEMENT: Final = re.compile(r"((?:^|[;}/\n])\s*package\s+)([^;\n]*?)(\s*;)")


def real_name(name: str) -> str:
    """The name in the registered file.

    >>> real_name(_spelt("server-1.gr\u00fcn.1a.b")) + real_name(".plain_name")
    'server-1.gr\u00fcn.1a.b.plain_name'
    """
    return _SPELT.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", name)


def real_symbol(name: str) -> str:
    """The symbol in the registered file.

    >>> real_symbol(f"RED{_OF_ENUM}Colour"), real_symbol("RED")
    ('RED', 'RED')
    """
    return name.partition(_OF_ENUM)[0]


def spelt_symbols(proto: Any) -> None:
    """Adds the enum's name to symbols that occur twice in a scope."""
    scopes = [proto]
    while scopes:
        scope = scopes.pop()
        scopes.extend(scope.message_type if scope is proto else scope.nested_type)
        counts = Counter(value.name for enum in scope.enum_type for value in enum.value)
        for enum in scope.enum_type:
            for value in enum.value:
                if counts[value.name] > 1:
                    value.name += f"{_OF_ENUM}{enum.name}"


def told_apart(text: str) -> str:
    """Adds the enum's name to all symbols of a .proto text."""
    return _ENUM.sub(lambda found: found[1] + _SYMBOL.sub(rf"\1\2{_OF_ENUM}{found[2]}\3", found[3]), text)


def _spelt(package: str) -> str:
    return ".".join(map(_spelt_part, package.split(".")))


def _spelt_part(part: str) -> str:
    if _PART.fullmatch(part):
        return part
    plain = _NOT_PLAIN.sub(lambda found: f"{_MARK}{ord(found[0]):x}_", part)
    return plain if _PART.fullmatch(plain) else f"{_MARK}_{plain}"


def spelt_package(proto: Any, packages: Iterable[str]) -> None:
    """Spells out package names in a file, and in the names of the types that it uses.

    Args:
        proto: The file, which is changed.
        packages: The packages of all files.
    """
    changed = {one: _spelt(one) for one in packages if one and _spelt(one) != one}
    if not changed:
        return
    proto.package = changed.get(proto.package, proto.package)
    for field in _fields(proto):
        for name in ("type_name", "extendee"):
            text = getattr(field, name)
            for package, plain in changed.items():
                dot = "." if text.startswith(".") else ""
                if text.startswith(f"{dot}{package}."):
                    setattr(field, name, f"{dot}{plain}{text[len(dot) + len(package) :]}")


def _fields(proto: Any) -> Iterator[Any]:
    yield from proto.extension
    messages = list(proto.message_type)
    while messages:
        message = messages.pop()
        yield from message.field
        yield from message.extension
        messages.extend(message.nested_type)


def spelt_text(texts: Mapping[str, str]) -> dict[str, str]:
    """Spells out such package names in .proto texts."""
    packages = {found[2] for text in texts.values() for found in _STATEMENT.finditer(text)}
    changed = sorted((one for one in packages if one and _spelt(one) != one), key=len, reverse=True)
    if not changed:
        return dict(texts)
    used = re.compile(rf"(?<![\w.])(\.?)({'|'.join(map(re.escape, changed))})(?=\.\w)")
    return {
        name: used.sub(
            lambda found: found[1] + _spelt(found[2]),
            _STATEMENT.sub(lambda found: found[1] + _spelt(found[2]) + found[3], text),
        )
        for name, text in texts.items()
    }
