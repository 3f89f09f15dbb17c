"""Transforms that change the type or the schema of a key, a value or a field: Cast, TimestampConverter,
SetSchemaMetadata.
"""
