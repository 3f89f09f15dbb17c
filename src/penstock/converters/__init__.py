"""The stock converters: between Connect's data and the bytes in Kafka, as Spark columns.

Start from:

- ``JsonConverter`` (``as_json``): the settings of JSON. ``WriteJson`` (``json_writing``) and ``ReadJson``
  (``json_reading``) are its steps; ``Envelopes`` (``json_envelope``) sorts messages by their schema;
  ``schema_text`` and ``read_schema`` (``json_schema``) are schemas as JSON, ``write_value`` (``json_value_writing``)
  and ``read_value`` (``json_value_reading``) single values. The other ``json_...`` modules are quicker ways for
  messages that look alike.
- ``StringConverter`` (``as_string``), ``ByteArrayConverter`` (``as_bytes``), ``BooleanConverter`` (``as_boolean``) and
  the numbers (``as_number``).
- ``SimpleHeaderConverter`` (``headers``).
- ``registry``: converters with a schema registry (Avro, JSON Schema, Protobuf), beside Spark.

What a converter has to offer is ``ColumnConverter`` of ``penstock.pipeline.plan.step``; its names are in
``penstock.plugins.stock``. How many records fail, and what becomes of them, is no matter of this package: see
``penstock.worker.errors.tolerance``.
"""
