"""Converters that keep their schemas in a schema registry, in the wire format of Confluent's serializers.

Start from:

- ``RegistryConverter`` (``converter``): the common part: choice of subject and id, caches, the meaning of null.
- ``avro``, ``json_schema``, ``protobuf``: a package for each format.
- ``RegistryClient`` (``client``): the client of the registry; ``RegistryConfig`` (``settings``): the settings;
  ``frame``, ``unframe`` (``converter``): the bytes around a message.
- ``read_columns`` (``converter``): messages of one schema are read together, with ``cursors`` and ``pieces``.

They work outside Spark, which needs additional jars for these formats, and because only the id in a message identifies
its schema. Each schema is compiled once, so that a message costs no look-up and no parsing. The converters that are
Spark columns are in ``penstock.converters``.

Needs the extra ``penstock[registry]``; importing these modules does not.

Thread: a task's pipeline thread.
"""
