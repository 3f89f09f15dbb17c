"""AvroConverter, and the parts of Avro that it is made of.

``AvroConverter`` (``converter``); ``types`` resolves names in schemas, ``forms`` has Connect's names and properties in
them; ``reading`` and ``blocks`` read one message or many; ``schema_writing``, ``value_writing`` and ``block_writing``
write. ``compatibility`` compares schemas.
"""
