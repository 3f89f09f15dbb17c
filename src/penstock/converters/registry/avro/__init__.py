"""AvroConverter, and its parts.

``AvroConverter`` (``converter``); ``forms`` resolves names in schemas, and maps Connect's names and properties to Avro;
``reading`` and ``blocks`` read one message or many; ``schema_writing``, ``value_writing`` and ``block_writing`` write.
``compatibility`` compares schemas."""
