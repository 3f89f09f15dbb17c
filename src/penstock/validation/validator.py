"""Checks connector configurations before anything is started.

Thread: one that may run users' code (``config``, ``validate``, constructors, ``exactly_once_support``); stateless.
Source: org.apache.kafka.connect.runtime.AbstractHerder.validateConnectorConfig;
    org.apache.kafka.connect.runtime.distributed.DistributedHerder (validateSourceConnectorExactlyOnceSupport,
    validateSourceConnectorTransactionBoundary), with its messages; KIP-618.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Protocol

from penstock.api import (
    Connector,
    ConnectorTransactionBoundaries,
    ExactlyOnceSupport,
    SinkConnector,
    SourceConnector,
    TransactionBoundary,
)
from penstock.config import Config, ConfigDef, ConfigValue
from penstock.errors import BadRequestException, ConfigException, ConnectException
from penstock.kafka.settings.table import OverridePolicy
from penstock.model import ConnectorType
from penstock.plugins import PluginNotFoundException, Plugins
from penstock.settings import (
    OF_SINKS,
    OF_SOURCES,
    SINK,
    SOURCE,
    InstalledPlugins,
    SinkSettings,
    SourceSettings,
    kind_of_setting,
    validate_connector,
)
from penstock.settings.distributed import ExactlyOnceSourceSupport as WorkerSupport
from penstock.settings.topics import topic_creation_faults, uses_topic_creation
from penstock.validation.config_infos import ConfigInfos, Finding, Redaction, SettingWarning, groups_of, redaction_of
from penstock.validation.plugin_checks import check_converters, try_plugins
from penstock.validation.settings import check_group, check_overrides, connector_warnings

log = logging.getLogger(__name__)

_SUPPORT = "exactly.once.support"
_BOUNDARY = "transaction.boundary"


def check_exactly_once(
    connector: SourceConnector,
    given: Mapping[str, str],
    found: Mapping[str, ConfigValue],
    worker: WorkerSupport,
) -> None:
    """Adds errors to settings that the connector (a fresh instance) or this worker does not support."""
    support, boundary = found[_SUPPORT], found[_BOUNDARY]
    if not support.error_messages and str(support.value).lower() == "required":
        if worker is not WorkerSupport.ENABLED:
            support.add_error_message("This worker does not have exactly-once source support enabled.")
        _add(support, "support for exactly-once semantics", lambda: _support_fault(connector, given))
    if not boundary.error_messages and str(boundary.value).lower() == TransactionBoundary.CONNECTOR.value:
        _add(boundary, "support for defining its own transaction boundaries", lambda: _boundary_fault(connector, given))


def _add(value: ConfigValue, what: str, fault: Callable[[], str | None]) -> None:
    try:
        text = fault()
    except BaseException as error:
        log.exception("A connector's %s could not be validated", what)
        said = str(error).strip()
        after = f": {said}" if said else "; please see the worker logs for more details."
        text = f"An unexpected error occurred during validation{after}"
    if text is not None:
        value.add_error_message(text)


def _support_fault(connector: SourceConnector, given: Mapping[str, str]) -> str | None:
    said: object = connector.exactly_once_support(dict(given))
    if said is ExactlyOnceSupport.SUPPORTED:
        return None
    if said is None:
        return (
            "The connector does not implement the API required for preflight validation of exactly-once source "
            "support. Please consult the documentation for the connector to determine whether it supports exactly-once "
            'semantics, and then consider reconfiguring the connector to use the value "requested" for this property '
            "(which will disable this preflight check and allow the connector to be created)."
        )
    if said is ExactlyOnceSupport.UNSUPPORTED:
        return "The connector does not support exactly-once semantics with the provided configuration."
    raise ConnectException(f"Unexpected value returned from SourceConnector::exactlyOnceSupport: {said}")


def _boundary_fault(connector: SourceConnector, given: Mapping[str, str]) -> str | None:
    said: object = connector.can_define_transaction_boundaries(dict(given))
    if said is ConnectorTransactionBoundaries.SUPPORTED:
        return None
    if said is None:
        return (
            "This connector has returned a null value from its canDefineTransactionBoundaries method, which is not "
            "permitted. The connector will be treated as if it cannot define its own transaction boundaries, and "
            f"cannot be configured with '{_BOUNDARY}' set to '{TransactionBoundary.CONNECTOR.value}'."
        )
    return (
        "The connector does not support connector-defined transaction boundaries with the given configuration. Please "
        "reconfigure it to use a different transaction boundary definition."
    )


@dataclass(frozen=True)
class Checked:
    """The facts that a check found about a valid configuration; ``defined`` are the settings that a class defines."""

    type: ConnectorType
    version: str | None = None
    max_tasks: int = 1
    enforce_max_tasks: bool = True
    secrets: frozenset[str] = frozenset()
    warnings: Sequence[SettingWarning] = ()
    defined: frozenset[str] = field(default=frozenset(), compare=False)


class ConfigurationValidator(Protocol):
    """Checks configurations."""

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        """Checks one configuration; raises BadRequestException with all faults."""

    def infos(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> ConfigInfos:
        """Returns all settings with their faults; raises BadRequestException if the class cannot be used."""

    def facts(self, resolved: Mapping[str, str]) -> Checked:
        """Returns the facts that the class gives, without a check; raises BadRequestException if it cannot be used."""

    def new_connector(self, config: Mapping[str, str]) -> Connector:
        """A fresh instance of the class that a configuration names; raises BadRequestException."""


def invalid(errors: Sequence[str]) -> BadRequestException:
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


_CLASS_NOT_FOUND = re.compile(r"Class (.*) could not be found\.$")
NULL_VALUE = "Null value can not be supplied as the configuration value."
#: The number of missing classes for which a validation lists the available ones; finding the closest takes a while.
_MOST_SUGGESTIONS: Final = 20


class ConnectorValidator:
    """Checks configurations against the definitions of the framework, of the transforms, and of the connector itself.

    Args:
        plugins: Loads the classes.
        policy: The client settings that connectors may override.
        worker: The worker's properties, placeholders resolved.
        exactly_once: True if the worker delivers exactly once; None if it is standalone: such settings are not
            checked, as in Kafka.
        group_id: The group of the cluster's workers, which no sink may use; None if there is none.

    Thread: any; each check creates its own instances.
    """

    def __init__(
        self,
        plugins: Plugins,
        policy: OverridePolicy | None = None,
        worker: Mapping[str, str] = MappingProxyType({}),
        *,
        exactly_once: WorkerSupport | None = None,
        group_id: str | None = None,
    ) -> None:
        self._exactly_once = exactly_once
        self._group_id = group_id
        self._plugins = plugins
        self._worker = worker
        self._classes = InstalledPlugins(plugins)
        self._policy = policy or OverridePolicy()

    def __call__(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> Checked:
        connector, infos, values = self._examined(config, resolved)
        # The distinct messages, in order.
        found = dict.fromkeys(f"{name}: {NULL_VALUE}" for name, value in config.items() if value is None)
        for finding in infos.findings:
            found |= dict.fromkeys(finding.value.error_messages)
        errors = list(found)
        given = {name: value for name, value in resolved.items() if value is not None}
        errors += [
            message for message in self._faults_of_tasks(_type_of(connector), given, errors) if message not in errors
        ]
        if errors:
            redaction = _redaction(config, resolved, infos.findings)
            raise invalid([redaction.text(error) for error in errors])
        return self._checked(connector, values, infos.findings, infos.warnings)

    def facts(self, resolved: Mapping[str, str]) -> Checked:
        """The connector's own ``validate`` is not called."""
        connector = self.new_connector(resolved)
        connector_type = _type_of(connector)
        definition, found = self._framework_settings(connector_type, resolved)
        from_converters, _ = check_converters(resolved, found, self._classes)
        findings = [
            *_merged(
                definition,
                found,
                _definition_of(connector, resolved["connector.class"]).of_names(resolved),
                Config([]),
            ),
            *from_converters,
            *check_overrides(resolved, connector_type, self._policy, self._worker),
        ]
        if errors := [*found["tasks.max"].error_messages, *found["tasks.max.enforce"].error_messages]:
            raise invalid(errors)
        return self._checked(connector, found, findings, ())

    def _checked(
        self,
        connector: Connector,
        values: Mapping[str, ConfigValue],
        findings: Sequence[Finding],
        warnings: Sequence[SettingWarning],
    ) -> Checked:
        maximum, enforce = values["tasks.max"].value, values["tasks.max.enforce"].value
        assert isinstance(maximum, int)
        secrets = frozenset(finding.name for finding in findings if finding.secret)
        defined = frozenset(finding.name for finding in findings if finding.key is not None)
        version = self._plugins.version(type(connector))
        return Checked(_type_of(connector), version, maximum, enforce is not False, secrets, warnings, defined)

    def _framework_settings(
        self, connector_type: ConnectorType, resolved: Mapping[str, str | None]
    ) -> tuple[ConfigDef, dict[str, ConfigValue]]:
        """The settings that Connect, transforms and predicates define, with the result for each."""
        base = SINK if connector_type is ConnectorType.SINK else SOURCE
        # Clients of REST that expect Java's settings see Penstock's only if one is set.
        own_of_penstock = OF_SINKS if base is SINK else OF_SOURCES
        shown = own_of_penstock if own_of_penstock.keys.keys() & resolved.keys() else None
        return validate_connector(base, resolved, self._classes, shown)

    def _faults_of_tasks(
        self, connector_type: ConnectorType, given: Mapping[str, str], known: Sequence[str]
    ) -> list[str]:
        """Returns faults that the validation omits, as Kafka's does, but that would make every task fail."""
        creates = self._worker.get("topic.creation.enable", "true").strip().lower() == "true"
        faults: list[str] = []
        if connector_type is ConnectorType.SOURCE and creates and uses_topic_creation(given):
            faults = topic_creation_faults(given)
        if faults or known:
            return faults
        try:
            if connector_type is ConnectorType.SOURCE:
                SourceSettings.parse(given, self._classes, topic_creation_enabled=creates)
            else:
                SinkSettings.parse(given, self._classes)
        except ConfigException as error:
            return [str(error)]
        return []

    def infos(self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> ConfigInfos:
        return self._examined(config, resolved)[1]

    def _examined(
        self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]
    ) -> tuple[Connector, ConfigInfos, Mapping[str, ConfigValue]]:
        """Checks everything, without stopping at the first fault; the values are those of the framework's settings.

        Raises BadRequestException, without secrets, if the class cannot be used.
        """
        try:
            return self._unredacted(config, resolved)
        except BadRequestException as error:
            shown = _redaction(config, resolved, ()).error(error)
            if shown is error:
                raise
            raise shown from None

    def _unredacted(
        self, config: Mapping[str, str | None], resolved: Mapping[str, str | None]
    ) -> tuple[Connector, ConfigInfos, Mapping[str, ConfigValue]]:
        connector = self.new_connector(resolved)
        connector_type = _type_of(connector)
        definition, found = self._framework_settings(connector_type, resolved)
        given = {name: value for name, value in resolved.items() if value is not None}
        own_definition, own = _own_settings(connector, given)
        if self._exactly_once is not None and isinstance(connector, SourceConnector):
            check_exactly_once(connector, given, found, self._exactly_once)
        from_converters, converter_definitions = check_converters(given, found, self._classes)
        overrides = check_overrides(given, connector_type, self._policy, self._worker)
        if self._group_id is not None and connector_type is ConnectorType.SINK:
            check_group(given, found, overrides, self._group_id)
        findings = [*_merged(definition, found, own_definition, own), *from_converters, *overrides]
        try_plugins(given, found, findings)
        suggestions = 0
        for finding in findings:
            if suggestions < _MOST_SUGGESTIONS:
                suggestions += self._say_what_there_is(finding)
        groups = groups_of((definition, own_definition, *converter_definitions))
        warnings = connector_warnings(given, type(connector), findings, found)
        redaction = _redaction(config, resolved, findings)
        infos = ConfigInfos(
            redaction.text(given["connector.class"]),
            groups,
            [_shown(finding, config, resolved, redaction) for finding in findings],
            tuple(replace(one, message=redaction.text(one.message)) for one in warnings),
        )
        return connector, infos, found

    def _say_what_there_is(self, finding: Finding) -> int:
        """Adds the available classes to the errors about a missing class; returns the number of such errors."""
        said = 0
        kind = kind_of_setting(finding.name)
        messages = finding.value.error_messages
        for row, message in enumerate(messages if kind is not None else ()):
            found = _CLASS_NOT_FOUND.search(message)
            if found is not None and kind is not None:
                messages[row] = f"{message} {self._plugins.choice(kind, found[1])}"
                said += 1
        return said

    def new_connector(self, config: Mapping[str, str | None]) -> Connector:
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
        except BaseException as error:
            raise BadRequestException(
                f"Connector class {text} cannot be made: its constructor raised {type(error).__name__}: {error}"
            ) from error
        assert isinstance(instance, Connector)
        return instance


def _type_of(connector: Connector) -> ConnectorType:
    return ConnectorType.SINK if isinstance(connector, SinkConnector) else ConnectorType.SOURCE


def _own_settings(connector: Connector, given: Mapping[str, str]) -> tuple[ConfigDef, Config]:
    """The connector's own definition and validation of its settings."""
    class_text = given["connector.class"]
    definition = _definition_of(connector, class_text).of_names(given)
    try:
        own: object = connector.validate(given)
    except BaseException as error:
        raise _unusable(connector, class_text, f".validate() raised {type(error).__name__}: {error}") from error
    if not isinstance(own, Config):
        what = f".validate() must return a Config, and has returned {type(own).__name__}"
        raise _unusable(connector, class_text, what)
    return definition, own


def _definition_of(connector: Connector, class_text: str) -> ConfigDef:
    try:
        definition: object = connector.config()
    except BaseException as error:
        raise _unusable(connector, class_text, f".config() raised {type(error).__name__}: {error}") from error
    if not isinstance(definition, ConfigDef):
        what = f".config() must return a ConfigDef, and has returned {type(definition).__name__}"
        raise _unusable(connector, class_text, what)
    return definition


def _unusable(connector: Connector, class_text: str, what: str) -> BadRequestException:
    return BadRequestException(str(ConfigException("connector.class", class_text, f"{type(connector).__name__}{what}")))


def _merged(
    definition: ConfigDef,
    found: Mapping[str, ConfigValue],
    own_definition: ConfigDef,
    own: Config,
) -> list[Finding]:
    """The settings of framework and transforms, then the connector's own; a setting of both has the faults of both."""
    values = dict(found)
    for value in own.config_values:
        known = values.setdefault(value.name, value)
        if known is not value:
            known.error_messages += [text for text in value.error_messages if text not in known.error_messages]
    keys = {**definition.keys, **own_definition.keys}
    names = [*keys, *(name for name in values if name not in keys)]
    return [Finding(keys.get(name), values.get(name) or ConfigValue(name)) for name in names]


def _redaction(
    config: Mapping[str, str | None], resolved: Mapping[str, str | None], findings: Sequence[Finding]
) -> Redaction:
    """Removes the secrets of a configuration, and the values of its placeholders, from texts about it."""
    return redaction_of(config, resolved, {finding.name for finding in findings if finding.secret})


def _shown(
    finding: Finding, config: Mapping[str, str | None], resolved: Mapping[str, str | None], redaction: Redaction
) -> Finding:
    """A finding without secrets."""
    name, value = finding.name, finding.value
    value.error_messages[:] = [redaction.text(message) for message in value.error_messages]
    given = config.get(name)
    if not redaction:
        return replace(finding, given=given)
    value.recommended_values[:] = [_without(one, redaction) for one in value.recommended_values]
    if given is None and isinstance(value.value, str | list):
        # The connector's own `validate` may have copied other settings into the value.
        finding = replace(finding, value=replace(value, value=_without(value.value, redaction)))
    return replace(finding, given=given, provided=given is not None and given != resolved.get(name))


def _without(value: object, redaction: Redaction) -> object:
    return redaction.body(value) if isinstance(value, str | list) else value
