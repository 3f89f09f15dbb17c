"""Checks connector configurations before anything is started.

Main types: ``ConnectorValidator``, ``Checked``. Runs users' code (``config``, ``validate``), so it is called on a
thread of its own. Stateless.

Source: org.apache.kafka.connect.runtime.AbstractHerder.validateConnectorConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.api import Connector, SinkConnector
from penstock.config import Config, ConfigValue
from penstock.errors import BadRequestException, ConnectException
from penstock.model import ConnectorType
from penstock.plugins import PluginNotFoundException, Plugins
from penstock.settings import SINK, SOURCE, InstalledPlugins, validate_connector


@dataclass(frozen=True)
class Checked:
    """What a check found out about a configuration that is right.

    Attributes:
        type: Source or sink.
        version: The version of the connector's class.
        max_tasks: ``tasks.max``.
        enforce_max_tasks: ``tasks.max.enforce``.
    """

    type: ConnectorType
    version: str | None = None
    max_tasks: int = 1
    enforce_max_tasks: bool = True


class Validator(Protocol):
    """Checks a configuration."""

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        """Checks one configuration.

        Args:
            config: As given.
            resolved: With its placeholders resolved.

        Raises:
            BadRequestException: it is wrong; the message has all faults.
        """


def invalid(errors: list[str]) -> BadRequestException:
    """The error for a configuration with faults.

    >>> print(invalid(["Missing required configuration \\"topic\\" which has no default value."]))
    Connector configuration is invalid and contains the following 1 error(s):
    Missing required configuration "topic" which has no default value.
    You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`
    """
    lines = "\n".join(errors)
    return BadRequestException(
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{lines}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


NULL_VALUE = "Null value can not be supplied as the configuration value."


class ConnectorValidator:
    """Checks configurations against the definitions of the framework, of the transforms, and of the connector itself.

    Args:
        plugins: Where classes come from.

    Thread: any; each check makes instances of its own.
    """

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._classes = InstalledPlugins(plugins)

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        """See ``Validator``."""
        connector_type, connector = self.connector_of(resolved)
        errors = [f"{name}: {NULL_VALUE}" for name, value in config.items() if value is None]
        found = self.validate(connector_type, connector, resolved)
        for value in found.values():
            errors += [message for message in value.error_messages if message not in errors]
        if errors:
            raise invalid(errors)
        maximum, enforce = found["tasks.max"].value, found["tasks.max.enforce"].value
        assert isinstance(maximum, int)
        return Checked(connector_type, self._plugins.version(type(connector)), maximum, enforce is not False)

    def connector_of(self, config: Mapping[str, str | None]) -> tuple[ConnectorType, Connector]:
        """The type of a connector and a fresh instance of its class.

        Raises:
            BadRequestException: there is no class of that name, or it cannot be made.
        """
        text = config.get("connector.class")
        if not text or not text.strip():
            raise BadRequestException(
                f"Connector configuration of {config.get('name')} contains no connector type: set connector.class"
            )
        try:
            cls = self._plugins.resolve_connector(text)
        except PluginNotFoundException as error:
            raise BadRequestException(str(error)) from error
        try:
            instance = cls()
        except Exception as error:
            raise BadRequestException(
                f"Connector class {text} cannot be made: its constructor raised {type(error).__name__}: {error}"
            ) from error
        assert isinstance(instance, Connector)
        kind = ConnectorType.SINK if isinstance(instance, SinkConnector) else ConnectorType.SOURCE
        return kind, instance

    def validate(
        self, connector_type: ConnectorType, connector: Connector, resolved: Mapping[str, str | None]
    ) -> dict[str, ConfigValue]:
        """All settings with their faults: the framework's, then the connector's own.

        Raises:
            ConnectException: the connector's ``validate`` itself failed.
        """
        base = SINK if connector_type is ConnectorType.SINK else SOURCE
        _, found = validate_connector(base, resolved, self._classes)
        given = {name: value for name, value in resolved.items() if value is not None}
        name = type(connector).__name__
        try:
            own = connector.validate(given)
        except Exception as error:
            raise ConnectException(f"{name}.validate() raised {type(error).__name__}: {error}") from error
        if not isinstance(own, Config):
            raise BadRequestException(f"{name}.validate() must return a Config that is not None")
        for value in own.config_values:
            known = found.setdefault(value.name, value)
            if known is not value:
                known.error_messages += [text for text in value.error_messages if text not in known.error_messages]
        return found
