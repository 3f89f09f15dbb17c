"""Protobuf with its schemas in a schema registry; the protobuf library encodes and decodes single messages.

``codec`` compiles a file; ``files`` has files as descriptors, ``names`` the settings and the rules for names.
``schemas`` and ``values`` convert both ways, ``blocks`` reads many messages of a flat type at once.
"""
