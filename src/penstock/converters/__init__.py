"""The stock converters between Connect's data and bytes in Kafka, as Spark columns.

Start from:

- ``json``: JsonConverter, with fast paths for messages that look alike.
- ``string``: StringConverter, with Java's character sets, and SimpleHeaderConverter; ``primitives``: bytes, booleans
  and numbers.
- ``registry``: converters with a schema registry (Avro, JSON Schema, Protobuf), which work outside Spark.

A converter implements ``ColumnConverter`` of ``penstock.pipeline.plan.step``; its names are in
``penstock.plugins.kinds``. A converter only reports a failed record: ``penstock.worker.errors`` decides whether the
record is skipped or fails the task.
"""
