"""Checks configurations of connectors before anything runs, and lists the plugins and their settings.

Start from:

- ``ConnectorValidator`` (``validator``): a configuration in, a ``Checked`` out.
- ``ConfigInfos``, ``Finding`` (``config_infos``): the answer of a validation, as REST gives it.
- ``PluginCatalog`` (``plugin_checks``): the plugins, and the settings of each.
- ``masked``, ``unmasked`` (``config_infos``): hide passwords that leave the worker, and restore them when they come
  back.
- ``Redaction`` (``config_infos``): removes secret values from texts.

Each other module makes one kind of check. ``penstock.config`` parses single settings; ``penstock.herder`` requests
validations.

Source: "Configuration Validation" and "REST API" in the Kafka Connect chapter.
"""
