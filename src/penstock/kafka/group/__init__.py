"""Membership of a worker in its group: Kafka's classic group protocol with the protocol type "connect".

Start from:

- ``GroupMember`` (``member``): bytes in and out; ``GroupEvents`` (``events``): the callbacks to its owner.
- ``GroupSettings`` (``settings``): derived from the worker's settings.
- ``GroupLife`` (``lifecycle``): when to join and when to stop work, by the limits of ``Standing`` (``session``).
- ``GroupCoordinator`` (``coordinator``, rounds and heartbeats), ``GroupConnections`` (``connections``, encryption and
  login) and ``GroupLoop`` (``connections``): the only modules that use kafka-python.

``MemberState`` (``session``) survives restarts of the loop; ``GroupCounts`` (``session``) counts for display.
``penstock.herder.cluster`` defines the content of the bytes, and makes them.

Source: KIP-62, KIP-394, KIP-800.
"""
