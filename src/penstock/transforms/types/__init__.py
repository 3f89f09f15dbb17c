"""Transforms that change the type or the schema of a key, a value or a field.

- ``cast`` converts to another primitive type.
- ``timestamp_converter`` converts timestamps between their representations.
- ``set_schema_metadata`` gives a schema a name or a version.
"""
