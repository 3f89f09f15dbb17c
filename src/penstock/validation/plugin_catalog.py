"""The REST information about plugins: which there are, and the settings that each knows.

Main type: ``PluginCatalog``. Runs users' code (imports, ``config``), so it is called on threads of the caller's choice;
stateless.

Source: org.apache.kafka.connect.runtime.AbstractHerder.connectorPluginConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import ConfigDef
from penstock.errors import BadRequestException, NotFoundException
from penstock.model.payloads import PluginInfo
from penstock.plugins import PluginKind, PluginNotFoundException, Plugins
from penstock.settings import SINK, SOURCE
from penstock.settings.plugin_classes import changed_code
from penstock.validation.config_infos import key_json


class PluginCatalog:
    """The plugins of a worker.

    Thread: any.
    """

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def entries(self) -> list[PluginInfo]:
        """Every plugin, by type and name."""
        return [PluginInfo(one.name, one.kind.value, one.version) for one in self._plugins.descriptors()]

    def settings_of(self, name: str) -> list[dict[str, object]]:
        """The settings that a plugin knows, its own first, then what every plugin of its kind has.

        Raises:
            NotFoundException: there is no such plugin.
            BadRequestException: it cannot say what its settings are.
        """
        kind, cls = self._find(name)
        try:
            instance = cls()
            ask = getattr(instance, "config", None)
            own: object = ConfigDef() if ask is None else ask()
        except BaseException as error:
            raise BadRequestException(f"{name} cannot tell its settings: {type(error).__name__}: {error}") from error
        if not isinstance(own, ConfigDef):
            raise BadRequestException(f"{name}.config() must return a ConfigDef, and has returned {type(own).__name__}")
        keys = dict(own.keys)
        base = {PluginKind.SOURCE: SOURCE, PluginKind.SINK: SINK}.get(kind)
        if base is not None:
            for key in base.keys.values():
                keys.setdefault(key.name, key)
        return [key_json(key) for key in keys.values()]

    def changed_code(self, config: Mapping[str, str]) -> str | None:
        """Returns the message about a connector whose code has changed on disk since it was loaded, or None."""
        return changed_code(self._plugins, config)

    def _find(self, name: str) -> tuple[PluginKind, type]:
        for kind in PluginKind:
            try:
                found = self._plugins.discovered(kind, name)
            except PluginNotFoundException as error:
                raise BadRequestException(str(error)) from error
            if found is not None:
                return kind, found
        raise NotFoundException(f"Unknown plugin {name}.")
