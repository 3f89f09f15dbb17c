"""JSON with its schemas in a schema registry, in the dialect of Confluent's converter.

``codec`` compiles a schema, validates values and compares schemas; ``schemas`` and ``values`` convert both ways,
record by record: Spark's JSON functions accept only one schema for all rows.
"""
