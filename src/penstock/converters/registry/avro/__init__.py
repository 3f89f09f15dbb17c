"""Avro: ``codec`` compiles a schema; ``forms`` has schemas as trees, names and defaults.

``schemas`` and ``values`` convert both ways, ``blocks`` and ``block_writing`` many values at once.
"""
