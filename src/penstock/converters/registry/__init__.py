"""Converters that keep their schemas in a schema registry, in the wire format of Confluent's serializers.

``base`` is what they share, ``settings`` what users set, ``client`` all that knows the registry, ``wire`` the bytes
around a message. A format is one class, such as ``avro.AvroConverter``.

They are plain record-wise converters: Spark reads and writes none of these formats without jars that it does not come
with, and the schema of a message is known by its id alone. Schemas are compiled once for each id, so that a message
costs no look-up and no parsing.

Needs the extra ``penstock[registry]``; importing these modules does not.

Thread: a task's pipeline thread.
"""
