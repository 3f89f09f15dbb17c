"""Protobuf: ``codec`` compiles a file; ``files`` and ``names`` handle descriptors.

``schemas`` and ``values`` convert both ways, ``blocks`` reads many messages at once.
"""
