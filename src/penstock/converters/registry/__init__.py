"""Converters that keep their schemas in a schema registry, in the wire format of Confluent's serializers.

Start from:

- ``RegistryConverter`` (``converter``): the common part: choice of subject and id, caches, the meaning of null.
- ``avro``, ``json_schema``, ``protobuf``: a package for each format.
- ``RegistryClient`` (``client``): all that knows the registry; ``RegistryConfig`` (``settings``): the settings;
  ``frame``, ``unframe`` (``wire``): the bytes around a message.
- ``reading_columns``: messages of one schema are read together, with ``cursors`` and ``pieces``.

They work beside Spark, which reads and writes none of these formats without jars that it does not come with; the schema
of a message is known by its id alone. Schemas are compiled once for each id, so that a message costs no look-up and no
parsing. The converters that are Spark columns are in ``penstock.converters``.

Needs the extra ``penstock[registry]``; importing these modules does not.

Thread: a task's pipeline thread.
"""
