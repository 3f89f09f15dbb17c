"""ProtobufConverter, and its parts.

``ProtobufConverter`` (``converter``) keeps a ``ProtobufCodec`` (``codec``) for each schema of the registry. ``files``,
``names`` and ``packages`` handle descriptors; ``schemas`` turns a Connect schema into a file; ``reading`` and
``blocks`` read one message or many; ``writing`` writes, and has the logical types. ``compatibility`` compares files.
"""
