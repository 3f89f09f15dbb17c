"""Deals out connectors and tasks to the workers of a group, and says so in Kafka Connect's bytes.

Everything here is a value or a pure function. Start from:

- ``assign`` (``assignment``): decides which worker runs which connector and task, so that as little as possible moves;
  ``assign_eagerly`` beside it deals out everything anew.
- ``Units`` (``assignment``): the connectors and tasks that a worker runs, or that are to be given or taken.
- ``Metadata``, ``Assignment`` (``connect_protocol``): what members of the group tell each other, as bytes that Java
  Kafka Connect reads and writes.

``python -m differential.cluster`` compares all this with Java's. When a round begins, and what a worker does with what
it was given, ``penstock.herder.cluster`` knows.

Source: KIP-415, KIP-507.
"""
