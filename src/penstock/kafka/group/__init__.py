"""Membership of a worker in its group: Kafka's classic group protocol with the protocol type "connect".

Start from:

- ``GroupMember`` (``member``): bytes in and out; ``GroupEvents`` (``events``): what it tells its owner, and asks.
- ``GroupSettings`` (``settings``): made of the worker's settings.
- ``GroupLife`` (``life``): when to join and what to give up, by the limits of ``Standing`` (``standing``).
- ``GroupCoordinator`` (``coordinator``, rounds and heartbeats), ``Connections`` (``connections``, encryption and login)
  and ``GroupLoop`` (``loop``): all that knows kafka-python.

``MemberState`` (``standing``) outlives a life; ``calls`` runs what may take long; ``metrics`` are what people see.
What the bytes say is in ``penstock.assignors``, who makes them in ``penstock.herder.cluster``.

Source: KIP-62, KIP-394, KIP-800; group-membership.md.
"""
