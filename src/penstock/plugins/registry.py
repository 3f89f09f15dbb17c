"""Finds plugins, and turns the class names in configurations into classes.

A plugin that cannot be imported is logged and left out. ``LoadedCode`` compares plugin code on disk with the code of
this process, because Python loads a module once. Thread: any.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import inspect
import logging
import os
import pkgutil
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

from penstock.config.importable import class_refusal, refusal, said
from penstock.config.suggestions import LONGEST, nearest
from penstock.plugins.kinds import (
    PluginDescriptor,
    PluginKind,
    PluginNotFoundException,
    PluginRefusedException,
    SignatureError,
    check_methods,
    simple_name,
)
from penstock.plugins.stock import STOCK

ENTRY_POINT_GROUP = "penstock.plugins"


def find_entry_points(paths: Sequence[str] | None = None) -> list[PluginDescriptor]:
    """Plugins that distributions declare: ``alias = module:Class`` or ``alias = module`` in ``penstock.plugins``."""
    found: list[PluginDescriptor] = []
    distributions = (
        importlib.metadata.distributions() if paths is None else importlib.metadata.distributions(path=list(paths))
    )
    for distribution in distributions:
        # Parsing the entry points of every distribution would take longer than everything else here.
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
    """The directories to import from: each entry of ``plugin.path``, and its sub-directories that are not packages.

    A sub-directory is one plugin with its dependencies, as ``pip install --target`` makes it.
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
    """Appends the directories to Python's search path; an installed module wins over one in the directories."""
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
        # Libraries are in the same directories, so a module that cannot be imported is not an error.
        log.warning("Module %s in %s cannot be imported and is left out: %s", name, origin, error)
        return []
    found: list[PluginDescriptor] = []
    for _, cls in inspect.getmembers(module, inspect.isclass):
        # Classes that the module has imported belong to the modules that define them.
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
    """The kinds of plugin of a class."""
    for kind in PluginKind:
        if is_kind(cls, kind):
            yield kind


def is_kind(cls: type, kind: PluginKind) -> bool:
    """True if a class is a plugin of that kind."""
    base = kind.base()
    try:
        return issubclass(cls, base) and cls is not base
    except TypeError:
        # A protocol with data members does not support issubclass, so look for its methods.
        return all(callable(getattr(cls, name, None)) for name in ("configure", "get"))


def class_version(cls: type) -> str | None:
    """Returns the result of the class's ``version`` method, if it can be called without arguments."""
    try:
        version = cls().version()
    except BaseException:
        return None
    return version if isinstance(version, str) and version else None


_OWN: Final = __name__.partition(".")[0]
#: The directories of installed distributions and Python itself.
_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_Stamp = tuple[int, int] | None


class LoadedCode:
    """The state of the files of loaded plugins at the time of loading."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: dict[str, _Stamp] = {}

    def note(self, module: str) -> None:
        """Notes that a class of this module was loaded."""
        with self._lock:
            for name, file in _files_with(module):
                if name not in self._stamps:
                    self._stamps[name] = _stamp(file)

    def changed(self, modules: Iterable[str]) -> list[str]:
        """The modules loaded together with these, themselves included, whose files have changed since."""
        found: dict[str, str] = {}
        for module in modules:
            self.note(module)
            found.update(_files_with(module))
        now = {name: _stamp(file) for name, file in found.items()}
        with self._lock:
            # A module that another thread has loaded meanwhile has not changed.
            return sorted(name for name, stamp in now.items() if self._stamps.get(name, stamp) != stamp)


@dataclass(frozen=True)
class _Loaded:
    """The modules of one load, and the modules found among them since, by the requested module."""

    names: Sequence[str]
    with_module: dict[str, Sequence[tuple[str, str]]] = field(default_factory=dict)


#: Replaced as a whole, so that any thread may read it. Searching thousands of modules takes milliseconds, and each
#: check of a configuration needs some of them; comparing their names takes microseconds.
_last = _Loaded(())


def _files_with(module: str) -> Sequence[tuple[str, str]]:
    """The loaded modules of the same package; if it is not installed, all loaded modules of its directory."""
    global _last
    top = module.partition(".")[0]
    if top == _OWN:
        return ()
    # A module that is loaded again comes last.
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
    # Not by attribute, which would load lazy modules.
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) and file.endswith(".py") else None


def _stamp(file: str) -> _Stamp:
    try:
        state = os.stat(file)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size


log = logging.getLogger(__name__)

_CONNECTOR_KINDS = (PluginKind.SOURCE, PluginKind.SINK)


#: The number of classes that an error names: those with the closest names.
_SHOWN: Final = 3
_JAVA_ROOTS: Final = frozenset({"org", "com", "io", "net", "dev", "de"})
_INSTALL: Final = (
    "If it is none of these, install the Python distribution that has it for every worker, next to Penstock or in a "
    "directory of plugin.path"
)
_NO_JARS: Final = (
    ". A class of Java does not run here; a Python distribution can have a counterpart with Java's name, by an entry "
    "point of the group penstock.plugins"
)


class Plugins:
    """The plugins that one worker can use.

    A name may be: Kafka's own Java name of a stock class, ``module.Class``, ``module:Class``, a simple class name, or
    that without its ending (``FileStreamSource`` for ``FileStreamSourceConnector``, ``Json`` for ``JsonConverter``).

    Args:
        plugin_path: Directories of users' plugins.
        stock: The built-in plugins; replaced in tests.

    Attributes:
        code: The files of the loaded classes.

    Thread: any.
    Source: org.apache.kafka.connect.runtime.isolation.Plugins.
    """

    def __init__(self, plugin_path: Sequence[str] = (), stock: Sequence[PluginDescriptor] = STOCK) -> None:
        self._stock = tuple(stock)
        self._roots = plugin_roots(plugin_path)
        make_importable(self._roots)
        self._lock = threading.Lock()
        self._others: tuple[PluginDescriptor, ...] | None = None
        self.code = LoadedCode()

    @classmethod
    def discover(cls, plugin_path: Sequence[str] = ()) -> Plugins:
        """A registry of the built-in plugins, installed distributions and these directories; imports nothing."""
        return cls(plugin_path)

    def descriptors(self, kinds: Iterable[PluginKind] | None = None) -> list[PluginDescriptor]:
        """Every available plugin, by kind and name. Imports users' plugins."""
        wanted = set(PluginKind if kinds is None else kinds)
        everything = [*self._stock, *self._found_elsewhere()]
        chosen = {(plugin.kind, plugin.target): plugin for plugin in reversed(everything) if plugin.kind in wanted}
        order = list(PluginKind)
        return sorted(chosen.values(), key=lambda plugin: (order.index(plugin.kind), plugin.name))

    def resolve(self, kind: PluginKind, class_text: str) -> type:
        """The class of a name; the message of a PluginNotFoundException lists the available and the closest names."""
        return self._resolve((kind,), class_text)

    def find(self, kind: PluginKind, class_text: str) -> type | None:
        """As ``resolve``; None if the class does not exist, for callers that search elsewhere, too."""
        return self._find((kind,), class_text.strip())

    def discovered(self, kind: PluginKind, name: str) -> type | None:
        """The class of a plugin that ``descriptors`` lists, or that was loaded before. Imports nothing else."""
        listed = self._listed((kind,), self._stock, name) or self._listed((kind,), self._found_elsewhere(), name)
        if listed is not None or not _is_path(name):
            return listed
        module, _, qualified = name.partition(":") if ":" in name else name.rpartition(".")
        found: object = sys.modules.get(module) if refusal(module) is None else None
        for part in qualified.split("."):
            found = getattr(found, "__dict__", {}).get(part)
        return found if isinstance(found, type) and is_kind(found, kind) and not inspect.isabstract(found) else None

    def resolve_connector(self, class_text: str) -> type:
        """The class of a source or sink connector."""
        return self._resolve(_CONNECTOR_KINDS, class_text)

    def new(self, kind: PluginKind, class_text: str) -> object:
        """A new instance of a class."""
        return self.resolve(kind, class_text)()

    def version(self, cls: type) -> str | None:
        """The version of a plugin's class: the class's own, else that of its distribution."""
        target = f"{cls.__module__}:{cls.__qualname__}"
        for plugin in self._stock:
            if plugin.target == target or self._same_package(plugin, cls):
                return plugin.version
        return class_version(cls)

    @staticmethod
    def _same_package(plugin: PluginDescriptor, cls: type) -> bool:
        module, _, name = plugin.target.partition(":")
        return cls.__qualname__ == name and cls.__module__.startswith(module + ".")

    def _resolve(self, kinds: Sequence[PluginKind], class_text: str) -> type:
        text = class_text.strip()
        found = self._find(kinds, text)
        if found is None:
            raise PluginNotFoundException(self._not_found(kinds, text))
        return found

    def _find(self, kinds: Sequence[PluginKind], text: str) -> type | None:
        found = self._listed(kinds, self._stock, text)
        if found is not None:
            return found
        why = refusal(text.partition(":")[0] if ":" in text else text.rpartition(".")[0]) if _is_path(text) else None
        if _is_path(text) and why is None:
            found = self._import(kinds, text)
        # Discovery imports plugins of all kinds.
        found = found or self._listed(kinds, self._found_elsewhere(), text)
        # Python's module `io` is not a package: `io.debezium.connector.MySqlConnector` is a Java class.
        if found is None and why is not None and not (_is_java(text) and text.count(".") > 1):
            raise PluginRefusedException(f"{said(text, why)}; {_sentence(self._choice(kinds, text))}")
        return found

    def _listed(self, kinds: Sequence[PluginKind], among: Iterable[PluginDescriptor], text: str) -> type | None:
        matching = {p.target: p for p in among if p.kind in kinds and text in p.names()}
        if len(matching) > 1:
            names = ", ".join(sorted(plugin.name for plugin in matching.values()))
            raise PluginNotFoundException(
                f"More than one {kinds[0].noun} matches alias {text}. Please use the full name of one of: {names}"
            )
        for target in matching:
            return self._load(kinds, target, text)
        return None

    def _import(self, kinds: Sequence[PluginKind], text: str) -> type | None:
        """The class of ``module.Class`` or ``module:Class``; None if the module does not exist."""
        if ":" in text:
            found = self._load(kinds, text, text)
            self._require_of_plugin(text, found)
            return found
        module, _, name = text.rpartition(".")
        # Nested classes: the class's qualified name begins after the longest prefix that is a module.
        while module:
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
                    module, _, outer = module.rpartition(".")
                    name = f"{outer}.{name}"
                    continue
                raise PluginNotFoundException(_import_failed(text, module, error)) from error
            except BaseException as error:
                raise PluginNotFoundException(_import_failed(text, module, error)) from error
            found = self._load(kinds, f"{module}:{name}", text)
            self._require_of_plugin(text, found)
            return found
        return None

    @staticmethod
    def _require_of_plugin(text: str, cls: type) -> None:
        if (refused := class_refusal(text, cls)) is not None:
            raise PluginRefusedException(refused)

    def _load(self, kinds: Sequence[PluginKind], target: str, text: str) -> type:
        module_name, _, qualified = target.partition(":")
        try:
            found: object = importlib.import_module(module_name)
        except BaseException as error:
            raise PluginNotFoundException(_import_failed(text, module_name, error)) from error
        for part in qualified.split("."):
            found = getattr(found, part, None)
        noun = kinds[0].noun
        if not isinstance(found, type):
            raise PluginNotFoundException(
                f"{self._not_found(kinds, text)}. Module {module_name} is there but has no class {qualified}"
            )
        if not any(is_kind(found, kind) for kind in kinds):
            bases = " or ".join(f"{kind.base().__module__}.{kind.base().__name__}" for kind in kinds)
            raise PluginNotFoundException(f"Class {text} is not a {noun}: it does not extend {bases}")
        if inspect.isabstract(found):
            missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
            raise PluginNotFoundException(f"Class {text} is abstract, it still needs: {missing}")
        try:
            check_methods(found)
        except SignatureError as error:
            raise PluginNotFoundException(f"Class {text} cannot be used: {error}") from error
        self.code.note(found.__module__)
        return found

    def _found_elsewhere(self) -> tuple[PluginDescriptor, ...]:
        with self._lock:
            if self._others is None:
                points = find_entry_points()
                own = find_entry_points([str(root) for root in self._roots]) if self._roots else []
                self._others = (*points, *own, *find_in_directories(self._roots))
                for module in {plugin.target.partition(":")[0] for plugin in self._others}:
                    self.code.note(module)
            return self._others

    def choice(self, kind: PluginKind, class_text: str) -> str:
        """Returns a sentence for the error of a missing class: the available classes and the closest name.

        >>> Plugins().choice(PluginKind.PREDICATE, "RecordIsTombston").partition(". Did")[2]
        ' you mean RecordIsTombstone?'
        """
        text = self._choice((kind,), class_text.strip())
        return text[0].upper() + text[1:]

    def _not_found(self, kinds: Sequence[PluginKind], text: str) -> str:
        return (
            f"Failed to find any class that implements {kinds[0].noun} and which name matches {text}, "
            f"{_sentence(self._choice(kinds, text))} {_INSTALL}{_NO_JARS if _is_java(text) else ''}"
        )

    def _choice(self, kinds: Sequence[PluginKind], text: str) -> str:
        there = self.descriptors(kinds)
        near = there[:_SHOWN]
        if len(text) <= LONGEST:
            near = sorted(there, key=lambda plugin: -_likeness(text.lower(), plugin))[:_SHOWN]
        listed = ", ".join(f"{plugin.name} ({plugin.kind.value})" for plugin in near) or "none"
        more = len(there) - len(near)
        rest = f" and {more} more, which `penstock plugins` lists" if more else ""
        closest = _closest(text, there)
        meant = f". Did you mean {closest}?" if closest else ""
        return f"available {_plural(kinds[0].noun)} are: {listed}{rest}{meant}"


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def _is_java(text: str) -> bool:
    """True if a text looks like the full name of one of Java's classes.

    >>> _is_java("io.example.MySourceConnector"), _is_java("my_package:MySource"), _is_java("MySource")
    (True, False, False)
    """
    package, _, name = text.rpartition(".")
    return ":" not in text and package.split(".")[0] in _JAVA_ROOTS and name[:1].isupper()


def _plural(noun: str) -> str:
    return {"HeaderConverter": "header converters", "ConfigProvider": "config providers"}.get(noun, noun.lower() + "s")


def _is_path(text: str) -> bool:
    return ":" in text or "." in text


@functools.lru_cache(maxsize=4096)
def _likeness(text: str, plugin: PluginDescriptor) -> float:
    """Returns the highest similarity of a text to the names of a plugin, from 0 to 1."""
    matcher, best = difflib.SequenceMatcher(), 0.0
    for one in {text, simple_name(text)}:
        # The text that is compared with several names comes second, because the library caches data about it.
        matcher.set_seq2(one)
        for name in plugin.names():
            matcher.set_seq1(name.lower())
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                best = max(best, matcher.ratio())
    return best


def _closest(text: str, there: Iterable[PluginDescriptor]) -> str | None:
    by_name: dict[str, str] = {}
    for plugin in there:
        for name in plugin.names():
            by_name.setdefault(name.lower(), name)
    wanted = text.lower()
    best = nearest(wanted, by_name, 0.75) or nearest(simple_name(wanted), by_name, 0.6)
    return by_name[best] if best else None


def _import_failed(text: str, module: str, error: BaseException) -> str:
    return f"Class {text} cannot be loaded: importing module {module} failed with {type(error).__name__}: {error}"
