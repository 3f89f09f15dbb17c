"""The kinds of plugin, and the description of one.

Main types: ``PluginKind``, ``PluginDescriptor``, ``PluginNotFoundException``. Values; any thread.
"""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from enum import Enum

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

#: Endings that may be left out of a simple name.
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
    """A plugin that is there, without having imported it.

    Attributes:
        kind: What it is.
        name: What users see and REST lists: the Java name for Kafka's own classes, else ``module.Class``.
        target: Where it is: ``module:Class``.
        aliases: Other names for it.
        version: Its version, when that is known without importing it.
        origin: Where it was found: ``built-in``, the name of a distribution, or a directory of ``plugin.path``.
    """

    kind: PluginKind
    name: str
    target: str
    aliases: tuple[str, ...] = ()
    version: str | None = None
    origin: str = "built-in"

    def names(self) -> frozenset[str]:
        """Every name it answers to."""
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
    """The last part of a class name: what follows the last dot or colon.

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
    """No plugin of that kind and name, or it cannot be imported."""


class PluginRefusedException(PluginNotFoundException):
    """The name leads to a module that holds no plugins, and is not imported for it."""
