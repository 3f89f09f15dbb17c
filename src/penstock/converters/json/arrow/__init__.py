"""JSON messages of a batch read and written by Arrow, before or after Spark: a fraction of a plan's work.

``byte_columns`` and ``bytes`` find plain UTF-8. ``objects`` makes typed columns of messages without schemas, by
``structs`` and ``quotes``; ``payloads`` of messages with schemas. ``writing`` and ``texts`` go the other way;
``schemaless_columns`` makes Python values.
"""
