"""Checks which modules a class name in a configuration may import: those of plugins, not the worker's own.

The author of a configuration chooses the text, and importing a module runs it. Distributions that are installed for
plugins may be imported, and modules in a directory of Python's search path: the current directory, `plugin.path`,
`PYTHONPATH`. Python's standard library, the worker's own package outside of its plugins and the distributions that the
worker itself needs have no plugin, but modules that start programs.

Looks at files of installed distributions, at most once each; imports nothing. Any thread.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterator
from typing import Final

_OWN: Final = __name__.partition(".")[0]
#: The parts of the worker's own package that hold plugins.
_OWN_PLUGINS: Final = ("connectors", "converters", "transforms", "config.providers")
_STANDARD: Final = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED: Final = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
_EXTRA: Final = re.compile(r"\bextra\s*==\s*[\"']([^\"']*)")
_FOLDED: Final = re.compile(r"\n[ \t]+")
_PROJECT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def refusal(module: str) -> str | None:
    """The owner of a module that may not be imported for a class name of a configuration; None if it may.

    >>> refusal("this"), refusal("penstock.cli.worker.worker"), refusal("penstock.transforms.types")
    ('Python itself', 'the worker itself', None)
    """
    parts = module.split(".")
    if "__main__" in parts:
        return "a program, which importing it would start"
    if parts[0] == _OWN:
        return None if f"{module}.".startswith(_own_prefixes()) else "the worker itself"
    spec = _found(parts[0])
    if spec is None:
        return None
    if spec.origin in ("built-in", "frozen"):
        return "Python itself"
    if spec.origin is not None and spec.origin.startswith(_STANDARD) and not spec.origin.startswith(_INSTALLED):
        return "Python itself"
    needed = _of_dependencies()
    # A namespace package has parts of several distributions.
    owner = needed.get(parts[0]) if spec.origin is not None else needed.get(".".join(parts[:2]))
    return None if owner is None else f"{owner}, which the worker itself uses"


def class_refusal(text: str, cls: type) -> str | None:
    """As `refusal`, for a class found in an importable module, which may have imported it from another module.

    >>> class_refusal("mine.Thread", __import__("threading").Thread)
    'Class mine.Thread is a part of Python itself, which has no class for a configuration'
    """
    why = refusal(cls.__module__)
    return None if why is None else said(text, why)


def said(text: str, why: str) -> str:
    """The message for a refused class name."""
    return f"Class {text} is a part of {why}, which has no class for a configuration"


@functools.cache
def _own_prefixes() -> tuple[str, ...]:
    return tuple(f"{_OWN}.{part}." for part in _OWN_PLUGINS)


def _found(top: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None


@functools.cache
def _of_dependencies() -> dict[str, str]:
    """Maps modules that the worker needs to their distributions; of packages the first two parts of the name."""
    found: dict[str, str] = {"pyspark": "pyspark", "py4j": "py4j"}
    for name, distribution in _needed(_OWN):
        for module in _modules(distribution):
            found.setdefault(module, name)
    return found


def _needed(project: str) -> Iterator[tuple[str, importlib.metadata.Distribution]]:
    """The installed distributions that a distribution needs, directly or indirectly, with their names."""
    seen, waiting = {project}, [project]
    while waiting:
        try:
            distribution = importlib.metadata.distribution(waiting.pop())
        except importlib.metadata.PackageNotFoundError:
            continue
        own_name, requirements = _name_and_requirements(distribution)
        if own_name != project:
            yield own_name, distribution
        for text in requirements:
            extra = _EXTRA.search(text)
            # The worker uses the installed packages of its own extras, except those of `dev`.
            if extra is not None and (extra[1] == "dev" or own_name != project):
                continue
            named = _PROJECT.match(text)
            name = named[0].lower().replace("_", "-") if named else ""
            if name and name not in seen:
                seen.add(name)
                waiting.append(name)


def _name_and_requirements(distribution: importlib.metadata.Distribution) -> tuple[str, list[str]]:
    text = distribution.read_text("METADATA")
    if text is None:
        return distribution.metadata["Name"], list(distribution.requires or ())
    # Only the head, because parsing the project pages after it takes half a second for all distributions.
    head = _FOLDED.sub(" ", text.partition("\n\n")[0])
    fields = [line.partition(": ") for line in head.splitlines()]
    name = next((value for field, _, value in fields if field == "Name"), "")
    return name.strip(), [value for field, _, value in fields if field == "Requires-Dist"]


def _modules(distribution: importlib.metadata.Distribution) -> set[str]:
    found: set[str] = set()
    # Read as text: creating an object for each file's path takes several times as long.
    record = distribution.read_text("RECORD")
    for line in (record or "").splitlines() if record else map(str, distribution.files or ()):
        path = line.partition(",")[0]
        if not path.endswith((".py", ".so", ".pyd")):
            continue
        *directories, file = path.split("/", 2)
        names = [*directories, file.partition(".")[0]][:2]
        if all(name.isidentifier() for name in names):
            found |= {names[0], ".".join(names)}
    return found
