"""Looks for plugins of other people: entry points of installed distributions, and directories of ``plugin.path``.

Main functions: ``find_entry_points``, ``find_in_directories``. Both import what they list, to know its kind, and say in
the log what cannot be imported; neither raises for one bad plugin. Any thread.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import logging
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from penstock.plugins.kinds import PluginDescriptor, PluginKind

log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "penstock.plugins"


def find_entry_points(paths: Sequence[str] | None = None) -> list[PluginDescriptor]:
    """Plugins that distributions declare under ``penstock.plugins``: ``alias = module:Class``, or ``alias = module``.

    Args:
        paths: Directories to look in; None for all that Python knows.
    """
    found: list[PluginDescriptor] = []
    distributions = (
        importlib.metadata.distributions() if paths is None else importlib.metadata.distributions(path=list(paths))
    )
    for distribution in distributions:
        # To take every distribution's entry points apart takes longer than all else that is done here.
        if ENTRY_POINT_GROUP not in (distribution.read_text("entry_points.txt") or ""):
            continue
        for point in distribution.entry_points:
            if point.group == ENTRY_POINT_GROUP:
                found += _from_entry_point(point, distribution)
    return found


def _from_entry_point(
    point: importlib.metadata.EntryPoint, distribution: importlib.metadata.Distribution
) -> list[PluginDescriptor]:
    origin = distribution.metadata["Name"]
    try:
        loaded = point.load()
    except BaseException as error:
        log.warning("Plugin %s of %s cannot be loaded and is left out: %s", point.value, origin, error)
        return []
    if inspect.ismodule(loaded):
        return _from_module(loaded.__name__, origin, distribution.version)
    return _describe(loaded, origin, distribution.version, (point.name,))


def plugin_roots(plugin_path: Iterable[str]) -> list[Path]:
    """The directories to import from: each entry of ``plugin.path``, and its sub-directories that are no packages.

    A sub-directory stands for one plugin with what it needs, as ``pip install --target`` makes it.
    """
    roots: list[Path] = []
    for text in plugin_path:
        path = Path(text.strip()).expanduser()
        if not text.strip():
            continue
        if not path.is_dir():
            log.warning("plugin.path names %s, which is not a directory", path)
            continue
        roots.append(path)
        for child in sorted(path.iterdir()):
            if child.is_dir() and not (child / "__init__.py").exists() and _has_modules(child):
                roots.append(child)
    return roots


def _has_modules(directory: Path) -> bool:
    return any(entry.suffix == ".py" or (entry / "__init__.py").exists() for entry in directory.iterdir())


def make_importable(roots: Iterable[Path]) -> None:
    """Appends the directories to Python's search path; what is installed wins over what is dropped in."""
    for root in roots:
        if str(root) not in sys.path:
            sys.path.append(str(root))


def find_in_directories(roots: Sequence[Path]) -> list[PluginDescriptor]:
    """Plugins in the modules and packages that lie directly in these directories."""
    found: list[PluginDescriptor] = []
    for root in roots:
        for module in pkgutil.iter_modules([str(root)]):
            found += _from_module(module.name, str(root), None)
    return found


def _from_module(name: str, origin: str, version: str | None) -> list[PluginDescriptor]:
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        # Libraries lie in the same directories; one that does not import is no reason to stop.
        log.warning("Module %s in %s cannot be imported and is left out: %s", name, origin, error)
        return []
    found: list[PluginDescriptor] = []
    for _, cls in inspect.getmembers(module, inspect.isclass):
        # Classes that the module took from elsewhere belong to where they were defined.
        if cls.__module__ == name or cls.__module__.startswith(name + "."):
            found += _describe(cls, origin, version, ())
    return found


def _describe(cls: object, origin: str, version: str | None, aliases: tuple[str, ...]) -> list[PluginDescriptor]:
    if not isinstance(cls, type) or inspect.isabstract(cls):
        return []
    target = f"{cls.__module__}:{cls.__qualname__}"
    name = f"{cls.__module__}.{cls.__qualname__}"
    return [
        PluginDescriptor(kind, name, target, aliases, version or class_version(cls), origin) for kind in kinds_of(cls)
    ]


def kinds_of(cls: type) -> Iterator[PluginKind]:
    """The kinds of plugin that a class is."""
    for kind in PluginKind:
        if is_kind(cls, kind):
            yield kind


def is_kind(cls: type, kind: PluginKind) -> bool:
    """True if a class is a plugin of that kind."""
    base = kind.base()
    try:
        return issubclass(cls, base) and cls is not base
    except TypeError:
        # A protocol with data members cannot answer; its methods can be looked for.
        return all(callable(getattr(cls, name, None)) for name in ("configure", "get"))


def class_version(cls: type) -> str | None:
    """Returns the result of the class's ``version`` method, if it can be called without arguments."""
    try:
        version = cls().version()
    except BaseException:
        return None
    return version if isinstance(version, str) and version else None
