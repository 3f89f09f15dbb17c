"""Checks configurations of connectors before anything runs, and says what plugins and their settings there are.

Start from:

- ``ConnectorValidator`` (``validator``): a configuration in, a ``Checked`` out.
- ``ConfigInfos``, ``Finding`` (``config_infos``): the answer of a validation, as REST gives it.
- ``PluginCatalog`` (``plugin_checks``): the plugins, and the settings of each.
- ``masked``, ``unmasked`` (``config_infos``): passwords leave the worker hidden, and come back as what they were.
- ``Redaction`` (``redaction``): takes values that must not be shown out of texts.

The other modules are one kind of check each. ``penstock.config`` knows how one setting is parsed; who asks for a
validation, and when, ``penstock.herder`` knows.

Source: "Configuration Validation" and "REST API" in the Kafka Connect chapter.
"""
