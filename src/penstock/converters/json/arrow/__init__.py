"""Reads and writes a batch of JSON messages with Arrow, before or after Spark, in a fraction of the time of a plan.

``byte_columns`` and ``bytes`` make plain UTF-8. ``objects`` reads messages without schemas as typed columns, using
``structs`` and ``quotes``; ``payloads`` reads messages with schemas. ``writing`` and ``texts`` write;
``schemaless_columns`` reads Python values.
"""
