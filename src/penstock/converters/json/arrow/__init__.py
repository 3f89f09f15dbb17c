"""Reads and writes a batch of JSON messages with Arrow, before or after Spark, in a fraction of the time of a plan.

``byte_columns`` and ``bytes`` make plain UTF-8. ``schemaless`` reads messages without schemas: as typed columns, using
``structs``, as texts, or as Python values. ``payloads`` reads messages with schemas. ``writing`` writes."""
