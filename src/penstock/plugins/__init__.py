"""Finds connectors, converters, transforms, predicates and config providers by the names users write.

Start from:

- ``Plugins`` (``registry``): finds a class by its name. It is passed as an argument; there is no global registry.
- ``STOCK`` (``stock``): the classes that come with Penstock, with their Java names and aliases.
- ``find_entry_points``, ``find_in_directories`` (``registry``): the classes of other authors.
- ``PluginKind``, ``PluginDescriptor``, ``PluginNotFoundException`` (``kinds``).
- ``check_methods`` (``kinds``): checks that the worker can call an author's methods; ``LoadedCode`` (``registry``):
  finds files that have changed since they were loaded.

A class is imported when it is first needed, so that a worker answers before Spark loads.
``penstock.settings.plugin_classes`` reads the settings of a class, ``penstock.worker.task_parts`` creates its
instances.
"""

from penstock.plugins.kinds import PluginDescriptor, PluginKind, PluginNotFoundException
from penstock.plugins.registry import Plugins

__all__ = ["PluginDescriptor", "PluginKind", "PluginNotFoundException", "Plugins"]
