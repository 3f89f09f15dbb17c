"""JsonSchemaConverter, and its parts.

``JsonSchemaConverter`` (``converter``) keeps a ``codec`` for each schema of the registry; ``parsing`` reads schemas,
``reading`` reads values, ``writing`` writes both. ``compatibility`` compares schemas.
"""
