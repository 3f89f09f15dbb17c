"""Lists the names that authors import, with their signatures: the promise that a release makes to them.

Main function: ``signatures``. Run ``python -m tools.reference.names FILE`` to write the list again.

Thread: pure functions, but for the command.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Final

PUBLIC: Final = (
    "penstock.api",
    "penstock.data",
    "penstock.config",
    "penstock.errors",
    "penstock.clients",
    "penstock.files",
    "penstock.testing",
)


def signatures() -> str:
    """One line for each public name and each of its public methods and attributes, sorted within a module."""
    return "\n".join(line for module in PUBLIC for line in _of_module(module)) + "\n"


def members(cls: type) -> Iterator[tuple[str, object]]:
    """The public members of a class, its own and those of bases that are not public; class methods as functions."""
    own = dict(vars(cls))
    for base in cls.__mro__[1:]:
        if base.__module__.startswith("penstock.") and not _is_public(base):
            own = {**vars(base), **own}
    for name, member in sorted(own.items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, property):
            yield name, member
        elif isinstance(member, (staticmethod, classmethod)):
            yield name, member.__func__
        elif inspect.isfunction(member):
            yield name, member


def _is_public(cls: type) -> bool:
    return any(getattr(importlib.import_module(module), cls.__name__, None) is cls for module in PUBLIC)


def _of_module(module_name: str) -> Iterator[str]:
    module = importlib.import_module(module_name)
    for name in sorted(module.__all__):
        yield from _of_name(f"{module_name}.{name}", getattr(module, name))


def _of_name(path: str, value: object) -> Iterator[str]:
    if inspect.isfunction(value):
        yield f"{path}{inspect.signature(value)}"
    elif inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {path}({bases})"
        if issubclass(value, Enum):
            yield f"  {path}: {', '.join(value.__members__)}"
        if is_dataclass(value) and fields(value):
            shown = [field for field in fields(value) if not field.name.startswith("_")]
            yield f"  {path}: {', '.join(f'{field.name}: {field.type}' for field in shown)}"
        if issubclass(value, tuple):
            yield f"  {path}: {', '.join(getattr(value, '_fields', ()))}"
        for name, member in members(value):
            # What is generated says nothing that the lines above do not.
            if name == "__init__" and (is_dataclass(value) or issubclass(value, Enum) or _is_protocol(value)):
                continue
            if isinstance(member, property):
                yield f"  {path}.{name} -> {inspect.signature(member.fget).return_annotation if member.fget else ''}"
            elif inspect.isfunction(member):
                yield f"  {path}.{name}{inspect.signature(member)}"
    else:
        yield f"{path}: {type(value).__name__}"


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def main(arguments: Sequence[str]) -> int:
    """Writes the list to a file, or to standard output."""
    if not arguments:
        sys.stdout.write(signatures())
    else:
        Path(arguments[0]).write_text(signatures(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
