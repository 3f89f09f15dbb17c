"""Assigns connectors and tasks to the workers of a group, in the bytes of Kafka Connect's protocol.

Everything here is a value or a pure function. Start from:

- ``assign`` (``assignment``): assigns connectors and tasks to workers with the fewest moves; ``assign_eagerly`` next to
  it assigns everything again.
- ``Units`` (``assignment``): the connectors and tasks that a worker runs, gets or gives back.
- ``MemberMetadata``, ``Assignment`` (``connect_protocol``): the messages between members of the group, in Java Kafka
  Connect's bytes.

``python -m differential.cluster`` compares all this with Java's. ``penstock.herder.cluster`` decides when a round
begins, and applies the assignment of a worker.

Source: KIP-415, KIP-507.
"""
