"""ProtobufConverter, and the parts of Protobuf that it is made of.

``ProtobufConverter`` (``converter``) keeps a ``codec`` for each schema of the registry. ``files``, ``names`` and
``packages`` treat descriptors; ``schemas`` makes a file of a Connect schema; ``reading`` and ``blocks`` read one
message or many; ``writing`` and ``logical`` write. ``compatibility`` compares files.
"""
