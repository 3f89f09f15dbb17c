"""The check that plugin code on disk is still what this process runs: Python loads a module once.

Main type: ``LoadedCode``. It notes the state of files when their modules are first seen, which is when a class of them
was just loaded. Any thread.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

_OWN: Final = __name__.partition(".")[0]
#: Where installed distributions and Python itself are.
_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_Stamp = tuple[int, int] | None


class LoadedCode:
    """The files of loaded plugins, as they were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: dict[str, _Stamp] = {}

    def note(self, module: str) -> None:
        """A class of this module was loaded."""
        with self._lock:
            for name, file in _files_with(module):
                if name not in self._stamps:
                    self._stamps[name] = _stamp(file)

    def changed(self, modules: Iterable[str]) -> list[str]:
        """The modules that were loaded with these, themselves included, and whose files are others now."""
        found: dict[str, str] = {}
        for module in modules:
            self.note(module)
            found.update(_files_with(module))
        now = {name: _stamp(file) for name, file in found.items()}
        with self._lock:
            # One that another thread has loaded in between is as it was.
            return sorted(name for name, stamp in now.items() if self._stamps.get(name, stamp) != stamp)


@dataclass(frozen=True)
class _Loaded:
    """The modules that were loaded at a moment, and those found among them since, by the module asked for."""

    names: Sequence[str]
    with_module: dict[str, Sequence[tuple[str, str]]] = field(default_factory=dict)


#: Replaced as a whole, so that any thread may read it. To look through thousands of modules takes milliseconds, and
#: each check of a configuration asks for some of them; to compare their names takes microseconds.
_last = _Loaded(())


def _files_with(module: str) -> Sequence[tuple[str, str]]:
    """The loaded modules of the same package; where it is not installed, all of the directory that it is in."""
    global _last
    top = module.partition(".")[0]
    if top == _OWN:
        return ()
    # A module that is loaded anew comes last.
    loaded, names = _last, list(sys.modules)
    if loaded.names != names:
        loaded = _last = _Loaded(names)
    found = loaded.with_module.get(top)
    if found is None:
        found = loaded.with_module[top] = tuple(_look(top))
    return found


def _look(top: str) -> Iterator[tuple[str, str]]:
    root = _root(sys.modules.get(top))
    beside = None if root is None or f"{root}{os.sep}".startswith(_INSTALLED) else f"{root}{os.sep}"
    for name, loaded in list(sys.modules.items()):
        in_package = name == top or name.startswith(f"{top}.")
        if not in_package and beside is None:
            continue
        file = _file(loaded)
        if file is None or name.partition(".")[0] == _OWN:
            continue
        if in_package or (beside is not None and file.startswith(beside) and not file.startswith(_INSTALLED)):
            yield name, file


def _root(top: ModuleType | None) -> Path | None:
    """The directory from which a module or package is imported."""
    paths = [_file(top), *getattr(top, "__path__", ())]
    place = next((Path(path) for path in paths if path), None)
    if place is None:
        return None
    return place.parent.parent if place.name == "__init__.py" else place.parent


def _file(module: object) -> str | None:
    # Not by attribute: modules that load themselves late would do so.
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) and file.endswith(".py") else None


def _stamp(file: str) -> _Stamp:
    try:
        state = os.stat(file)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size
