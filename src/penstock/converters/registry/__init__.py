"""Converters that keep their schemas in a schema registry, in the wire format of Confluent's serializers.

Start from:

- ``RegistryConverter`` (``base``): what all of them share: which subject and id, what is remembered, what null means.
- ``AvroConverter`` (``avro``), ``JsonSchemaConverter`` (``json_schema``), ``ProtobufConverter`` (``protobuf``): a class
  for each format; modules that begin with its name are its parts.
- ``RegistryClient`` (``client``): all that knows the registry; ``RegistryConfig`` (``settings``): what users set;
  ``frame``, ``unframe`` (``wire``): the bytes around a message.

They work beside Spark, which reads and writes none of these formats without jars that it does not come with; the schema
of a message is known by its id alone. Schemas are compiled once for each id, so that a message costs no look-up and no
parsing. Messages of one schema are read together where they have columns (``reading_columns``). The converters that are
Spark columns are in ``penstock.converters``.

Needs the extra ``penstock[registry]``; importing these modules does not.

Thread: a task's pipeline thread.
"""
