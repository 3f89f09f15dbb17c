"""JsonSchemaConverter, and its parts.

``JsonSchemaConverter`` (``converter``) keeps a ``JsonSchemaCodec`` (``codec``) for each schema of the registry;
``parsing`` reads schemas, ``writing`` writes them, and has both ways of values. ``compatibility`` compares schemas."""
