"""Finds connectors, converters, transforms, predicates and config providers by the names users write.

Start from:

- ``Plugins`` (``registry``): a class for a name. It is a value that is passed on; there is no global registry.
- ``STOCK`` (``stock``): the classes that come with Penstock, with their Java names and aliases.
- ``find_entry_points``, ``find_in_directories`` (``registry``): the classes of other people.
- ``PluginKind``, ``PluginDescriptor``, ``PluginNotFoundException`` (``kinds``).
- ``check_methods`` (``kinds``): whether an author's methods can be called as the worker calls them; ``LoadedCode``
  (``registry``): whether their files have changed since.

A class is imported when it is first needed, so that a worker answers before Spark loads. The settings of a class are
read by ``penstock.settings.plugin_classes``, its instances are made by ``penstock.worker.factory.instances``.
"""

from penstock.plugins.kinds import PluginDescriptor, PluginKind, PluginNotFoundException
from penstock.plugins.registry import Plugins

__all__ = ["PluginDescriptor", "PluginKind", "PluginNotFoundException", "Plugins"]
