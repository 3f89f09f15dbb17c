"""Transforms that change the type or the schema of a key, a value or a field.

- ``cast`` converts to another primitive type, by the rules of ``cast_values``.
- ``timestamp_converter`` converts timestamps between the representations of ``timestamp_formats``.
- ``set_schema_metadata`` gives a schema a name or a version.
"""
