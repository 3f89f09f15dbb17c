"""The stock converters: between Connect's data and the bytes in Kafka, as Spark columns.

Start from:

- ``json``: JsonConverter, and its quicker ways for messages that look alike.
- ``StringConverter`` (``string``), with Java's character sets; ``ByteArrayConverter``, ``BooleanConverter`` and the
  numbers (``primitives``).
- ``SimpleHeaderConverter`` (``headers``).
- ``registry``: converters with a schema registry (Avro, JSON Schema, Protobuf), beside Spark.

A converter offers the ``ColumnConverter`` of ``penstock.pipeline.plan.step``; its names are in
``penstock.plugins.stock``. A converter only reports a failed record: ``penstock.worker.errors`` decides whether the
record is skipped or fails the task.
"""
