"""Avro with its schemas in a schema registry; fastavro encodes and decodes single values.

``codec`` compiles a schema; ``forms`` has schemas as trees, and the names, properties and defaults of Confluent's
converter. ``schemas`` and ``values`` convert both ways, ``blocks`` reads and writes many values at once.
"""
