"""The kinds of plugin, the description of one, and the check of an author's methods, once before any call.

Values and pure functions; any thread.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.errors import ConnectException


class PluginKind(Enum):
    """The kinds, with the text that REST uses for each.

    Source: org.apache.kafka.connect.runtime.isolation.PluginType.
    """

    SOURCE = "source"
    SINK = "sink"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONFIG_PROVIDER = "config_provider"

    @property
    def noun(self) -> str:
        """The name of the kind in messages: ``Connector``, ``Converter``, ..."""
        return _NOUNS[self]

    def base(self) -> type:
        """The class that every plugin of this kind extends (or the protocol it follows)."""
        module, _, name = _BASES[self].partition(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, type)
        return found


_NOUNS = {
    PluginKind.SOURCE: "Connector",
    PluginKind.SINK: "Connector",
    PluginKind.CONVERTER: "Converter",
    PluginKind.HEADER_CONVERTER: "HeaderConverter",
    PluginKind.TRANSFORMATION: "Transformation",
    PluginKind.PREDICATE: "Predicate",
    PluginKind.CONFIG_PROVIDER: "ConfigProvider",
}
_BASES = {
    PluginKind.SOURCE: "penstock.api:SourceConnector",
    PluginKind.SINK: "penstock.api:SinkConnector",
    PluginKind.CONVERTER: "penstock.api:Converter",
    PluginKind.HEADER_CONVERTER: "penstock.api:HeaderConverter",
    PluginKind.TRANSFORMATION: "penstock.api:BaseTransformation",
    PluginKind.PREDICATE: "penstock.api:Predicate",
    PluginKind.CONFIG_PROVIDER: "penstock.config:ConfigProvider",
}

#: Optional endings of a simple name.
_PRUNED = {
    PluginKind.SOURCE: ("SourceConnector", "Connector"),
    PluginKind.SINK: ("SinkConnector", "Connector"),
    PluginKind.CONVERTER: ("Converter",),
    PluginKind.HEADER_CONVERTER: ("HeaderConverter", "Converter"),
    PluginKind.TRANSFORMATION: ("Transformation",),
    PluginKind.PREDICATE: ("Predicate",),
    PluginKind.CONFIG_PROVIDER: ("ConfigProvider",),
}


@dataclass(frozen=True)
class PluginDescriptor:
    """An available plugin, which need not be imported.

    Attributes:
        kind: Its kind.
        name: The name that users see and REST lists: the Java name for Kafka's own classes, else ``module.Class``.
        target: Its location: ``module:Class``.
        aliases: Other names for it.
        version: Its version, if known without importing it.
        origin: Its origin: ``built-in``, the name of a distribution, or a directory of ``plugin.path``.
    """

    kind: PluginKind
    name: str
    target: str
    aliases: tuple[str, ...] = ()
    version: str | None = None
    origin: str = "built-in"

    def names(self) -> frozenset[str]:
        """All names of the plugin."""
        return self._names

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        module, _, qualified = self.target.partition(":")
        simple = simple_name(self.name)
        found = {self.name, self.target, f"{module}.{qualified}", simple, simple_name(qualified), *self.aliases}
        for name in (simple, simple_name(qualified)):
            found.update(pruned_names(self.kind, name))
        return frozenset(found)


def simple_name(name: str) -> str:
    """The last part of a class name: the text after the last dot or colon.

    >>> simple_name("org.apache.kafka.connect.transforms.HoistField$Value")
    'HoistField$Value'
    """
    return re.split(r"[.:]", name)[-1]


def pruned_names(kind: PluginKind, simple: str) -> set[str]:
    """The short forms of a simple name.

    >>> sorted(pruned_names(PluginKind.SOURCE, "FileStreamSourceConnector"))
    ['FileStream', 'FileStreamSource']
    """
    return {simple.removesuffix(end) for end in _PRUNED[kind] if simple.endswith(end) and simple != end}


class PluginNotFoundException(ConnectException):
    """There is no plugin of that kind and name, or it cannot be imported."""


class PluginRefusedException(PluginNotFoundException):
    """The name refers to a module that has no plugins and must not be imported."""


#: The modules of the base classes for authors: the worker calls their public methods with all arguments.
_API: Final = ("penstock.api.", "penstock.config.providers")
#: Methods that Java has in two forms, and the arguments of the other form.
_OTHER_FORMS: Final = {"commit_record": ("record", "metadata")}


class SignatureError(TypeError):
    """A method that the worker cannot call; the text names the method and its required form."""


@functools.lru_cache(maxsize=1024)
def check_methods(cls: type) -> None:
    """Raises SignatureError for the first overridden method that the worker cannot call."""
    for name, arguments in _methods_of_bases(cls):
        member = inspect.getattr_static(cls, name)
        where = f"{cls.__module__}.{cls.__qualname__}.{name}"
        wanted = f"the worker calls {name}({', '.join(arguments)})"
        method: object = getattr(cls, name)
        if not callable(method):
            raise SignatureError(f"{where} is {type(member).__name__}, not a method: {wanted}")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise SignatureError(f"{where} must not be async: {wanted} and takes what it returns")
        try:
            # Ignores __wrapped__, because the worker calls the wrapper.
            signature = inspect.signature(method, follow_wrapped=False)
        except (ValueError, TypeError):
            continue  # a method that is not written in Python has no signature
        owner = () if isinstance(member, (staticmethod, classmethod)) else ("self",)
        forms = [form for form in (arguments, _OTHER_FORMS.get(name)) if form is not None]
        reasons = [reason for form in forms if (reason := _refusal(signature, owner + form)) is not None]
        if len(reasons) == len(forms):
            also = "".join(f", or {name}({', '.join(form)})" for form in forms[1:])
            raise SignatureError(f"{where}{signature} cannot be called: {wanted}{also} ({reasons[0]})")


def _methods_of_bases(cls: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The methods of the API that a class overrides, and the arguments that the worker passes."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not f"{base.__module__}.".startswith(_API):
            continue
        for name, method in vars(base).items():
            if name.startswith("_") or name in seen or not inspect.isfunction(method):
                continue
            seen.add(name)
            if inspect.getattr_static(cls, name) is not method:
                yield name, tuple(inspect.signature(method).parameters)[1:]


def _refusal(signature: inspect.Signature, arguments: tuple[str, ...]) -> str | None:
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return None
