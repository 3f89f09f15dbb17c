"""Suites of tests for authors: a class of pytest for each kind of plugin, to subclass in a test module.

- ``SourceSuite`` (``sources``), ``SinkSuite`` (``sinks``) and, as a second base, ``FrameSuite`` (``frames``).
- ``TransformSuite`` (``transforms``) and ``ConverterSuite`` (``converters``); ``FrameTransformSuite``
  (``frame_transforms``), which needs Java.

``ConnectorSuite`` (``connectors``) and ``PluginSuite`` (``plugins``) are their bases. The runs that they make are
those of ``penstock.testing.kit``.
"""
