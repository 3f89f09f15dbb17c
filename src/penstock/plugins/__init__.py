"""Finds connectors, converters, transforms, predicates and config providers by the names users write.

Main types: ``Plugins`` (a value that is passed on; there is no global registry), ``PluginKind``, ``PluginDescriptor``,
``PluginNotFoundException``. A class is imported when it is first needed, so that a worker answers before Spark loads.
"""

from penstock.plugins.kinds import PluginDescriptor, PluginKind, PluginNotFoundException
from penstock.plugins.registry import Plugins

__all__ = ["PluginDescriptor", "PluginKind", "PluginNotFoundException", "Plugins"]
