"""Converters that keep their schemas in a schema registry, in the wire format of Confluent's serializers.

``converters`` has the converters, and their common part: choice of subject and id, caches, the meaning of null.
``avro``, ``json_schema`` and ``protobuf`` have a ``Codec`` each: a compiled schema, which reads and writes. ``client``
asks the registry, ``wire`` has the bytes around messages and many messages at once, ``formats`` what formats share.
"""
